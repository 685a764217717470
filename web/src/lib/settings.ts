// The settings of the page and of the gallery: what each is in the address, and what in the program.

/** How a setting is written in the address. */
export interface Kind<T> {
	/** Undefined for what is not valid. */
	parse(text: string): T | undefined;
	format(value: T): string;
	/** The only valid texts, if they are few; the data of a page may have others in their place. */
	values?: readonly string[];
}

interface Setting<T> extends Kind<T> {
	initial: string;
	/** The sections that show it. */
	parts: readonly string[];
}

/** Characters of a text that a model in the page reads. */
export const MAX_TEXT = 2000;
/** Characters of the other keys of a config. */
export const MAX_KEYS = 4000;
const MAX_UINT32 = 2n ** 32n - 1n;

/** A whole number as people type it: 8192, 8,192, 8k (8,192), 128K. Null for anything else. */
export function parseWhole(text: string, max = MAX_UINT32): bigint | null {
	const match = /^([1-9]\d{0,9})(k|m)?$/i.exec(text.replaceAll(/[ ,_]/g, ""));
	if (!match) return null;
	const n =
		BigInt(match[1]!) * ({ k: 1024n, m: 1024n * 1024n }[match[2]?.toLowerCase() ?? ""] ?? 1n);
	return n <= max ? n : null;
}

const written = <T>(parse: (text: string) => T | undefined): Kind<T> => ({ parse, format: String });
const matching = (pattern: RegExp) =>
	written((text) => (text === "" || pattern.test(text) ? text : undefined));
const cut = (length: number) => written((text) => text.slice(0, length));
/** One of these; without any, one of those that the page's data have. */
const listed = <T extends string = string>(...values: T[]): Kind<T> => ({
	...written((text) => text as T),
	...(values.length && { values }),
});
const listedNumber = (...values: number[]): Kind<number> => ({
	...written(Number),
	values: values.map(String),
});

const whole = written((text) => parseWhole(text) ?? undefined);
const place = {
	parse: (text: string) =>
		/^\d{0,3}$/.test(text) ? (text === "" ? null : Number(text)) : undefined,
	format: (n: number | null) => (n === null ? "" : String(n)),
};
const index = written((text) => (/^\d{1,3}$/.test(text) ? Number(text) : undefined));
const safeWhole = written((text) => (/^\d{1,15}$/.test(text) ? Number(text) : undefined));
/** A layer by its number, or by name what is none; "" until one is chosen. */
export type LayerPlace = number | "" | "embedding" | "head" | `${Tower}${"" | `.${number}`}`;
type Tower = "vision" | "audio" | "projector" | "audio_projector";

export function parseLayer(text: string): LayerPlace | undefined {
	if (/^\d{1,7}$/.test(text)) return Number(text);
	return /^(|embedding|head|(vision|audio|(audio_)?projector)(\.\d{1,2})?)$/.test(text)
		? (text as LayerPlace)
		: undefined;
}

const words = cut(80);
const id = matching(/^[\w.~:-]{1,220}$/);

const setting = <T>(kind: Kind<T>, initial = "", parts: readonly string[] = []): Setting<T> => ({
	...kind,
	initial,
	parts,
});

export type View = "a" | "b" | "difference" | "design";
type GalleryView = "cards" | "wall" | "table" | "timeline" | "kinship" | "plot" | "compare";
export type Scheme = "path" | "hf" | "meta" | "gguf";
export type TrainingChoice =
	"precision" | "optimizer" | "zero" | "recompute" | "attention" | "kernels";
export type MapMeasure = "parameters" | "bytes" | "flops" | "cache";

/** What the axes of the gallery's plot can show. */
const PLOTTED = [
	"kv",
	"total",
	"active",
	"context",
	"flops",
	"layers",
	"width",
	"vocabulary",
	"released",
] as const;

const SIZING = ["memory", "speed", "parameters"];
const LOAD = [...SIZING, "block"];

/** The data of a page have other initial values where these depend on the model. */
export const SETTINGS = {
	view: setting(listed<View | GalleryView>()),
	section: setting(matching(/^[a-z][a-z-]{0,30}$/)),
	like: setting(listed(), "a"),
	sizes: setting(matching(/^[A-Za-z]{1,8}\d{1,10}(\.[A-Za-z]{1,8}\d{1,10}){0,31}$/), "", [
		"design",
	]),
	edit: setting(listed("", "sizes", "text")),
	// of latent attention: what multi-head attention would cache
	plain: setting(listed("", "cache")),
	// JSON: keys of the edited or opened config that change no weight
	keys: setting(cut(MAX_KEYS)),
	target: setting(matching(/^[\dkmbgte+.,_ ]{1,24}$/i), "", ["design"]),
	context: setting(whole, "1", LOAD),
	batch: setting(whole, "1", LOAD),
	dtype: setting(listed(), "", SIZING),
	kv: setting(listed(), "", SIZING),
	gpus: setting(listed(), "1", SIZING),
	mode: setting(listed("run", "train"), "run", ["memory"]),
	tp: setting(listed<string>("", "1", "2", "4", "8", "16"), "", SIZING),
	trainers: setting(listed(), "", ["memory"]),
	precision: setting(listed(), "", ["memory"]),
	optimizer: setting(listed(), "", ["memory"]),
	zero: setting(listed(), "", ["memory"]),
	recompute: setting(listed(), "", ["memory"]),
	// of training; in the gallery, the kind that is searched
	attention: setting(words, "", ["memory"]),
	kernels: setting(listed(), "", ["memory"]),
	job: setting(listed("training", "long", "serving"), "training", ["layouts"]),
	plan: setting(listedNumber(0, 1, 2), "0", ["layouts"]),
	card: setting(listed(), "", SIZING),
	gpumem: setting(whole, "24", SIZING),
	gpubw: setting(whole, "1000", SIZING),
	gpuflops: setting(whole, "150", SIZING),
	map: setting(listed<MapMeasure>("parameters", "bytes", "flops", "cache"), "parameters", [
		"parameters",
	]),
	by: setting(listed("part", "kind"), "part", ["parameters"]),
	layer: setting(written(parseLayer), "", ["plate"]),
	zoom: setting(matching(/^(model|[a-z_\d]{1,40}(\/[a-z_\d.{}]{1,80}(\/\d{1,4})?)?)$/i), "", [
		"plate",
	]),
	tour: setting(place, "", ["plate"]),
	// a link names a model and exercises; what it has in their place is said
	quiz: setting(cut(80), "", ["plate"]),
	answers: setting(matching(/^p?\d{1,3}-[^_]{1,60}(_p?\d{1,3}-[^_]{1,60}){0,400}$/), "", [
		"plate",
	]),
	kind_a: setting(place, "", ["compare"]),
	kind_b: setting(place, "", ["compare"]),
	pass: setting(listed("prompt", "next"), "prompt", ["block"]),
	shapes: setting(listed("letters", "numbers"), "numbers", ["block"]),
	names: setting(listed<Scheme>("path", "hf", "meta", "gguf"), "path", ["tensors"]),
	sort: setting(matching(/^-?[a-z_]{1,40}$/), "", ["tensors"]),
	find: setting(words, "", ["tensors"]),
	theme: setting(listed("", "light", "dark")),
	text: setting(cut(MAX_TEXT), "", ["live"]),
	// the text is a question, in the model's chat template
	chat: setting(listed("", "on"), "", ["live"]),
	written: setting(matching(/^\d{1,6}(\.\d{1,6}){0,2047}$/), "", ["live"]),
	token: setting(place, "", ["live"]),
	head: setting(index, "0", ["live"]),
	temperature: setting(listedNumber(0, 0.5, 0.8, 1, 1.5), "0", ["live"]),
	top_p: setting(listedNumber(0.5, 0.9, 0.95, 1), "1", ["live"]),
	seed: setting(safeWhole, "0", ["live"]),
	// one figure of a page, in a frame of another one
	embed: setting(cut(40)),
	// of the gallery
	kind: setting(words),
	organization: setting(words),
	license: setting(words),
	most: setting(matching(/^[\dkmbgte+.,_ ]{1,24}$/i)),
	columns: setting(matching(/^[a-z_]{1,40}(,[a-z_]{1,40}){0,60}$/)),
	with: setting(id),
	a: setting(id),
	b: setting(id),
	lines: setting(listed("organization", "family"), "organization"),
	only: setting(words),
	// millions of parameters in a square millimetre of the wall
	unit: setting(listedNumber(1000, 100, 10), "1000"),
	x: setting(listed(...PLOTTED), "released"),
	y: setting(listed(...PLOTTED), "kv"),
	differ: setting(listed("all", "only"), "all"),
};

export type SettingName = keyof typeof SETTINGS;
export type State = {
	[Name in SettingName]: (typeof SETTINGS)[Name] extends Setting<infer T> ? T : never;
};
