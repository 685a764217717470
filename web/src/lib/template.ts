// The data of a model as a template in letters, as src/llamath/utils/number_marks.py writes it: marks
// in texts stand for numbers that follow from the dimensions, so that the same data can be made for
// other dimensions.
import type { ModelData } from "./data";
import { EXACT, type Expression } from "./expressions";
import { type Blocks, followed, withoutSearched } from "./followed";
import { arranged, rangesOf, rangesText, runsOf } from "./layer_numbers";
import { lazily } from "./lazily";
import { numberText } from "./number_texts";

/** Values of letters. */
export type Letters = Record<string, bigint>;

export interface Template extends ModelData {
	/** (kind, place of a form or text, …). */
	marks: [kind: string, ...inputs: (number | string)[]][];
	/** Expressions in which a name is a letter. */
	forms: Expression[];
	own: Record<string, string>;
	/** Letters that not all of the data follow. */
	fixed: string[];
	blocks: Blocks;
	/** What other models than those of other letters change in the template. */
	variants: Partial<Record<Variant, Change>>;
	/** The family of the mixture, and its letters that the model lacks. */
	mixture?: { like: string; values: Record<string, string> };
}

/** The head tied or not, other than the model's own; experts in the place of each FFN. */
export type Variant = "head" | "mixture";

/**
 * By name or place, the changes of a part; `[x]` for another value, `[]` for a part that is left out,
 * `[place, n, items]` for other items in the place of n, `[items, changes]` for items that are the
 * places of own ones, with their changes, or new; see web/page_data/template_variants.py.
 */
type Change =
	| []
	| [unknown]
	| [place: number, n: number, items: unknown[]]
	| [items: unknown[], changes: ChangedParts]
	| ChangedParts;
interface ChangedParts {
	[name: string]: Change;
}

function changed(own: unknown, change: Change): unknown {
	if (!Array.isArray(change)) {
		const made = new Map(Object.entries(own as object));
		for (const [name, x] of Object.entries(change))
			if (Array.isArray(x) && !x.length) made.delete(name);
			else made.set(name, changed(made.get(name), x));
		return Array.isArray(own) ? [...made.values()] : Object.fromEntries(made);
	}
	if (change.length === 2) {
		const [items, changes] = change;
		return items.map((x) => {
			if (typeof x !== "number") return x;
			const item = (own as unknown[])[x];
			return x in changes ? changed(item, changes[x]!) : item;
		});
	}
	const [first, n, items] = change;
	return change.length === 3
		? (own as unknown[]).toSpliced(first as number, n!, ...items!)
		: first;
}

/** One set of values, with what was already made of it. */
interface Instance {
	letters: Letters;
	numbers: bigint[];
	texts: string[];
}
type Make = (at: Instance) => unknown;

type ArrangedData = [
	first: number[],
	repeated: number[],
	last: number[],
	number: string,
	inRuns: 0 | 1,
];

const MARK = "\x7f";
/** In the place of a factor of 1. */
const OMITTED = Symbol();
const LARGEST = 2n ** 53n - 1n;

/** Larger numbers are texts. */
const jsonNumber = (n: bigint) => (n > LARGEST || n < -LARGEST ? String(n) : Number(n));

/** Objects in so many others are made as a whole: the many small ones of lists. */
const LAZY_DEPTH = 3;
const DIVISIONS = ["floor", "ceil", "round", "routed"];
const mayDivideByZero = (x: Expression): boolean =>
	typeof x === "object" &&
	((DIVISIONS.includes(x[0]) && x.slice(2).some((y) => !Number(y))) ||
		x.slice(1).some(mayDivideByZero));

function compile(template: Template) {
	const {
		marks,
		forms,
		own,
		fixed: _f,
		blocks: _b,
		variants: _v,
		mixture: _m,
		...data
	} = template;
	/** Forms of marks in the data, since others are those of variants. */
	const used = new Set<number>();
	const use = (x: Expression): void => {
		if (typeof x !== "object") return;
		if (x[0] !== "@") return x.slice(1).forEach(use);
		const form = x[1] as number;
		if (used.has(form)) return;
		used.add(form);
		use(forms[form]!);
	};
	const usedMarks = new Set<number>();
	const useMarks = (parts: readonly string[]) => {
		for (let i = 1; i < parts.length; i += 2) {
			const place = Number(parts[i]);
			if (usedMarks.has(place)) continue;
			usedMarks.add(place);
			for (const x of marks[place]!.slice(1))
				if (typeof x === "number") use(["@", x]);
				else useMarks(x.split(MARK));
		}
	};
	/** What has no value at some letters: it is asked for at once, where an edit can still be refused. */
	const checks: Make[] = [];
	const numberOf = (form: number, at: Instance): bigint =>
		(at.numbers[form] ??= evaluate(forms[form]!, at));
	const evaluate = (x: Expression, at: Instance): bigint => {
		if (typeof x === "number") return BigInt(x);
		if (typeof x === "string") return at.letters[x] ?? BigInt(x);
		if (x[0] === "@") return numberOf(x[1] as number, at);
		const [first, ...rest] = x.slice(1).map((y) => evaluate(y, at));
		const apply = EXACT[x[0]]!;
		return ["+", "*", "max"].includes(x[0])
			? rest.reduce<bigint>((a, b) => apply(a, b), first!)
			: apply(first!, ...rest);
	};
	const textOf = (place: number, at: Instance): string => (at.texts[place] ??= write(place, at));
	const write = (place: number, at: Instance): string => {
		const [kind, ...inputs] = marks[place]!;
		if (kind === "power") {
			const base = inputs[0] as number;
			const [factor, exponent, digits = 6] = inputs.slice(1).map(Number);
			const power = factor! * Number(numberOf(base, at)) ** exponent!;
			return String(Number(power.toPrecision(digits)));
		}
		if (kind === "ranges")
			return rangesText(rangesOf(inputs[1] as string, numberOf(inputs[0] as number, at)));
		if (kind !== "=") return numberText(kind, ...inputs.map((x) => numberOf(x as number, at)));
		const [a, b, same, other] = inputs as [number, number, string, string];
		return textWith(numberOf(a, at) === numberOf(b, at) ? same : other, at);
	};
	const textWith = (text: string, at: Instance): string => {
		const parts = text.split(MARK);
		for (let i = 1; i < parts.length; i += 2) parts[i] = textOf(Number(parts[i]), at);
		return parts.join("");
	};

	const ofText = (text: string): Make | null => {
		if (!text.includes(MARK)) return null;
		const parts = text.split(MARK);
		useMarks(parts);
		const [before, place, after, more] = parts;
		if (more === undefined && !before && !after) {
			const [kind, form] = marks[Number(place)]!;
			if (kind === "unless 1")
				return (at) => {
					const n = numberOf(form as number, at);
					return n === 1n ? OMITTED : jsonNumber(n);
				};
			if (kind === "/") {
				const by = marks[Number(place)]![2] as number;
				return (at) => Number(numberOf(form as number, at)) / Number(numberOf(by, at));
			}
			if (kind === "#") return (at) => jsonNumber(numberOf(form as number, at));
			return (at) => textOf(Number(place), at);
		}
		return (at) => textWith(text, at);
	};
	const ofList = (list: unknown[], depth: number): Make | null => {
		if (list.length === 3 && list[0] === "let" && (list[1] as string) in own)
			return (at) => ["let", list[1], jsonNumber(at.letters[list[1] as string]!)];
		const makes = list.map((x) => of(x, depth));
		if (!makes.some(Boolean)) return null;
		return (at) => {
			const made = makes.map((make, i) => (make ? make(at) : list[i]));
			if (!made.includes(OMITTED)) return made;
			const kept = made.filter((x) => x !== OMITTED);
			return kept.length === 2 ? kept[1] : kept;
		};
	};
	const ofRuns = (runs: [unknown, unknown][], depth: number): Make => {
		const makes = runs.map((run) => run.map((x) => of(x, depth)));
		for (const [, count] of makes)
			if (count)
				checks.push((at) => {
					if (Number(count(at)) < 0) throw new RangeError("a negative number of parts");
				});
		return (at) =>
			runs.flatMap(([item, times], i) => {
				const [make, count] = makes[i]!;
				const made = make ? make(at) : item;
				return Array<unknown>(Number(count ? count(at) : times)).fill(made);
			});
	};
	const ofNumber = (text: unknown): ((at: Instance) => number) => {
		const make = ofText(text as string)!;
		return (at) => Number(make(at));
	};
	const ofArranged = ([first, repeated, last, number, inRuns]: ArrangedData): Make => {
		const count = ofNumber(number);
		checks.push((at) => {
			if (count(at) < first.length + 2 * repeated.length + last.length)
				throw new RangeError("its pattern of layers does not fit twice in so few");
		});
		return (at) => {
			const made = arranged(first, repeated, last, count(at));
			return inRuns ? runsOf(made) : made;
		};
	};
	const ofRanges = ([members, number]: [string, string]): Make => {
		const count = ofNumber(number);
		return (at) => rangesOf(members, count(at));
	};
	const ofEither = ([choice, same, other]: [string, unknown, unknown], depth: number): Make => {
		const [isSame, ofSame, ofOther] = [ofText(choice)!, of(same, depth), of(other, depth)];
		return (at) => (isSame(at) ? (ofSame ? ofSame(at) : same) : ofOther ? ofOther(at) : other);
	};
	const ofObject = (x: Record<string, unknown>, depth: number): Make | null => {
		if (`${MARK}=` in x) return ofEither(x[`${MARK}=`] as [string, unknown, unknown], depth);
		if (`${MARK}~` in x) return ofArranged(x[`${MARK}~`] as ArrangedData);
		if (`${MARK}-` in x) return ofRanges(x[`${MARK}-`] as [string, string]);
		if (MARK in x) return ofRuns(x[MARK] as [unknown, unknown][], depth);
		const entries = Object.entries(x).map(([name, y]) => [name, y, of(y, depth + 1)] as const);
		if (!entries.some((entry) => entry[2])) return null;
		if (depth <= LAZY_DEPTH)
			return (at) =>
				lazily(
					Object.fromEntries(
						entries.map(([name, y, make]) => [name, make ? () => make(at) : () => y]),
					),
				);
		return (at) => {
			const made: Record<string, unknown> = {};
			for (const [name, y, make] of entries) made[name] = make ? make(at) : y;
			return made;
		};
	};
	const of = (x: unknown, depth: number): Make | null =>
		typeof x === "string"
			? ofText(x)
			: Array.isArray(x)
				? ofList(x, depth)
				: x && typeof x === "object"
					? ofObject(x as Record<string, unknown>, depth)
					: null;

	const make = ofObject(data, 1);
	for (const form of used)
		if (mayDivideByZero(forms[form]!)) checks.push((at) => numberOf(form, at));
	return (letters: Letters) => {
		const at = { letters, numbers: [], texts: [] };
		for (const check of checks) check(at);
		return (make ? make(at) : data) as ModelData;
	};
}

const compiled = new WeakMap<Template, (letters: Letters) => ModelData>();

export const lettersFrom = (texts: Record<string, string>): Letters =>
	Object.fromEntries(Object.entries(texts).map(([letter, n]) => [letter, BigInt(n)]));

export const ownLetters = (template: Template): Letters => lettersFrom(template.own);

const variants = new WeakMap<object, Template>();

/** The template of a variant, without what is searched for; null where the model has none. */
export function variantOf(template: Template, name: Variant): Template | null {
	const change = template.variants[name];
	if (!change) return null;
	let made = variants.get(change);
	if (!made)
		variants.set(change, (made = withoutSearched(changed(template, change) as Template)));
	return made;
}

const originals = new WeakMap<Template, ModelData>();

/**
 * The data of a model at other values of its letters; those that are not given are its own. What
 * does not follow from the letters is left out; a letter that the model does not have is an error.
 */
export function instantiate(template: Template, letters: Letters = {}): ModelData {
	let make = compiled.get(template);
	if (!make) compiled.set(template, (make = compile(template)));
	const own = ownLetters(template);
	let original = originals.get(template);
	if (!original) originals.set(template, (original = make(own)));
	const changed = Object.keys(letters).filter((x) => letters[x] !== own[x]);
	const unknown = changed.find((x) => !(x in own) || template.fixed.includes(x));
	if (unknown) throw new Error(`the data do not follow the letter ${unknown}`);
	return changed.length
		? followed(make({ ...own, ...letters }), original, template.blocks)
		: original;
}
