// Reading a config.json in the page: its dimensions open the Design view, and keys that change no
// weight are kept.
import { data, type PageData } from "../data";
import {
	designedModels,
	encodeSizes,
	keysOf,
	type Design,
	type Dimensions,
	type PackedForms,
} from "../design";
import { value } from "../expressions";
import { MAX_KEYS } from "../settings";
import { refuseOther, type FormatData } from "./headers";
import { configOfParams, isParams } from "./params";
import { shellWord } from "./shell_word";
import {
	canonicalJson,
	FileError,
	fileError,
	isSameJson,
	parseStrictJson,
	refuse,
	refuseIf,
	visible,
	type Json,
} from "./strict_json";

const MAX_CONFIG_BYTES = 32 * 2 ** 20;
const MAX_CONFIG_VALUES = 2 ** 19;
const MAX_LAYERS = 100_000n;
/** More types of models are not listed in a message. */
const MAX_TYPES = 8;
/** More problems are not collected. */
const MAX_PROBLEMS = 20;
const TIED = "tie_word_embeddings";

type Config = Map<string, Json>;

/** A config as a page opens it: the model with its form, and its dimensions. */
export interface OpenedConfig {
	like: string;
	sizes: string;
}

/**
 * The keys of the last opened config that change no weight, by the model whose dimensions it has.
 */
export const keptKeys: {
	like: string;
	name: string;
	/** Its dimensions, as the address has them. */
	sizes: string;
	entries: ReadonlyMap<string, string>;
} = { like: "", name: "", sizes: "", entries: new Map() };

const keeping = new Set<() => void>();
/** Calls back when other keys are kept, until the returned function is called. */
export function onKeptKeys(act: () => void): () => void {
	keeping.add(act);
	return () => void keeping.delete(act);
}

function keep(kept: Partial<typeof keptKeys>): void {
	Object.assign(keptKeys, kept);
	keeping.forEach((act) => act());
}

export const forgetKeptKeys = (): void =>
	keep({ like: "", name: "", entries: new Map<string, string>() });

/** Keeps the keys of a config that is typed, of a file or of none. */
export const keepTyped = (like: string, sizes: string, entries: ReadonlyMap<string, string>) =>
	keep({ like, sizes, entries });

export const isConfig = (file: File): boolean => /\.json$/i.test(file.name) && !isIndex(file);
/** An index, also where a browser has numbered a second download. */
export const isIndex = (file: File): boolean => /\.index( ?\(\d+\))?\.json$/i.test(file.name);

/** JSON as it is written in a config, whole numbers with all digits. */
function jsonText(x: Json, indent = "  "): string {
	const inner = `${indent}  `;
	if (x instanceof Map)
		return x.size
			? `{\n${[...x].map(([key, y]) => `${inner}${quotedJson(key)}: ${jsonText(y, inner)}`).join(",\n")}\n${indent}}`
			: "{}";
	if (Array.isArray(x))
		return x.length
			? `[\n${x.map((y) => inner + jsonText(y, inner)).join(",\n")}\n${indent}]`
			: "[]";
	return typeof x === "string" ? quotedJson(x) : String(x);
}

const quotedJson = (text: string) => visible(JSON.stringify(text));

const isCausalArchitecture = (x: Json | undefined, headed: string[]) =>
	x === undefined ||
	(Array.isArray(x) &&
		typeof x[0] === "string" &&
		headed.some((end) => (x[0] as string).endsWith(end)));

/** Keys of other things than the numbers and pictures of a page. */
const UNSHOWN = /_token_id$|^(architectures|use_cache|transformers_version|initializer_range)$/;
/** Values of a key that switch nothing on. */
const OFF = /^(null|false|0|0\.0|"")$/;

let readKeys: ReadonlySet<string> | null = null;

/** The keys that some family reads, by the forms of all families. */
export function learnKeys(known: readonly Known[], { others }: Pick<PackedForms, "others">): void {
	const { nothing } = data.files as FormatData;
	const named = known.flatMap((x) => keysOf(x.design));
	readKeys = new Set([...named, ...others, ...nothing, "architectures", "model_type"]);
}

/** Whether no family reads a key, which has one value: the library ignores it by name. */
function isUnread(key: string, isPlain: boolean): boolean {
	if (!readKeys && data.known) learnKeys(designedModels(data), data.known);
	return isPlain && readKeys !== null && !readKeys.has(key);
}

/** Those of the kept keys that no family reads. */
export const unreadKeys = (entries: ReadonlyMap<string, string>): string[] =>
	[...entries].filter(([key, text]) => isUnread(key, !/^[[{]/.test(text))).map(([key]) => key);

const isPlainJson = (x: Json | undefined) => !Array.isArray(x) && !(x instanceof Map);

/**
 * Those keys of a config that change no weight in which it differs from the model of the page, whose
 * own values the page keeps.
 */
export const keysNotFollowed = (
	entries: ReadonlyMap<string, string>,
	design: Design,
): [key: string, text: string][] => {
	const own = new Map(design.config.map((x) => [x.key, x.text]));
	const neutral = new Set(design.neutral);
	return [...entries].filter(([key, text]) => {
		const known = own.get(key);
		return (
			!UNSHOWN.test(key) &&
			(known
				? !isSameJson(known, text)
				: neutral.has(key)
					? !OFF.test(text)
					: isUnread(key, !/^[[{]/.test(text)))
		);
	});
};

/** The key of the address that lists what a config leaves out of the design's own keys. */
const WITHOUT = "without";
/** Characters that are left for the keys whose values are too long. */
const ROOM = 500;
/** In the place of a value that is too long for the address; no key has it. */
const TOO_LONG = '"…"';

/** Those of the keys that decide what a page shows of a config, the first to be in the address. */
const decidingKeys = ({ cache, context }: Design): Set<string> =>
	new Set([
		...(cache.windows ?? []).map((x) => x[0]),
		...(cache.keys ?? []).map((x) => x[0]),
		context,
	]);

/**
 * What the keys of a config that change no weight are, where they differ from the design's own, as a
 * text of the address: those that decide what a page shows, others as far as there is room.
 */
export function encodeKeys(entries: ReadonlyMap<string, string>, design: Design): string {
	const own = new Map(design.config.map((x) => [x.key, x.text]));
	const deciding = decidingKeys(design);
	const differing = [...entries].filter(([key, text]) => {
		const known = own.get(key);
		return known ? !isSameJson(known, text) : deciding.has(key) || !OFF.test(text);
	});
	const left = [...ownEntries(design).keys()].filter(
		(key) => design.neutral.includes(key) && !UNSHOWN.test(key) && !entries.has(key),
	);
	let text = left.length ? `"${WITHOUT}":${JSON.stringify(left)}` : "";
	const order = ([key]: [string, string]) => (deciding.has(key) ? 0 : UNSHOWN.test(key) ? 2 : 1);
	for (const [key, value] of differing.toSorted((a, b) => order(a) - order(b))) {
		const written = (x: string) => `${text}${text && ","}${JSON.stringify(key)}:${x}`;
		const longer = written(value.replace(/\n\s*/g, ""));
		if (longer.length + ROOM <= MAX_KEYS) text = longer;
		else if (deciding.has(key)) text = written(TOO_LONG);
	}
	return text && `{${text}}`;
}

/** The texts of a design's own keys that are no dimensions. */
export const ownEntries = ({ config }: Design): Map<string, string> =>
	new Map(config.filter((x) => x.form === null && !x.tied && x.text).map((x) => [x.key, x.text]));

/** The keys of a text of the address, which may say anything, with the design's own other ones. */
function decodeKeys(
	text: string,
	design: Design,
	{ nothing }: FormatData,
): Map<string, string> | undefined {
	if (!text) return undefined;
	try {
		const found = parseStrictJson(new TextEncoder().encode(text), MAX_CONFIG_VALUES, true);
		if (!(found instanceof Map)) return undefined;
		const entries = new Map([...ownEntries(design), ...neutralKeys(found, design, nothing)]);
		const left = found.get(WITHOUT);
		for (const key of Array.isArray(left) ? left : [])
			if (design.neutral.includes(key as string)) entries.delete(key as string);
		return entries;
	} catch (error) {
		if (!(error instanceof FileError)) throw error;
		return undefined;
	}
}

/**
 * The other keys of the config at an address, and the name of its file where it is still known:
 * after a reload, or Back, the address alone has them.
 */
export function keysAt(
	like: string,
	design: Design,
	keys: string,
	files: FormatData,
): { entries: ReadonlyMap<string, string> | undefined; name: string } {
	const isKept = keptKeys.like === like && encodeKeys(keptKeys.entries, design) === keys;
	if (isKept) return { entries: keptKeys.entries, name: keptKeys.name };
	return { entries: decodeKeys(keys, design, files), name: "" };
}

/** The keys that change no weight, with the text of their values. */
export function neutralKeys(
	config: Config,
	design: Design,
	nothing: string[],
): Map<string, string> {
	const neutral = new Set([...nothing, ...design.neutral]);
	return new Map(
		[...config]
			.filter(
				([key, x]) =>
					neutral.has(key) || key === "architectures" || isUnread(key, isPlainJson(x)),
			)
			.map(([key, x]) => [key, jsonText(x)]),
	);
}

/** The dimensions of a config, and what of it differs from what the design counts. */
function readDimensions(
	config: Config,
	design: Design,
	{ nothing, headed }: FormatData,
	name: string,
): { dimensions: Dimensions; problems: FileError[] } {
	const keys = new Set(design.letters.map((x) => x.key));
	const neutral = new Set([...nothing, ...design.neutral]);
	const values: Record<string, bigint> = {};
	const problems: FileError[] = [];
	const problem = (why: string, key: string, ...more: unknown[]) => {
		if (problems.length >= MAX_PROBLEMS) return;
		const error = fileError(why, key.slice(0, 80), ...more);
		error.place = key;
		problems.push(error);
	};
	for (const x of design.letters) {
		const n = config.get(x.key);
		const most = x.letter === "L" ? MAX_LAYERS : 2n ** 32n - 1n;
		if (typeof n === "bigint" && n > most) problem("large", x.key, n, most);
		else if (typeof n === "bigint" && n > 0n) values[x.letter] = n;
		else if ((n ?? null) !== null) problem("whole", x.key);
		else if (n === null || !x.absent.form) problem("given", x.key);
	}
	const ownTying = design.defaults.find((x) => x.key === TIED);
	const tied =
		config.has(TIED) || !ownTying ? config.get(TIED) : (JSON.parse(ownTying.text) as boolean);
	if (design.tied !== null && typeof tied !== "boolean") problem("given", TIED);
	const own = [...design.defaults, ...design.config.filter((x) => x.form === null && !x.tied)];
	const ownValues = new Map(
		own.map((x) => [
			x.key,
			parseStrictJson(new TextEncoder().encode(x.text), MAX_CONFIG_VALUES, true),
		]),
	);
	const defaultKeys = new Set(design.defaults.map((x) => x.key));
	const derived = new Map(
		design.config
			.filter((x) => x.form !== null && !keys.has(x.key))
			.map((x) => [x.key, x.form!] as const),
	);
	const all = problems.length ? null : withDefaults(values, design);
	for (const key of new Set([...config.keys(), ...ownValues.keys()])) {
		if (
			key === "architectures" &&
			[config, ownValues].every((x) => isCausalArchitecture(x.get(key), headed))
		)
			continue;
		if (
			keys.has(key) ||
			(derived.has(key) && (config.get(key) ?? null) === null) ||
			(key === TIED && design.tied !== null) ||
			neutral.has(key) ||
			key.startsWith("_") ||
			isUnread(key, isPlainJson(config.get(key)))
		)
			continue;
		const isEqual = derived.has(key)
			? !all || config.get(key) === value(derived.get(key)!, all)
			: config.has(key)
				? ownValues.has(key) &&
					canonicalJson(config.get(key)!) === canonicalJson(ownValues.get(key)!)
				: defaultKeys.has(key);
		if (!isEqual) problem("other", key, name);
	}
	return {
		dimensions: {
			values: all ?? values,
			tied: design.tied === null ? null : (tied as boolean),
		},
		problems,
	};
}

/** Computes the dimensions that the config omits from those that it has. */
function withDefaults(values: Dimensions["values"], design: Design): Dimensions["values"] {
	const all = { ...values };
	for (const x of design.letters) all[x.letter] ??= value(x.absent.form!, all);
	return all;
}

/** A model whose closed forms are known. */
export interface Known {
	name: string;
	design: Design;
}

const firstOf = (config: Config, keys: string[]) =>
	keys.map((key) => config.get(key)).find((x) => typeof x === "bigint");

/**
 * What a config says that it describes: `model_type "qwen2" (Qwen2ForCausalLM, 28 layers, width
 * 3584)`.
 */
function described(config: Config): string {
	const [type, classes] = [config.get("model_type"), config.get("architectures")];
	const layers = firstOf(config, ["num_hidden_layers", "n_layer", "n_layers", "num_layers"]);
	const width = firstOf(config, ["hidden_size", "n_embd", "d_model", "dim"]);
	const name =
		Array.isArray(classes) && typeof classes[0] === "string" ? classes[0].slice(0, 60) : "";
	const details = [
		name,
		layers === undefined ? "" : `${String(layers).slice(0, 40)} layers`,
		width === undefined ? "" : `width ${String(width).slice(0, 40)}`,
	].filter(Boolean);
	return `${typeof type === "string" ? `model_type ${JSON.stringify(type.slice(0, 60))}` : "a model"}${details.length ? ` (${details.join(", ")})` : ""}`;
}

/** Refuses JSON without a model type, by what it is. */
function refuseOtherJson(config: Config, files: FormatData): void {
	const isNested = [...config.values()].some((x) => x instanceof Map && x.has("model_type"));
	if (config.has("model_type") || isNested || isParams(config)) return;
	const found = files.objects.find(([, keys]) => keys.every((key) => config.has(key)));
	refuse(found ? "other json" : "no type", found?.[0]);
}

export async function parseConfig(file: File, files: FormatData): Promise<Config> {
	refuseIf(file.size > MAX_CONFIG_BYTES, "config");
	await refuseOther(file, files, "JSON");
	return configOfBytes(new Uint8Array(await file.arrayBuffer()), files);
}

export const parseConfigText = (text: string, files: FormatData): Config =>
	configOfBytes(new TextEncoder().encode(text), files);

function configOfBytes(bytes: Uint8Array, files: FormatData): Config {
	const config = parseStrictJson(bytes, MAX_CONFIG_VALUES, true);
	if (!(config instanceof Map)) return refuse("object");
	refuseOtherJson(config, files);
	return isParams(config) ? configOfParams(config, files.params) : config;
}

/**
 * The model among those that are known whose closed forms count a config, and the config's
 * dimensions; any other config is refused.
 */
export function matchConfig(
	config: Config,
	known: readonly Known[],
	files: FormatData,
): { index: number; dimensions: Dimensions } {
	const type = config.get("model_type");
	let why: FileError | null = null;
	for (const [index, { design, name }] of known.entries()) {
		if (!design.letters.length || design.type !== type) continue;
		const { dimensions, problems } = readDimensions(config, design, files, name);
		if (!problems.length) return { index, dimensions };
		why ??= Object.assign(problems[0]!, { others: problems.slice(1) });
	}
	if (why) throw why;
	const types = [...new Set(known.map((x) => x.design.type).filter(Boolean))];
	const error = fileError(
		"forms",
		described(config),
		types.length > MAX_TYPES ? `${types.length} other types` : types.join(", "),
	);
	if (config.has("model_type")) error.place = "model_type";
	throw error;
}

/** Adds the commands that open what a page cannot. */
export function withCommands(error: unknown, file: File): unknown {
	const name = shellWord(file.name);
	return error instanceof FileError
		? new FileError(
				`${error.message}. The command line knows more families, and says whether it knows ` +
					`this one: \`llamath count ${name}\`, and for a page \`llamath export ${name} ` +
					"-o page.html`",
			)
		: error;
}

/** Reads a config; what this page cannot compute is refused with the commands that can. */
export async function readConfig(file: File, data: PageData): Promise<OpenedConfig> {
	const config = await parseConfig(file, data.files as FormatData);
	try {
		return openedAs(config, file.name, data);
	} catch (error) {
		throw withCommands(error, file);
	}
}

/** A config as the model of the page that counts it; its other keys are kept. */
export function openedAs(config: Config, name: string, data: PageData): OpenedConfig {
	const files = data.files as FormatData;
	const known = designedModels(data);
	const { index, dimensions } = matchConfig(config, known, files);
	const { like, design } = known[index]!;
	const sizes = encodeSizes(dimensions);
	const entries = neutralKeys(config, design, files.nothing);
	keep({ like, name, sizes, entries });
	return { like, sizes };
}

/** What an index says: the files that hold the tensors, and the total of their bytes. */
export interface OpenedIndex {
	files: { name: string; tensors: number }[];
	tensors: number;
	bytes: bigint | null;
}

export async function readIndex(file: File, data: PageData): Promise<OpenedIndex> {
	refuseIf(file.size > MAX_CONFIG_BYTES, "config");
	await refuseOther(file, data.files as FormatData, "JSON");
	const index = parseStrictJson(new Uint8Array(await file.arrayBuffer()), MAX_CONFIG_VALUES * 4);
	const map = index instanceof Map ? index.get("weight_map") : undefined;
	if (!(map instanceof Map) || [...map.values()].some((x) => typeof x !== "string"))
		return refuse("index");
	const counts = new Map<string, number>();
	for (const name of map.values())
		counts.set(name as string, (counts.get(name as string) ?? 0) + 1);
	const metadata = (index as Config).get("metadata");
	const size = metadata instanceof Map ? metadata.get("total_size") : undefined;
	return {
		files: [...counts].map(([name, tensors]) => ({ name, tensors })),
		tensors: map.size,
		bytes: typeof size === "bigint" && size >= 0n ? size : null,
	};
}
