// A model of the page as an opened config restates it by keys that are no dimensions: its context,
// its rotary positions, its activation, its dtype; src/llamath/web/forms/followed_keys.py says which.
import { data, type ModelData } from "./data";
import { parseStrictJson, type Json } from "./files/strict_json";
import { withoutSearched } from "./followed";
import { grouped } from "./format";
import type { Letters } from "./template";

type Words = Record<string, [own: string, other: string][]>;
interface Followed {
	context: string;
	window: string;
	rope: { theta: number; words: Words } | null;
	act: { key: string; own: string; words: Words } | null;
	dtypes: Record<string, string> | null;
	packed: string[];
}
interface Scaling {
	words: string;
	/** The sentence of the tour; empty if angles are not scaled. */
	tour: string;
	keys: string[];
}
interface Row {
	name: string;
	value: string;
	note: string;
	of: string[][];
}
interface Rope {
	dim: string;
	theta: string;
}
interface Named {
	name: string;
}
interface Stop {
	name: string;
	what: string;
	formula: string;
	code: [number, ...string[]][];
	example: unknown;
	questions: { mistakes: [unknown, string, says: string][] }[];
}
interface Known extends ModelData {
	followed: Followed;
	facts: {
		origin: string[];
		description: string;
		rows: Row[];
		weights: { dtype: string; name: string; bytes: string; released: boolean }[];
	};
	passes: Record<string, { name: string; steps: { does: string }[] }[]>;
	attention: {
		kinds: { rope: number | null; window: string | null; causal: boolean }[];
		ropes: Rope[];
		context: string;
	};
	plate: { pattern: string[]; kinds: { label: string }[] };
	tour: Stop[];
	sizes: {
		dtype: string;
		kv: string;
		dtypes: (Named & { title: string; bytes: string })[];
		kvs: Named[];
	};
}
type Change = (model: Known) => Known;

/** The window of a model whose window the page follows. */
export interface StatedWindow {
	key: string;
	own: bigint;
	/** Null: what the config says is no window from 2 to the context, and not followed. */
	now: bigint | null;
	/** The context, with which every layer sees all tokens. */
	most: bigint;
}
/** Keys of a config that the page follows, and what it makes of them. */
export interface Restated {
	keys: ReadonlySet<string>;
	letters: Letters;
	window: StatedWindow | null;
	apply: (model: ModelData, name: string) => ModelData;
}

/** The letters of the context and of the window, and the longest context that is followed. */
const [CONTEXT, WINDOW] = ["context", "window"];
const MAX_CONTEXT = 2n ** 32n;
/** Numbers that Python writes without an exponent. */
const [MIN_NUMBER, MAX_FACTOR, MAX_THETA] = [1e-4, 1e4, 1e10];
/** A longer value is not followed. */
const MAX_LENGTH = 1000;
/** The dtype of a config that states none. */
const UNSTATED = "bf16";
const ROPE_KEYS = ["rope_parameters", "rope_scaling", "rope_theta"];
const ORIGINAL = "original_max_position_embeddings";

const numberOf = (x: Json): number =>
	typeof x === "number" || typeof x === "bigint" ? Number(x) : NaN;
const written = (x: number, digits: number): string =>
	Number(x.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 12 });
const replaced = (text: string, pairs: Words[string]) =>
	pairs.find((x) => x[0] === text)?.[1] ?? text;
const withSteps = (model: Known, pairs: Words[string]): Known => ({
	...model,
	passes: Object.fromEntries(
		Object.entries(model.passes).map(([name, regions]) => [
			name,
			regions.map((x) => ({
				...x,
				steps: x.steps.map((y) => ({ ...y, does: replaced(y.does, pairs) })),
			})),
		]),
	),
});
const withRows = (model: Known, change: (row: Row) => Row): Known => ({
	...model,
	facts: { ...model.facts, rows: model.facts.rows.map(change) },
});

const withStops = (model: Known, change: (stop: Stop) => Stop): Known => ({
	...model,
	tour: model.tour.map(change),
});
/** Stops without code in which a function is called that is another one now. */
const withoutCode = (stop: Stop, name: string): Stop =>
	stop.code.some((x) => x.some((y) => String(y).includes(`${name}(`)))
		? { ...stop, code: [] }
		: stop;

/** What a config says that differs from the model's own; `own` and `entries` are texts by key. */
export function readRestated(
	original: ModelData,
	own: ReadonlyMap<string, string>,
	entries: ReadonlyMap<string, string>,
): Restated {
	const { followed } = original as Known;
	const keys = new Set<string>();
	const changes = new Set<Change>();
	const letters: Letters = {};
	const read = (texts: ReadonlyMap<string, string>, key: string): Json => {
		const text = texts.get(key) ?? "null";
		if (text.length > MAX_LENGTH) return "";
		return parseStrictJson(new TextEncoder().encode(text), MAX_LENGTH, true);
	};
	const differs = (key: string) => own.get(key) !== entries.get(key);
	const follow = (names: string[], change: Change | null) => {
		if (change) changes.add(change);
		if (change) for (const x of names) keys.add(x);
	};

	const context = followed.context && read(entries, followed.context);
	const { kinds, context: ownContext } = (original as Known).attention;
	const ownWindow = kinds.find((x) => x.window)?.window;
	const stated = followed.window ? read(entries, followed.window) : null;
	const asked = typeof stated === "bigint" && stated > 1n ? stated : null;
	/** Whether all windows are within a context, as those of the model are. */
	const isWithin = (n: bigint, window: bigint | null) =>
		kinds.every((x) => !x.window || (window ?? BigInt(x.window)) <= n);
	const hasContext = typeof context === "bigint" && context > 0n && context < MAX_CONTEXT;
	if (hasContext && isWithin(context, asked)) {
		letters[CONTEXT] = context;
		if (differs(followed.context)) follow([followed.context], withoutOwnPairs);
	}
	let window: StatedWindow | null = null;
	const length = BigInt(ownContext || 0);
	if (followed.window && ownWindow && isWithin(length, null)) {
		const [own, most] = [BigInt(ownWindow), letters[CONTEXT] ?? length];
		const isFollowed = differs(followed.window) ? asked && isWithin(most, asked) : true;
		const now = isFollowed ? (asked ?? own) : null;
		window = { key: followed.window, own, now, most };
		if (now) letters[WINDOW] = now;
		if (now && differs(followed.window)) follow([followed.window], withoutOwnPairs);
		if (now === most && (now !== own || most !== length)) changes.add(seeingAll);
	}
	if (followed.rope && [...ROPE_KEYS, ORIGINAL].some(differs))
		follow(
			[...ROPE_KEYS, ORIGINAL],
			ropeChange(followed.rope, (key) => read(entries, key)),
		);
	const { act, dtypes } = followed;
	if (act && differs(act.key)) {
		const name = read(entries, act.key);
		const isKnown = typeof name === "string" && Object.hasOwn(act.words, name);
		follow([act.key], isKnown ? actChange(act.words[name]!, act.own, name) : null);
	}
	const dtypeKeys = ["dtype", "torch_dtype"];
	if (dtypes && dtypeKeys.some(differs) && !followed.packed.some((x) => entries.has(x))) {
		const name = read(entries, "dtype") ?? read(entries, "torch_dtype");
		const isKnown = typeof name === "string" && Object.hasOwn(dtypes, name);
		if (isKnown) follow(dtypeKeys, dtypeChange(Object.values(dtypes), dtypes[name]!, true));
		else if (name === null)
			follow(dtypeKeys, dtypeChange(Object.values(dtypes), UNSTATED, false));
	}
	return {
		keys,
		letters,
		window,
		apply: (model, name) => {
			const made = [...changes].reduce((x, change) => change(x), model as Known);
			const facts = { ...made.facts, origin: [] };
			return name
				? {
						...withoutSearched(renamed(made, name)),
						...{ name: name.replace(/\.json$/i, ""), source: name, notes: [], facts },
					}
				: changes.size
					? withoutSearched(made)
					: model;
		},
	};
}

/** The model as what is said of wrong answers calls it. */
const renamed = (model: Known, name: string): Known =>
	withStops(model, (stop) => ({
		...stop,
		questions: stop.questions.map((x) => ({
			...x,
			mistakes: x.mistakes.map(([wrong, mistake, says]) => [
				wrong,
				mistake,
				says.replaceAll(model.name, name),
			]),
		})),
	}));

/** The pairs in the formula of decode at the full context are a number of the model's own. */
const withoutOwnPairs: Change = (model) =>
	withRows(model, (row) =>
		row.name === "Decode"
			? { ...row, of: row.of.map((x, i) => (i === 1 ? x.toSpliced(1, 1) : x)) }
			: row,
	);

/** Of a causal window as long as the context: no layer is more local than another. */
const seeingAll: Change = (model) => {
	if (!model.attention.kinds.every((x) => x.causal)) return model;
	const said = (text: string) =>
		text
			.replace(/\d+ local : \d+ global/, "all alike")
			.replace("local attention", "attention")
			.replace(/over the last [\d,]+ keys/, data.words.all_keys as string);
	const { passes, facts, plate, attention } = model;
	const stages = Object.entries(passes).map(([name, list]) => [
		name,
		list.map((x) => ({
			...x,
			name: said(x.name),
			steps: x.steps.map((y) => ({ ...y, does: said(y.does) })),
		})),
	]);
	const made = withRows(model, (row) => ({
		...row,
		note: row.name === "Window" ? `${row.note}, the whole context` : said(row.note),
	}));
	const toured = withStops(made, (stop) => {
		const isOfWindow = /window|the last/.test(stop.what);
		const all = " The window is the whole context, so that no token is outside.";
		return isOfWindow ? { ...stop, what: stop.what + all } : stop;
	});
	return {
		...toured,
		passes: Object.fromEntries(stages),
		facts: { ...made.facts, description: said(facts.description) },
		plate: {
			...plate,
			pattern: plate.pattern.map(said),
			kinds: plate.kinds.map((x) => ({ ...x, label: said(x.label) })),
		},
		attention: { ...attention, kinds: attention.kinds.map((x) => ({ ...x, window: null })) },
	};
};

function ropeChange(
	{ theta: usual, words }: NonNullable<Followed["rope"]>,
	read: (key: string) => Json,
): Change | null {
	const rope = read("rope_parameters") ?? read("rope_scaling");
	if (rope !== null && !(rope instanceof Map)) return null;
	const of = (key: string) => rope?.get(key) ?? null;
	const kind = of("rope_type") ?? of("type") ?? "default";
	const scalings = data.scalings as Record<string, Scaling>;
	if (typeof kind !== "string" || !Object.hasOwn(scalings, kind)) return null;
	const scaling = scalings[kind]!;
	const others = [...(rope ?? [])].filter(([key]) => !["rope_type", "type"].includes(key));
	if (others.some(([key]) => !scaling.keys.includes(key))) return null;
	const isSound = ([key, x]: [string, Json]) =>
		key === "truncate" ? typeof x === "boolean" : x === null || numberOf(x) > 0;
	if (!others.every(isSound)) return null;
	const theta = numberOf(of("rope_theta") ?? read("rope_theta") ?? usual);
	if (!(theta >= MIN_NUMBER && theta < MAX_THETA)) return null;
	const factor = scaling.keys.includes("factor") ? numberOf(of("factor")) : 1;
	if (!(factor >= MIN_NUMBER && factor < MAX_FACTOR)) return null;
	const trained = of(ORIGINAL) ?? read(ORIGINAL) ?? read("max_position_embeddings");
	if (kind !== "default" && typeof trained !== "bigint") return null;
	const text = (factor === 1 ? scalings.default! : scaling).words
		.replace("{theta}", written(theta, 10))
		.replace("{factor}", written(factor, 4))
		.replace("{original_context}", grouped(typeof trained === "bigint" ? trained : 0n));
	const [value, ...notes] = text.split(", ");
	return (model) => {
		const { attention } = model;
		const [first] = attention.ropes;
		const isPlain = kind === "default" && first !== undefined;
		const rows = withRows(model, (row) =>
			row.name === "Positions"
				? {
						...row,
						value: value!,
						note: [
							...row.note.split(", ").filter((x) => x.endsWith(" dimensions")),
							...notes,
						].join(", "),
					}
				: row,
		);
		const said =
			Object.values(scalings).find((x) => x.tour && isSaid(model, x.tour))?.tour ?? "";
		const toured = withStops(withSteps(rows, words[kind]!), (stop) => {
			// another function, and other numbers of lines
			const known = said === scaling.tour ? stop : { ...stop, code: [] };
			if (stop.name !== "rope") return known;
			return {
				...known,
				what: stop.what.replace(said, "") + scaling.tour,
				formula: stop.formula.replace(/θ = [\d.,]+/, `θ = ${written(theta, 10)}`),
			};
		});
		return {
			...toured,
			attention: {
				...attention,
				ropes: isPlain ? [withTheta(first, theta)] : [],
				kinds: attention.kinds.map((x) => (isPlain ? x : { ...x, rope: null })),
			},
		};
	};
}

const isSaid = (model: Known, sentence: string): boolean =>
	model.tour.some((x) => x.what.includes(sentence));

/** Positions without scaling: pair i turns by θ^(−2i / dim), in single precision as in PyTorch. */
function withTheta(rope: Rope, theta: number): Rope {
	const [dim, round] = [Number(rope.dim), Math.fround];
	const waves = Array.from({ length: Math.ceil(dim / 2) }, (_, i) => {
		const angle = round(1 / round(theta ** round((2 * i) / dim)));
		return Number(((2 * Math.PI) / angle).toPrecision(6));
	});
	return {
		...rope,
		...{ scaling: "none", theta: written(theta, 10), factor: null, original: null },
		...{ attentionFactor: 1, base: waves, used: waves },
	} as Rope;
}

/** Other texts for steps, and for the FFN in the facts. */
const actChange = (pairs: Words[string], own: string, act: string): Change => {
	const longestFirst = pairs.toSorted((a, b) => b[0].length - a[0].length);
	const inFacts = (text: string) =>
		longestFirst.reduce(
			(x, [own, other]) => (x.includes(own) ? x.replaceAll(own, other) : x),
			text,
		);
	return (model) => {
		const made = withRows(withSteps(model, pairs), (row) =>
			["FFN size", "Experts"].includes(row.name) ? { ...row, note: inFacts(row.note) } : row,
		);
		const description = inFacts(made.facts.description);
		const toured = withStops(made, (stop) => {
			const formula = stop.formula.replaceAll(`${own}(`, `${act}(`);
			if (formula === stop.formula) return withoutCode(stop, own);
			return { ...withoutCode(stop, own), formula, what: inFacts(stop.what), example: null };
		});
		return { ...toured, facts: { ...made.facts, description } };
	};
};

/** Another dtype first, before other plain ones, and whether the weights are released in it. */
const dtypeChange =
	(plain: string[], dtype: string, isReleased: boolean): Change =>
	(model) => {
		const { sizes, facts } = model;
		const found = sizes.dtypes.find((x) => x.name === dtype);
		const order = [dtype, ...plain.filter((x) => x !== dtype)];
		const placeOf = (x: Named) =>
			order.includes(x.name) ? order.indexOf(x.name) : order.length;
		const first = <T extends Named>(list: T[]): T[] =>
			list.toSorted((a, b) => placeOf(a) - placeOf(b));
		const others = facts.weights
			.filter((x) => x.dtype !== dtype && (!x.released || x.dtype === UNSTATED))
			.map((x) => ({ ...x, released: false }));
		const weights = found
			? [{ dtype, name: found.title, bytes: found.bytes, released: isReleased }, ...others]
			: others;
		return {
			...model,
			sizes: {
				...sizes,
				dtype,
				kv: dtype,
				dtypes: first(sizes.dtypes),
				kvs: first(sizes.kvs),
			},
			facts: { ...facts, weights },
		};
	};
