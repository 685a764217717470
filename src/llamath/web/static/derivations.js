// Derivations: an expression in letters, then in numbers, its value, and a legend of its letters.
import { gibibytes, gigabytes, grouped, percent, short, sum, texts, times, UNITS, value, written } from "./forms.js";
import { formula, numberButton } from "./dom.js";

const named = (form) => (Array.isArray(form) && form[0] !== "let" ? (form[0] === "as" ? [form] : form.slice(1).flatMap(named)) : []);

const letters = (form) => (typeof form === "string" ? [form] : form[0] === "as" ? letters(form[2]) : form[0] === "let" ? [form[1]].filter((x) => "NC".includes(x)) : form.slice(1).flatMap(letters));

// Describe the letters of an expression; with a text, only those that occur in it.
export function legend(form, text) {
	const there = (x) => text === undefined || new RegExp(`(^|[^A-Za-z])${x}([^A-Za-z]|$)`).test(text);
	const used = letters(form).filter(there).map((x) => (/^[WRX]\d*[a-z]?'?$/.test(x) ? x[0] : x));
	const own = new Map(named(form).map((x) => [x[1], `${texts.forms[x[1]] ?? x[1]}${Array.isArray(x[2]) ? ` = ${written(x[2], {}, true)}` : ""}`]));
	return [...Object.entries(texts.letters).filter(([x]) => used.includes(x)).map(([, says]) => says), ...own.values()].join("; ");
}

// Conversions to a larger unit, a short form or a share.
const over = (what, n, unit, text) => formula(`${what} / ${unit}`, `${grouped(n)} / ${unit}`, text);
export const inBytes = (n) => [over("bytes", n, "10⁹", gigabytes(n)), over("bytes", n, "2³⁰", gibibytes(n))];
export const inShort = (what, n, text = short(n)) => UNITS.filter((x) => text.endsWith(x[1])).map((x) => over(what, n, x[2], text));
export const shareFormula = (part, n, whole) => formula(`${part} / all`, `${grouped(n)} / ${grouped(whole)}`, percent(n, whole));

// A sum as names, as numbers, and its total; `parts` are [name, number].
export const sumFormula = (parts, unit = "") => formula(parts.map((x) => x[0]).join(" + "), parts.map((x) => grouped(x[1])).join(" + "), `${grouped(sum(parts.map((x) => x[1])))} ${unit}`.trim());

// A number that opens its formula.
export const numberWithFormula = (n, title, symbols, numbers) => numberButton(grouped(n), () => [title, formula(symbols, numbers, grouped(n))]);

// The product of a weight's dimensions and its copies; a copy is [letter, number].
export function productFormula(x, copies, result, lead = ["", ""]) {
	const many = copies.filter((y) => y[1] !== "1");
	const letters = x.dims.map((side) => (side.includes(" ") ? `(${side})` : side));
	return formula(lead[0] + [...letters, ...many.map((y) => y[0])].join("·"), lead[1] + [...x.shape, ...many.map((y) => y[1])].map((n) => grouped(n)).join("·"), result);
}

// A formula for each dimension of a shape.
export const sideFormulas = (x) => x.dims.map((side, i) => formula(/^\d/.test(side) ? "from the builder" : side, x.numbers[i], grouped(x.shape[i])));
export const shapeText = (x) => `${x.dims.join("×")} = ${x.shape.join("×")}${times(x.copies)}`;

export const sumOf = (forms) => (forms.length === 1 ? forms[0] : ["+", ...forms]);

export function derivation(form, variables, unit) {
	const lines = [written(form, variables, true), written(form, variables, false)];
	const distinct = lines[0] === lines[1] ? lines.slice(1) : lines;
	return [formula(...distinct, `${grouped(value(form, variables))} ${unit}`), legend(form, lines[0])].filter(Boolean);
}
