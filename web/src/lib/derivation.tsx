// Derivations: how a number follows from others, shown in a dialog when the number is chosen.
import type { ComponentChildren } from "preact";
import { data, type Digits, type ModelData } from "./data";
import { notation, value, type Expression, type Variables } from "./expressions";
import {
	gibibytes,
	gigabytes,
	grouped,
	percent,
	shortBytes,
	shortCount,
	shortFileSize,
	sum,
	UNITS,
} from "./format";

/**
 * What the dialog shows: a title, and lines of text, formulas or other elements. Falsy lines are
 * left out.
 */
export interface Derivation {
	title: string;
	lines: ComponentChildren[];
}

/** Longer sums have a line for each summand: those of a model are its parts. */
const LONG = 80;

/** The summands of a line outside of its parentheses, each but the first with its sign. */
function summandsOf(line: string): string[] {
	const found = [""];
	let depth = 0;
	for (const [i, x] of [...line].entries()) {
		depth += x === "(" ? 1 : x === ")" ? -1 : 0;
		if (!depth && /[+−]/.test(x) && line[i - 1] === " " && line[i + 1] === " ") found.push("");
		found[found.length - 1] += x;
	}
	return found;
}

/** Groups the digits of a line of numbers, as its result has them; not those of a shape, [2, 4096]. */
const withGroups = (line: string) =>
	/[a-z[]/i.test(line.replace(/min|max|round/g, ""))
		? line
		: line.replace(/(?<![\d.,])[1-9]\d{3,}(?![\d.])/g, grouped);

/** Lines of a formula, each equal to the one before. */
export function Formula({ lines }: { lines: (string | false | null | undefined)[] }) {
	// a formula can be wider than the dialog: it scrolls, and so can be reached with Tab
	return (
		<pre class="formula" tabIndex={0} aria-label="formula">
			{lines
				.filter((x): x is string => typeof x === "string" && x !== "")
				.map(withGroups)
				.map((line, i) => [
					i > 0 && "\n= ",
					...(line.length > LONG && !line.includes("\n") ? summandsOf(line) : [line]).map(
						(x, j) => [j > 0 && <br />, x],
					),
				])}
		</pre>
	);
}

export const formula = (...lines: (string | false | null | undefined)[]) => (
	<Formula lines={lines} />
);

/** The symbols in an expression, with the definition of those that have one. */
function symbolsIn(expression: Expression, found = new Map<string, Expression | undefined>()) {
	if (typeof expression === "string")
		found.set(/^[WRX]/.test(expression) ? expression[0]! : expression, undefined);
	if (typeof expression !== "object") return found;
	const [name, ...rest] = expression as [string, ...Expression[]];
	if (name === "let") found.set(String(rest[0]), undefined);
	else if (name === "as") {
		found.set(String(rest[0]), rest[1]);
		symbolsIn(rest[1]!, found);
	} else for (const x of rest) symbolsIn(x, found);
	return found;
}

const modelLetters = Object.fromEntries(
	data.models.flatMap((model) =>
		((model.letters as ModelData["letters"] | undefined) ?? []).map((x) => [
			x.letter,
			`${x.letter}: ${x.says || x.key}`,
		]),
	),
);

/**
 * Describes the symbols of an expression, settings first; with a text, only those that occur in it
 * or in a definition.
 */
export function legend(expression: Expression, text?: string): string {
	const found = symbolsIn(expression);
	const definitions = [...found].flatMap(([symbol, x]): [string, string][] =>
		x === undefined
			? []
			: [[symbol, `${data.words.symbols[symbol]} = ${notation(x, {}, true)}`]],
	);
	const all = text && [text, ...definitions].join(" ");
	const occurs = ([x]: [string, string]) =>
		found.has(x) &&
		(!all || new RegExp(`(^|\\W)${x}${"WRX".includes(x) ? "" : "(\\W|$)"}`).test(all));
	return [
		...Object.entries(data.words.letters).filter(occurs),
		...definitions.filter(occurs),
		...Object.entries(modelLetters).filter(occurs),
	]
		.map((x) => x[1])
		.join("; ");
}

/** What the letters of formulas mean that the lines themselves do not say. */
export function lettersIn(lines: readonly ComponentChildren[]): string {
	const said = lines.filter((x) => typeof x === "string").join("; ");
	const formulas = lines
		.flatMap((x) => (x && typeof x === "object" && "props" in x ? [x] : []))
		.flatMap((x) => ((x.props as { lines?: unknown }).lines as string[] | undefined) ?? []);
	// a product has letters, a sum of names such as k + v has none
	const letters = new Set(
		formulas
			.filter((x) => x && x.includes("·"))
			.flatMap((x) => x.match(/(?<![\w.])\p{L}\w*(?!\.)/gu) ?? []),
	);
	const words = data.words as Record<string, Record<string, string>>;
	return Object.entries({ ...words.letters, ...words.symbols, ...modelLetters })
		.filter(([x, text]) => letters.has(x) && !said.includes(text))
		.map((x) => x[1])
		.join("; ");
}

/** An expression in letters and in numbers, its value, and what the letters mean. */
export function derivation(
	form: Expression,
	variables: Variables<bigint>,
	unit: string,
): ComponentChildren[] {
	const letters = notation(form, variables, true);
	const numbers = notation(form, variables, false);
	return [
		formula(
			letters !== numbers && letters,
			numbers,
			`${grouped(value(form, variables))} ${unit}`,
		),
		legend(form, letters),
	];
}

/** Conversions to a larger unit, a short form or a share. */
const quotient = (name: string, n: bigint | Digits, unit: string, text: string) =>
	formula(`${name} / ${unit}`, `${grouped(n)} / ${unit}`, text);
/** In the units of models; of a small file, in those in which it has three digits. */
export const inBytes = (n: bigint | Digits, isSmall = false) =>
	isSmall
		? [
				quotient("bytes", n, "10⁶", shortFileSize(n)),
				quotient("bytes", n, BigInt(n) < 1n << 20n ? "2¹⁰" : "2²⁰", shortBytes(n)),
			]
		: [quotient("bytes", n, "10⁹", gigabytes(n)), quotient("bytes", n, "2³⁰", gibibytes(n))];
export const inShort = (name: string, n: bigint | Digits, text = shortCount(n)) =>
	UNITS.filter((x) => text.endsWith(x[1])).map((x) => quotient(name, n, x[2], text));
export const shareFormula = (part: string, n: bigint, whole: bigint, text = percent(n, whole)) =>
	formula(`${part} / all`, `${grouped(n)} / ${grouped(whole)}`, text);

/** A sum as names, as numbers, and its total; `parts` are [name, number]. */
export function sumFormula(parts: [string, bigint | Digits][], unit = "") {
	return formula(
		parts.map((x) => x[0]).join(" + "),
		parts.map((x) => grouped(x[1])).join(" + "),
		`${grouped(sum(parts.map((x) => x[1])))} ${unit}`.trim(),
	);
}
