// Derivations: an expression in letters, then in numbers, its value, and a legend of its letters.
import { data, gibibytes, gigabytes, grouped, percent, shortCount, sum, texts, times, UNITS, value, notation } from "./expressions.js";
import { formula, numberButton } from "./dom.js";

// The symbols in an expression, with the definition of those that have one.
function symbolsIn(expression, found = new Map()) {
	const [name, ...rest] = typeof expression === "object" ? expression : [];
	if (typeof expression === "string") found.set(/^[WRX]/.test(expression) ? expression[0] : expression);
	else if (name === "let") found.set(rest[0]);
	else if (name === "as") symbolsIn(rest[1], found.set(...rest));
	else rest.forEach((x) => symbolsIn(x, found));
	return found;
}

const modelLetters = Object.fromEntries(data.models.flatMap((model) => model.letters.map((x) => [x.letter, `${x.letter}: ${x.says || x.key}`])));

// Describe the symbols of an expression, settings first; with a text, only those that occur in it or in a definition.
export function legend(expression, text) {
	const found = symbolsIn(expression);
	const definitions = [...found].filter((x) => x[1]).map(([symbol, x]) => [symbol, `${texts.symbols[symbol]} = ${notation(x, {}, true)}`]);
	const all = text && [text, ...definitions].join(" ");
	const occurs = ([x]) => found.has(x) && (!all || new RegExp(`(^|\\W)${x}${"WRX".includes(x) ? "" : "(\\W|$)"}`).test(all));
	return [...Object.entries(texts.letters).filter(occurs), ...definitions.filter(occurs), ...Object.entries(modelLetters).filter(occurs)].map((x) => x[1]).join("; ");
}

// Conversions to a larger unit, a short form or a share.
const quotient = (name, n, unit, text) => formula(`${name} / ${unit}`, `${grouped(n)} / ${unit}`, text);
export const inBytes = (n) => [quotient("bytes", n, "10⁹", gigabytes(n)), quotient("bytes", n, "2³⁰", gibibytes(n))];
export const inShort = (name, n, text = shortCount(n)) => UNITS.filter((x) => text.endsWith(x[1])).map((x) => quotient(name, n, x[2], text));
export const shareFormula = (part, n, whole) => formula(`${part} / all`, `${grouped(n)} / ${grouped(whole)}`, percent(n, whole));

// A sum as names, as numbers, and its total; `parts` are [name, number].
export const sumFormula = (parts, unit = "") => formula(parts.map((x) => x[0]).join(" + "), parts.map((x) => grouped(x[1])).join(" + "), `${grouped(sum(parts.map((x) => x[1])))} ${unit}`.trim());

// A number that opens its formula.
export const numberWithFormula = (n, title, symbols, numbers) => numberButton(grouped(n), () => [title, formula(symbols, numbers, grouped(n))]);

// The product of a weight's dimensions and its copies; a copy is [letter, number].
export function productFormula(x, copies, result, prefix = ["", ""]) {
	const factors = copies.filter((y) => y[1] !== "1");
	const letters = x.dims.map(inFactor);
	return formula(prefix[0] + [...letters, ...factors.map((y) => y[0])].join("·"), prefix[1] + [...x.shape, ...factors.map((y) => y[1])].map((n) => grouped(n)).join("·"), result);
}

// A formula for each dimension of a shape.
export const sideFormulas = (x) => x.dims.map((side, i) => formula(/^\d/.test(side) ? "from the builder" : side, x.numbers[i], grouped(x.shape[i])));
const inFactor = (side) => (side.includes(" ") ? `(${side})` : side);
export const shapeText = (x) => `${x.dims.map(inFactor).join("×")} = ${x.shape.join("×")}${times(x.copies)}`;

export const sumOf = (forms) => (forms.length === 1 ? forms[0] : ["+", ...forms]);

export function derivation(form, variables, unit) {
	const lines = [notation(form, variables, true), notation(form, variables, false)];
	const distinct = lines[0] === lines[1] ? lines.slice(1) : lines;
	return [formula(...distinct, `${grouped(value(form, variables))} ${unit}`), legend(form, lines[0])].filter(Boolean);
}
