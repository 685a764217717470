// The Design view's arithmetic: dimensions in the address, and a family's counts and constraints as
// expressions of them.
import type { Expression } from "./expressions";
import { value } from "./expressions";
import type { ModelData, PageData } from "./data";
import { grouped } from "./format";
import { placeOfPart } from "./model_parts";
import { isSameJson } from "./files/strict_json";
import { parseWhole } from "./settings";

export interface DesignLetter {
	letter: string;
	key: string;
	says: string;
	value: string;
	/** The value of a config without the key, as an expression; null where the key is required. */
	absent: { form: Expression | null };
}

export interface Design {
	type: string;
	/** None where the total has no closed form in them. */
	letters: DesignLetter[];
	fixed: string[];
	defaults: { key: string; text: string }[];
	neutral: string[];
	/** Whether the head is tied; null where that changes no weight. */
	tied: boolean | null;
	totals: {
		tied: boolean | null;
		/** None where all parameters are active. */
		active: { form: Expression | null };
		/** The parts of the model, layers of a kind together, with the groups of one. */
		bars: {
			isLayers: boolean;
			times: { form: Expression };
			groups: { name: string; form: Expression }[];
		}[];
	}[];
	/**
	 * Bytes of the cache of T tokens in 16 bits; null where the forward pass is not known. Keys that
	 * change no weight decide it: windows, which have a letter and a value without the key (empty:
	 * not known), and others, with their values.
	 */
	cache: {
		form: Expression | null;
		windows?: [key: string, letter: string, usual: string][];
		keys?: [key: string, texts: string[]][];
	};
	/** What else is on a GPU: activations, and what tensor parallelism splits. */
	sizing?: {
		peak: { form: Expression };
		split: string[];
		divided: { form: Expression }[];
		/** Whether a GPU has all of the model: what is split is not known. */
		whole: boolean;
	} | null;
	/** The key of the context, for a config of the family. */
	context: string;
	rules: { form: Expression; most: { form: Expression }; says: string }[];
	config: { key: string; form: Expression | null; text: string; tied: boolean }[];
}

export type Counts = Design["totals"][number];

const times = (n: Expression, x: Expression): Expression => (n === 1 ? x : ["*", n, x]);
const sumOf = (parts: Expression[]): Expression =>
	parts.length === 1 ? parts[0]! : ["+", ...parts];

/** The total: the parts of the model, each as often as it occurs. */
export const totalForm = ({ bars }: Counts): Expression =>
	sumOf(bars.map((x) => times(x.times.form, sumOf(x.groups.map((y) => y.form)))));

/** The groups of weights of the whole model. */
export function groupForms({ bars }: Counts): { name: string; form: Expression }[] {
	const parts = bars.flatMap((x) =>
		x.groups.map(({ name, form }) => ({ name, form: times(x.times.form, form) })),
	);
	return [...Map.groupBy(parts, (x) => x.name)]
		.map(([name, list]) => ({ name, form: sumOf(list.map((x) => x.form)) }))
		.toSorted((a, b) => placeOfPart(a.name) - placeOfPart(b.name));
}

export const designOf = (model: ModelData) => model.design as Design;

/** Letters that are changed by one. */
const NUMBERS = "LHKEkS";
const MAX_DIM = 2n ** 32n - 1n;

/** The steps of a slider, which keep the powers of two in a number, and where it ends. */
export function sliderOf({ letter, value: own }: DesignLetter): { step: bigint; most: bigint } {
	const n = BigInt(own);
	const [power, usual] = [n & -n, n >= 512n ? 128n : 8n];
	const step = NUMBERS.includes(letter) ? 1n : power < usual ? power : usual;
	const most = ((n < 4n ? 16n : 4n * n) / step) * step;
	return { step, most: most < MAX_DIM ? most : MAX_DIM };
}

/** A model whose dimensions can be changed: the page's, or that of a family whose forms it has. */
export interface DesignedModel {
	/** Its value of the setting `like`. */
	like: string;
	name: string;
	design: Design;
}

/**
 * The forms of all families as they are stored: each expression once, in which a number is how far
 * back another one stands; like forms together, with the place of each.
 */
export interface PackedForms {
	pool: [string, ...(string | number)[]][];
	order: number[];
	forms: unknown[];
	/** The keys that a family reads and no form has. */
	others: string[];
}

/** The keys that a design has. */
export const keysOf = ({ letters, config, defaults, neutral, cache }: Design): string[] => [
	...[...letters, ...config, ...defaults].map((x) => x.key),
	...neutral,
	...[...(cache.windows ?? []), ...(cache.keys ?? [])].map((x) => x[0]),
];

const unpacked = new WeakMap<PackedForms, DesignedModel[]>();

export function unpackForms(packed: PackedForms): DesignedModel[] {
	const found = unpacked.get(packed);
	if (found) return found;
	const nodes: Expression[] = [];
	for (const [name, ...parts] of packed.pool)
		nodes.push([name, ...parts.map((x) => (typeof x === "number" ? nodes.at(-x)! : x))]);
	const read = (x: unknown, key = ""): unknown => {
		if (key === "form") return typeof x === "number" ? nodes[x] : x;
		if (Array.isArray(x)) return x.map((y) => read(y));
		if (typeof x !== "object" || x === null) return x;
		return Object.fromEntries(Object.entries(x).map(([name, y]) => [name, read(y, name)]));
	};
	const models: DesignedModel[] = [];
	packed.forms.forEach((x, i) => (models[packed.order[i]!] = read(x) as DesignedModel));
	unpacked.set(packed, models);
	return models;
}

export const designedModels = (data: PageData): DesignedModel[] => [
	...data.models.map((x, i) => ({ like: "ab"[i]!, name: x.name, design: designOf(x) })),
	...(data.known ? unpackForms(data.known) : []),
];

export const designedModel = (data: PageData, like: string): DesignedModel => {
	const known = designedModels(data);
	return known.find((x) => x.like === like) ?? known[0]!;
};

/** Dimensions by letter, and whether the head is tied. */
export interface Dimensions {
	values: Record<string, bigint>;
	tied: boolean | null;
}

const COUNT =
	/^[ \t]*(\d{1,3}(?:[,_]\d{3})+|\d{1,30})(?:\.(\d{1,20}))?(?:[eE]\+?(\d{1,2}))?[ \t]*([kmbgtKMBGT]?)[ \t]*$/;
const POWERS: Record<string, number> = { "": 0, k: 3, m: 6, b: 9, g: 9, t: 12 };

/** A parameter count such as 405B; null if it is not one. */
export function parseCount(text: string): bigint | null {
	const match = COUNT.exec(text);
	if (!match) return null;
	const [, digits = "", fraction = "", exponent = "0", unit = ""] = match;
	const n = BigInt(digits.replace(/[,_]/g, "") + fraction);
	const power = BigInt(Number(exponent) + POWERS[unit.toLowerCase()]! - fraction.length);
	if (n === 0n) return null;
	if (power >= 0n) return n * 10n ** power;
	return n % 10n ** -power === 0n ? n / 10n ** -power : null;
}

/** The relative error in parts per million, rounded half to even to one decimal. */
export function formatPpm(total: bigint, target: bigint): string {
	const n = (total - target) * 10_000_000n;
	const [q, r] = [(n < 0n ? -n : n) / target, (n < 0n ? -n : n) % target];
	const tenths = q + (2n * r > target || (2n * r === target && q % 2n === 1n) ? 1n : 0n);
	const sign = tenths === 0n ? "" : n < 0n ? "−" : "+";
	return `${sign}${grouped(tenths / 10n)}.${tenths % 10n} ppm`;
}

export function decodeSizes(design: Design, text: string): Dimensions {
	const entries = new Map([...text.matchAll(/([A-Za-z]+)(\d+)/g)].map((x) => [x[1]!, x[2]!]));
	const values = Object.fromEntries(
		design.letters.map((x) => [
			x.letter,
			parseWhole(entries.get(x.letter) ?? "") ?? BigInt(x.value),
		]),
	);
	return {
		values,
		tied:
			design.tied === null
				? null
				: entries.has("tied")
					? entries.get("tied") === "1"
					: design.tied,
	};
}

export const encodeSizes = ({ values, tied }: Dimensions): string =>
	[
		...Object.entries(values).map(([letter, n]) => `${letter}${n}`),
		...(tied === null ? [] : [`tied${Number(tied)}`]),
	].join(".");

/**
 * The counts at some dimensions, the constraints that they break, and the config; `opened` has the
 * other keys of a config that was opened.
 */
export function evaluateDesign(
	design: Design,
	{ values, tied }: Dimensions,
	opened?: ReadonlyMap<string, string>,
) {
	const kept = opened ?? new Map<string, string>();
	const counts = design.totals.find((x) => x.tied === tied)!;
	const broken = design.rules
		.filter((x) => value(x.form, values) > value(x.most.form, values))
		.map((x) => x.says);
	const valueOf = (x: Design["config"][number]) =>
		x.tied
			? String(tied)
			: x.form === null
				? (kept.get(x.key) ?? x.text)
				: String(value(x.form, values));
	const own = new Set(design.config.map((x) => x.key));
	// keys that change no weight are those of the opened config, where there is one
	const isKept = (x: Design["config"][number]) =>
		!opened || x.form !== null || x.tied || kept.has(x.key) || !design.neutral.includes(x.key);
	// a size that the published config leaves to others is left to them while it follows them
	const isGiven = design.config.some((x) => x.form !== null && x.text);
	const follows = (x: Design["config"][number]) => {
		const absent = design.letters.find((y) => y.key === x.key)?.absent.form ?? null;
		return (
			isGiven &&
			!x.text &&
			x.form !== null &&
			absent !== null &&
			value(x.form, values) === value(absent, values)
		);
	};
	const lines = [
		...design.config
			.filter((x) => isKept(x) && !follows(x))
			.map((x) => [x.key, valueOf(x)] as const),
		...[...kept].filter((x) => !own.has(x[0])),
	];
	const config = `{\n${lines.map(([key, text]) => `  ${JSON.stringify(key)}: ${text}`).join(",\n")}\n}\n`;
	const form = totalForm(counts);
	const active = counts.active.form ?? form;
	const groups = groupForms(counts).map((x) => ({ ...x, n: value(x.form, values) }));
	const bars = counts.bars.map((x) => ({
		isLayers: x.isLayers,
		times: value(x.times.form, values),
		groups: x.groups.map((y) => ({ name: y.name, n: value(y.form, values) })),
	}));
	return {
		form,
		total: value(form, values),
		active,
		live: value(active, values),
		groups,
		bars,
		broken,
		config,
		cache: cacheOf(design, values, opened),
	};
}

/** Stands for a window that a config does not have, as in web/forms/cache_form.py. */
const NO_WINDOW = String(2n ** 62n);
/** Before the word that all entries of a list of layers are. */
const ALL = "*";

export interface Cache {
	/** Null where the forward pass is not known, or a key decides it in another way. */
	form: Expression | null;
	windows: Record<string, bigint>;
	/** The keys that the form does not know with these values. */
	unknown: string[];
}

/** The cache under the other keys of a config; of the model's own without one. */
export function cacheOf(
	{ cache, config }: Design,
	values: Dimensions["values"],
	entries?: ReadonlyMap<string, string>,
): Cache {
	const textOf = (key: string) =>
		entries ? entries.get(key) : config.find((x) => x.key === key)?.text || undefined;
	const windows: Record<string, bigint> = {};
	const unknown: string[] = [];
	for (const [key, letter, usual] of cache.windows ?? []) {
		const text = textOf(key) ?? usual;
		const n = text === "null" ? NO_WINDOW : text;
		if (/^[1-9]\d{0,18}$/.test(n)) windows[letter] = BigInt(n);
		else unknown.push(key);
	}
	if (entries)
		for (const [key, texts] of cache.keys ?? [])
			if (!texts.some((x) => isKnown(entries.get(key), x, values.L ?? 0n))) unknown.push(key);
	return { form: unknown.length ? null : cache.form, windows, unknown };
}

/** The windows of a cache by their keys; a window that a config does not have is none. */
export const windowsOf = (
	{ cache }: Design,
	windows: Cache["windows"],
): [key: string, tokens: bigint][] =>
	(cache.windows ?? []).flatMap(([key, letter]): [string, bigint][] => {
		const n = windows[letter];
		return n === undefined || String(n) === NO_WINDOW ? [] : [[key, n]];
	});

const isKnown = (found: string | undefined, text: string, layers: bigint): boolean =>
	text.startsWith(ALL)
		? found !== undefined && isListOf(found, text.slice(1), layers)
		: isSameValue(found, text);

/** Whether JSON is a list of as many words that are all this one; a list has more letters than words. */
function isListOf(text: string, word: string, layers: bigint): boolean {
	return (
		layers < text.length &&
		isSameJson(text, JSON.stringify(Array<string>(Number(layers)).fill(word)))
	);
}

/** Whether a key has a value, given as JSON, or is absent as it is in the form, which means another. */
const isSameValue = (found: string | undefined, text: string): boolean =>
	found === undefined || text === "" ? (found ?? "") === text : isSameJson(found, text);
