// What the picture of the model reads of the page's data: parts, kinds of layers, and the steps of
// a pass.
import { type Digits, type ModelData } from "../../lib/data";
import { value, type Expression, type Variables } from "../../lib/expressions";
import { type State } from "../../lib/state";

export interface GroupSize {
	group: string;
	parameters: Digits;
	active: Digits;
}

export interface Part {
	name: string;
	layers: Digits;
	tied: string;
	groups: GroupSize[];
	parameters: Digits;
	active: Digits;
}

export interface LayerWeight {
	path: string;
	group: string;
	shape: Digits[];
	copies: Digits;
	/** Axis (0 outputs, 1 inputs), number and name of the parts that are never split. */
	split: [axis: number, parts: number, unit: string] | null;
}

export interface LayerKind {
	label: string;
	/** Index of the stage that shows it. */
	stage: number | null;
	sizes: { groups: GroupSize[]; parameters: Digits; active: Digits };
	weights: LayerWeight[];
}

export interface PlateData {
	pattern: string[];
	before: Part[];
	after: Part[];
	towers: Part[];
	kinds: LayerKind[];
	/** Consecutive layers of one kind: [kind, number]. */
	order: [kind: number, layers: number][];
}

export interface WeightUse {
	path: string;
	dims: string[];
	numbers: string[];
	shape: Digits[];
	copies: Digits;
	live: Digits;
	tied: string | null;
	parameters: Digits;
	/** Of a table, whose rows are looked up. */
	lookup: boolean;
}

export interface Step {
	name: string;
	kind: string;
	does: string;
	takes: string[];
	shape: Expression[];
	uses: WeightUse[];
	parameters: Digits;
	flops: Expression;
	each: Expression[];
	keeps: Expression;
	color: string;
}

export type HeadGroups =
	| { kind: "heads"; many: string; n: Expression; few: string; k: Expression; says: string }
	| { kind: "experts"; n: Expression; k: Expression; shared: boolean; groups: number };

export interface Stage {
	name: string;
	layers: boolean;
	ranges: [number, number, number][];
	times: Digits;
	parameters: Digits;
	stream: Expression[];
	steps: Step[];
	heads: HeadGroups[];
	/** The path of the weights' layer, of a stage of a tower. */
	prefix?: string;
	/** The kind of layer, of a tower; null for what stands around its layers. */
	kind?: LayerKind | null;
}

/** What an image passes, or why that is not known. */
export interface Tower {
	name: string;
	/** The image for which shapes and FLOPs are given. */
	image: string;
	unknown: string;
	stages: Stage[];
	/** Weights that are stored, but which no step reads, with their parameters. */
	unread: [path: string, parameters: Digits][];
}

interface Towers {
	parts: Tower[];
}

/**
 * The dimensions of a matrix that are its outputs, and those that are its inputs: of a convolution
 * over patches, all but the first.
 */
export const sidesOf = <T>(shape: readonly T[]): [outputs: T[], inputs: T[]] =>
	shape.length === 4
		? [shape.slice(0, 1), shape.slice(1)]
		: [shape.slice(0, -1), shape.slice(-1)];

/** What a weight maps: a table's inputs are the numbers of its rows, its outputs a row. */
export const mapSides = <T>(use: WeightUse, shape: readonly T[]): [outputs: T[], inputs: T[]] => {
	const [outputs, inputs] = sidesOf(shape);
	return use.lookup ? [inputs, outputs] : [outputs, inputs];
};

/** A shape as that of a matrix: a convolution over patches is one from all pixels of a patch. */
export const matrixShape = (shape: readonly Digits[]): Digits[] =>
	shape.length === 4
		? sidesOf(shape).map((side) => String(side.reduce((n, x) => n * BigInt(x), 1n)))
		: [...shape];

/** How many layers a stage stands for; 0 for what stands around the layers. */
export const layerTimes = (stage: Stage): number => (stage.layers ? Number(stage.times) : 0);

export const towersOf = (model: ModelData) => model.towers as Towers;

export const plateOf = (model: ModelData) => model.plate as PlateData;
export const stagesOf = (model: ModelData, pass: string): Stage[] => {
	const passes = model.passes as Record<string, Stage[]>;
	return passes[pass] ?? passes.prompt!;
};
/** The stage that stands for a layer. */
export const stageAt = (stages: readonly Stage[], layer: number): Stage | undefined =>
	stages.find((x) =>
		x.ranges.some(
			([first, last, step]) =>
				layer >= first && layer <= last && (layer - first) % step === 0,
		),
	);
export const hasPass = (model: ModelData, pass: string): boolean =>
	pass in (model.passes as object);
/** The settings on which the picture and its panel depend. */
export const PLATE_SETTINGS = [
	"layer",
	"zoom",
	"pass",
	"names",
	"shapes",
	"context",
	"batch",
	"dtype",
	"kv",
] as const;
export type PlateState = Readonly<Pick<State, (typeof PLATE_SETTINGS)[number]>>;

export const variablesOf = (state: PlateState): Variables<bigint> => ({
	T: state.context,
	B: state.batch,
});

export const numLayers = (plate: PlateData): number =>
	plate.order.reduce((n, [, layers]) => n + layers, 0);

/** The kind of a layer. */
export function kindAt(plate: PlateData, layer: number): number {
	let first = 0;
	for (const [kind, n] of plate.order) {
		first += n;
		if (layer < first) return kind;
	}
	return plate.order.at(-1)?.[0] ?? 0;
}

/** How many layers are of a kind. */
export const layersOfKind = (plate: PlateData, kind: number): number =>
	plate.order.reduce((n, [x, layers]) => n + (x === kind ? layers : 0), 0);

export function firstOfKind(plate: PlateData, kind: number): number {
	let first = 0;
	for (const [x, n] of plate.order) {
		if (x === kind) return first;
		first += n;
	}
	return 0;
}

/** The layer that is open before a reader chooses one: in the middle, of the most frequent kind. */
export function middleLayer(plate: PlateData): number {
	const most = plate.kinds.reduce(
		(best, _, i) => (layersOfKind(plate, i) > layersOfKind(plate, best) ? i : best),
		0,
	);
	const middle = Math.floor(numLayers(plate) / 2);
	const last = numLayers(plate) - 1;
	for (let distance = 0; distance <= Math.min(last, 10_000); distance++)
		for (const layer of [middle + distance, middle - distance])
			if (layer >= 0 && layer <= last && kindAt(plate, layer) === most) return layer;
	return firstOfKind(plate, most);
}

const COLORS: Record<string, string> = {
	embedding: "embed",
	attention: "attn",
	mixer: "attn",
	cache: "kv",
	mlp: "ffn",
	experts: "experts",
	router: "router",
	norm: "norm",
	head: "head",
	vision: "vision",
	audio: "vision",
	projector: "vision",
};
/**
 * The name of the colour of a group of weights; what belongs to no component is drawn like norms.
 */
export const colorOf = (group: string): string => COLORS[group] ?? "norm";
export const fill = (group: string): string => `var(--c-${colorOf(group)})`;
export const textOn = (group: string): string => `var(--on-${colorOf(group)})`;
export const tint = (group: string): string =>
	`color-mix(in srgb, var(--c-${colorOf(group)}) var(--tint), var(--panel))`;

export const COMPONENT_NAMES: [group: string, name: string][] = [
	["embedding", "Embedding"],
	["attention", "Attention"],
	["mixer", "Sequence mixer"],
	["cache", "KV cache"],
	["mlp", "FFN"],
	["experts", "Experts"],
	["router", "Router"],
	["norm", "Norm"],
	["head", "Head"],
	["vision", "Vision"],
	["audio", "Audio"],
	["projector", "Projector"],
];

export const asNumber = (x: Expression): number => Number(value(x, {}));

/** The names of the weights of layers in the three schemes, by their path. */
export function schemeNames(model: ModelData): Map<string, Record<string, string>> {
	const sections = model.sections as {
		rows: { path: string; names: Record<string, string> }[];
	}[];
	return new Map(sections.flatMap((x) => x.rows.map((row) => [row.path, row.names])));
}

/** Where the weights of a stage are in the model. */
export const prefixOf = (stage: Stage | null): string =>
	stage?.prefix ?? (stage?.layers ? "layers.{l}." : "");

/** The whole name of a weight in a scheme; empty if the scheme has none. */
export function fullName(
	names: Map<string, Record<string, string>>,
	path: string,
	scheme: string,
	prefix: string,
): string {
	const whole = prefix + path;
	return scheme === "path" ? whole : (names.get(whole)?.[scheme] ?? "");
}

/** The last part of a name without "weight": q, q_proj, attn_q. */
export function shortName(name: string): string {
	const parts = name
		.replace(/\.(weight|bias)$/, "")
		.split(".")
		.filter((x) => !/^(\d+|\{.*\})$/.test(x));
	return parts.at(-1) ?? name;
}

/** The last part of a step's name. */
export const leafOf = (name: string): string => name.slice(name.lastIndexOf(".") + 1);

const LETTERS: Record<string, string> = { concat: "y", mix: "y", act: "a", dispatch: "x" };

/** What formulas call the result of a step that a matrix reads. */
export const inputLetter = (read: string): string | undefined => LETTERS[leafOf(read)];
