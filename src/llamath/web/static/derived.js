// What a form comes to, in letters, then in numbers, with what its letters stand for.
import { texts } from "./data.js";
import { gibibytes, gigabytes, grouped, value, written } from "./forms.js";
import { formula, h } from "./dom.js";

const named = (form) => (Array.isArray(form) && form[0] !== "let" ? (form[0] === "as" ? [form] : form.slice(1).flatMap(named)) : []);

const letters = (form) => (typeof form === "string" ? [form] : form[0] === "as" ? letters(form[2]) : form[0] === "let" ? [form[1]].filter((x) => "NC".includes(x)) : form.slice(1).flatMap(letters));

// Without a text all of them, else those that it has.
export function legend(form, text) {
	const there = (x) => text === undefined || new RegExp(`(^|[^A-Za-z])${x}([^A-Za-z]|$)`).test(text);
	const used = letters(form).filter(there).map((x) => (/^[WRX]\d*[a-z]?'?$/.test(x) ? x[0] : x));
	const own = new Map(named(form).map((x) => [x[1], `${texts.forms[x[1]] ?? x[1]}${Array.isArray(x[2]) ? ` = ${written(x[2], {}, true)}` : ""}`]));
	return [...Object.entries(texts.letters).filter(([x]) => used.includes(x)).map(([, says]) => says), ...own.values()].join("; ");
}

export const both = (n) => h("p", `${gigabytes(n)}, ${gibibytes(n)}`);

export const all = (forms) => (forms.length === 1 ? forms[0] : ["+", ...forms]);

export function derived(form, variables, unit) {
	const lines = [written(form, variables, true), written(form, variables, false)];
	const said = lines[0] === lines[1] ? lines.slice(1) : lines;
	return [formula(...said, `${grouped(value(form, variables))} ${unit}`), legend(form, lines[0])].filter(Boolean);
}
