// What of a model's data does not follow from its letters alone, and is left out where they change:
// what is searched for, texts in columns, and types and splits that depend on divisibility.
import type { ModelData } from "./data";
import { lazilyWith } from "./lazily";

/** Left out of every model with other letters. */
const SEARCHED = ["copy", "posters", "parallel", "checkpoint", "live"];
/** The attention that keeps its scores, and copies of keys and values. */
const WRITTEN = "written";
/** Formats with blocks of this many weights have types by layer, and fall back to smaller blocks. */
const MIXED = 256;
const SMALL = 32;
const PLAIN = /^B?F\d+$/;
/** The format of a model whose own one is not known. */
const USUAL = "bf16";

/** By format, the rows and columns of a block of weights: a format whose types by weight, or sizes,
 * follow from nothing else has none. */
export type Blocks = Record<string, [rows: number, columns: number] | null>;

interface Weight {
	shape: string[];
	split: [axis: number, parts: number, unit: string] | null;
}
interface Known extends ModelData {
	attention: {
		of: string;
		kinds: {
			kind: string;
			heads: string;
			kvHeads: string;
			keySize: string;
			valueSize: string;
			rows: unknown;
			rope: number | null;
		}[];
		ropes: { dim: string }[];
	};
	experts: { kinds: { experts: string; chosen: string }[] } | null;
	facts: { weights: { dtype: string }[] };
	layers: {
		kinds: { of: Record<string, string[]> }[];
		order: number[];
		/** By layer, the first kind of those that differ in formats alone, for any number of layers. */
		alike?: number[];
	};
	plate: { order: [number, number][]; kinds: { weights: Weight[] }[] };
	tiles: { shape: string[]; kept: Record<string, [codec: string, ...numbers: unknown[]][]> }[];
	sizes: {
		dtype: string;
		dtypes: { name: string; title: string }[];
		gpus: { count: string; splits: [number, number][] }[];
		layouts: { tp: string; pp: string }[];
		spine: Record<string, Record<string, string>>;
		training: {
			ranks: string[];
			static: Record<string, Record<string, unknown>>;
			moving: Record<string, unknown>;
			choices: { name: string; options: [string, string][] }[];
		};
	};
}

const without = <T>(x: Record<string, T>, names: ReadonlySet<string>): Record<string, T> =>
	Object.fromEntries(Object.entries(x).filter(([name]) => !names.has(name)));

/** The formats whose types or padding the other letters change. */
function unknownFormats(made: Known, own: Known, blocksOf: Blocks): Set<string> {
	const traits = ({ attention, experts }: Known) =>
		JSON.stringify([
			attention.of,
			attention.kinds.map((x) => [
				x.heads,
				x.kvHeads,
				x.kind === "MLA" && [x.keySize, x.valueSize, x.rows],
			]),
			experts?.kinds.map((x) => [x.experts, x.chosen]),
		]);
	const alike = traits(made) === traits(own);
	const divides = (n: string, block: number) => Number(n) % block === 0;
	/** Whether the rows of a weight are whole blocks, of any of these sizes, where its own are. */
	const keepsType = (sizes: number[]) =>
		own.tiles.every(({ shape }, i) =>
			shape.every((n, j) =>
				sizes.every((x) => divides(n, x) === divides(made.tiles[i]!.shape[j]!, x)),
			),
		);
	const isOfWholeBlocks = ({ tiles }: Known, sizes: [number, number]) =>
		tiles.every(
			({ shape }) =>
				shape.length < 2 ||
				shape.every((n, j) => divides(n, sizes[j === shape.length - 1 ? 1 : 0])),
		);
	/** Whether the weights that a format packs have the shapes of the model's own. */
	const keepsShapes = (name: string) =>
		own.tiles.every(
			({ shape, kept }, i) =>
				!kept[name]?.some(([codec]) => !PLAIN.test(codec)) ||
				shape.join() === made.tiles[i]!.shape.join(),
		);
	const isKnown = (name: string) => {
		const block = blocksOf[name];
		if (!block) return false;
		const [rows, columns] = block;
		if (rows > 1 && (name === own.sizes.dtype || keepsShapes(name))) return keepsShapes(name);
		if (rows > 1) return isOfWholeBlocks(own, block) && isOfWholeBlocks(made, block);
		return columns === 1 || ((columns < MIXED || alike) && keepsType([SMALL, columns]));
	};
	return new Set(Object.keys(blocksOf).filter((x) => !isKnown(x)));
}

/** The layers one by one; none where the other letters do not tell them. */
function layersOf(
	{ layers, attention }: Known,
	own: Known,
	formats: ReadonlySet<string>,
): Known["layers"] {
	const kinds: Known["layers"]["kinds"] = [];
	const places = new Map<string, number>();
	const placeOf = layers.kinds.map((kind) => {
		const kept = { ...kind, of: without(kind.of, formats) };
		const key = JSON.stringify(kept);
		if (!places.has(key)) places.set(key, kinds.push(kept) - 1);
		return places.get(key)!;
	});
	const number = Number(attention.of);
	const known = { ...layers, kinds, order: layers.order.map((i) => placeOf[i]!) };
	if (known.order.length === number) return known;
	if (kinds.length === 1) return { ...known, order: Array<number>(number).fill(0) };
	// layers of one block may have been in several formats, of which none is left
	const alike = (layers.alike ?? []).map((i) => placeOf[i]!);
	const isAlike = own.layers.order.every(
		(x, i) => placeOf[x] === placeOf[own.layers.alike?.[i] ?? -1],
	);
	return isAlike && alike.length === number
		? { ...known, order: alike }
		: { ...known, kinds: [], order: [] };
}

/** Whether tensor parallelism over `tp` GPUs splits the weights as it splits the model's own. */
function splitsAlike(tp: number, made: Known, own: Known): boolean {
	return own.plate.kinds.every((kind, i) =>
		kind.weights.every(({ split }, j) => {
			const parts = made.plate.kinds[i]!.weights[j]!.split?.[1];
			return split?.[1] === parts || (split![1] % tp === 0 && parts! % tp === 0);
		}),
	);
}

/** The data without what is searched for, which is of the model as it is published. */
export const withoutSearched = <T extends ModelData>(x: T): T => without(x, new Set(SEARCHED)) as T;

/** What an edited model is shown without, though the model that is published has it. */
export function leftOut(data: ModelData, original: ModelData): string[] {
	const [made, own] = [data as Known, original as Known];
	const kept = new Set(made.sizes.dtypes.map((x) => x.name));
	return [
		...own.sizes.dtypes.filter((x) => !kept.has(x.name)).map((x) => x.title),
		...(own.experts && !made.experts ? ["expert reads"] : []),
		...(own.parallel && !made.parallel ? ["parallel layouts"] : []),
	];
}

/** The data for other letters, without what does not follow from them. */
export function followed(data: ModelData, original: ModelData, blocks: Blocks): ModelData {
	const [made, own] = [data as Known, original as Known];
	const layers = made.plate.order.reduce((n, [, times]) => n + times, 0);
	if (String(layers) !== made.attention.of)
		throw new Error("it is not known which of its layers are of which kind");
	const isWhole = made.attention.of === own.attention.of;
	const formats = once(() => unknownFormats(made, own, blocks));
	const sameRopes = once(() =>
		made.attention.ropes.every((x, i) => x.dim === own.attention.ropes[i]!.dim),
	);
	const makers = {
		// the bytes of experts are numbers of the original
		experts: () => null,
		facts: () => ({
			...made.facts,
			weights: made.facts.weights.filter((x) => !formats().has(x.dtype)),
		}),
		tiles: () =>
			made.tiles.map((x) => lazilyWith(x, { kept: () => without(x.kept, formats()) })),
		layers: () => layersOf(made, own, formats()),
		attention: () => ({
			...made.attention,
			ropes: sameRopes() ? made.attention.ropes : [],
			kinds: made.attention.kinds.map((x) => (sameRopes() ? x : { ...x, rope: null })),
		}),
		sizes: () => sizesOf(made, own, formats(), isWhole),
	};
	return lazilyWith(made, makers, SEARCHED) as unknown as ModelData;
}

function once<T>(make: () => T): () => T {
	let found: { value: T } | undefined;
	return () => (found ??= { value: make() }).value;
}

/** What memory and layouts follow from, without the splits and formats that are not known. */
function sizesOf(
	made: Known,
	own: Known,
	formats: ReadonlySet<string>,
	isWhole: boolean,
): Known["sizes"] {
	const { sizes } = made;
	const alike = new Map(
		["1", ...sizes.layouts.map((x) => x.tp), ...sizes.training.ranks].map((tp) => [
			tp,
			splitsAlike(Number(tp), made, own),
		]),
	);
	const isKept = (i: number) =>
		alike.get(sizes.layouts[i]!.tp)! && (isWhole || sizes.layouts[i]!.pp === "1");
	const gpus = sizes.gpus.map((x) => ({ ...x, splits: x.splits.filter(([i]) => isKept(i)) }));
	const ranks = sizes.training.ranks.filter((x) => alike.get(x));
	const lost = new Set(sizes.training.ranks.filter((x) => !ranks.includes(x)));
	// where keys and values are repeated for query heads, their copies are saved
	const isShared = (x: Known) => x.attention.kinds.map((y) => y.heads === y.kvHeads).join();
	const repeats = isShared(made) === isShared(own);
	const isTold = (choice: string) => repeats || !choice.split(" ").includes(WRITTEN);
	const training = {
		ranks: () => ranks,
		moving: () =>
			Object.fromEntries(
				Object.entries(sizes.training.moving).filter(([name]) => isTold(name)),
			),
		choices: () =>
			sizes.training.choices.map((x) => ({
				...x,
				options: x.options.filter(([name]) => isTold(name)),
			})),
		static: () =>
			Object.fromEntries(
				Object.entries(sizes.training.static).map(([name, x]) => [name, without(x, lost)]),
			),
	};
	const dtypes = sizes.dtypes.filter((x) => !formats.has(x.name));
	const isKeptDtype = !formats.has(sizes.dtype);
	const dtype = isKeptDtype
		? sizes.dtype
		: (dtypes.find((x) => x.name === USUAL) ?? dtypes[0]!).name;
	return lazilyWith(sizes, {
		dtype: () => dtype,
		dtypes: () => dtypes.toSorted((a, b) => +(b.name === dtype) - +(a.name === dtype)),
		gpus: () => gpus.filter((x) => x.splits.length),
		spine: () =>
			Object.fromEntries(
				Object.entries(sizes.spine).map(([name, x]) => [name, without(x, formats)]),
			),
		training: () => lazilyWith(sizes.training, training),
	}) as unknown as Known["sizes"];
}
