// Derivations: an expression in letters, then in numbers, its value, and a legend of its letters.
import { gibibytes, gigabytes, grouped, percent, shortCount, sum, texts, times, UNITS, value, formatExpression } from "./expressions.js";
import { formula, numberButton } from "./dom.js";

const namedForms = (form) => (Array.isArray(form) && form[0] !== "let" ? (form[0] === "as" ? [form] : form.slice(1).flatMap(namedForms)) : []);

const lettersIn = (form) => (typeof form === "string" ? [form] : form[0] === "as" ? lettersIn(form[2]) : form[0] === "let" ? [form[1]].filter((x) => "NC".includes(x)) : form.slice(1).flatMap(lettersIn));

// Describe the letters of an expression; with a text, only those that occur in it.
export function legend(form, text) {
	const occurs = (x) => text === undefined || new RegExp(`(^|[^A-Za-z])${x}([^A-Za-z]|$)`).test(text);
	const used = lettersIn(form).filter(occurs).map((x) => (/^[WRX]\d*[a-z]?'?$/.test(x) ? x[0] : x));
	const own = new Map(namedForms(form).map((x) => [x[1], `${texts.forms[x[1]] ?? x[1]}${Array.isArray(x[2]) ? ` = ${formatExpression(x[2], {}, true)}` : ""}`]));
	return [...Object.entries(texts.letters).filter(([x]) => used.includes(x)).map(([, says]) => says), ...own.values()].join("; ");
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
	const letters = x.dims.map((side) => (side.includes(" ") ? `(${side})` : side));
	return formula(prefix[0] + [...letters, ...factors.map((y) => y[0])].join("·"), prefix[1] + [...x.shape, ...factors.map((y) => y[1])].map((n) => grouped(n)).join("·"), result);
}

// A formula for each dimension of a shape.
export const sideFormulas = (x) => x.dims.map((side, i) => formula(/^\d/.test(side) ? "from the builder" : side, x.numbers[i], grouped(x.shape[i])));
export const shapeText = (x) => `${x.dims.join("×")} = ${x.shape.join("×")}${times(x.copies)}`;

export const sumOf = (forms) => (forms.length === 1 ? forms[0] : ["+", ...forms]);

export function derivation(form, variables, unit) {
	const lines = [formatExpression(form, variables, true), formatExpression(form, variables, false)];
	const distinct = lines[0] === lines[1] ? lines.slice(1) : lines;
	return [formula(...distinct, `${grouped(value(form, variables))} ${unit}`), legend(form, lines[0])].filter(Boolean);
}
