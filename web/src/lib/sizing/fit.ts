// What `llamath fit` answers, for one GPU in some number: the split it chooses, whether it fits,
// how much more would, and what to change.
import { value } from "../expressions";
import { grouped } from "../format";
import type { State } from "../settings";
import type { ModelData } from "../data";
import { FIT, GPUS, sizesOf, type Gpu, type Sizes } from "./data";
import {
	chosenDtypes,
	headroomOf,
	leftOf,
	MemoryLimit,
	memoryPerGpu,
	namedSplit,
	sizedIn,
	splitsOf,
	withMode,
	type Load,
	type Sized,
	type Split,
} from "./gpu_memory";
import { decodeBytesAndFlops, decodeRate } from "./speed_limits";

export const CUSTOM = "custom";
const GIB = 2n ** 30n;

export type GpuFigure = "gpumem" | "gpubw" | "gpuflops";
/** The settings of the GPU. */
export const GPU_SETTINGS = ["card", "gpumem", "gpubw", "gpuflops"] as const;
type GpuSettings = Pick<State, (typeof GPU_SETTINGS)[number]>;

/** The GPU of the page's own figures. */
export function customGpu(state: Pick<State, GpuFigure>): Gpu {
	const rate = String(state.gpuflops * 10n ** 12n);
	const memory = String(state.gpumem * GIB);
	const known = {
		name: CUSTOM,
		title: "Custom GPU",
		memory,
		nominal: memory,
		bandwidth: String(state.gpubw * 10n ** 9n),
	};
	return {
		...known,
		node: 8,
		source: "the figures above",
		flops: { bf16: rate, fp16: rate },
		formats: [],
		kvs: [],
		common: "",
		shown: true,
	};
}

/** A GPU, in some number. */
export interface Hardware {
	gpu: Gpu;
	count: string;
}

/**
 * What the settings name; what they leave open is that of the smallest hardware that runs the
 * model, or where nothing does, most of the largest.
 */
export function chosenHardware(
	sizes: Sizes,
	state: GpuSettings & Pick<State, Load | "gpus">,
): Hardware {
	const named =
		state.card === CUSTOM ? customGpu(state) : GPUS.find((x) => x.name === state.card);
	const count = sizes.gpus.find((x) => x.count === state.gpus)?.count;
	if (named && count) return { gpu: named, count };
	const open = fitterOf(sizes, state).smallest ?? {
		gpu: GPUS.reduce((a, x) => (BigInt(x.memory) > BigInt(a.memory) ? x : a)),
		count: sizes.gpus.at(-1)!.count,
	};
	return { gpu: named ?? open.gpu, count: count ?? open.count };
}

/** Everything about one model under the current dtypes and sequences; splits are sized once. */
export class Fitter {
	private readonly known = new Map<
		string,
		{ sized: Sized; limit: MemoryLimit; needed: number; work?: [number, number] }
	>();

	constructor(
		readonly sizes: Sizes,
		readonly state: Pick<State, Load>,
	) {}

	private of(split: Split, count: string) {
		// the same layout with as many sequences on each replica needs the same memory for any
		// number of GPUs
		const key = `${split.layout.name} ${-Math.floor(-Number(this.state.batch) / split.replicas)}`;
		let found = this.known.get(key);
		if (!found) {
			const sized = sizedIn(this.sizes, this.state, split, count);
			const limit = new MemoryLimit(sized.plan);
			found = { sized, limit, needed: limit.approximate.total(Number(sized.variables.T)) };
			this.known.set(key, found);
		}
		return found;
	}

	private readonly chosen = new Map<string, { split: Split; fits: boolean }>();

	/** The first split that fits, else the one whose most loaded GPU needs the least. */
	choose(gpu: Gpu, count: string): { split: Split; fits: boolean } {
		const key = `${gpu.memory} ${gpu.node} ${count}`;
		return recall(this.chosen, key, () => this.findSplit(gpu, count), Infinity);
	}

	private findSplit(gpu: Gpu, count: string): { split: Split; fits: boolean } {
		const memory = BigInt(gpu.memory);
		const splits = splitsOf(this.sizes, count, gpu.node);
		const fitting = splits.find((x) => {
			const { sized, limit } = this.of(x, count);
			return limit.fits(sized.variables.T!, sized.variables.B!, memory);
		});
		if (fitting) return { split: fitting, fits: true };
		const least = splits.reduce((a, x) =>
			this.of(x, count).needed < this.of(a, count).needed ? x : a,
		);
		return { split: least, fits: false };
	}

	/** The smallest hardware that runs the model with headroom, else without, by the library's order. */
	get smallest(): Cell | null {
		this.roomy ??= { cell: this.findSmallest((x) => this.hasHeadroom(x.gpu, x.count)) };
		return this.roomy.cell ?? this.tightest;
	}

	/** The smallest hardware that the model fits. */
	get tightest(): Cell | null {
		return (this.fitting ??= { cell: this.findSmallest(() => true) }).cell;
	}

	private roomy: { cell: Cell | null } | undefined;
	private fitting: { cell: Cell | null } | undefined;

	/** The fewest of a GPU that run it with headroom, else without; of none that do, the most. */
	fewest(gpu: Gpu): string {
		const counts = this.sizes.gpus.map((x) => x.count);
		return (
			counts.find((x) => this.hasHeadroom(gpu, x)) ??
			counts.find((x) => this.choose(gpu, x).fits) ??
			counts.at(-1)!
		);
	}

	private hasHeadroom(gpu: Gpu, count: string): boolean {
		const { split, fits } = this.choose(gpu, count);
		if (!fits) return false;
		const { total } = memoryPerGpu(this.of(split, count).sized).mostLoaded.values;
		return headroomOf({ total }, BigInt(gpu.memory)) >= 0n;
	}

	private findSmallest(suits: (x: Cell) => boolean): Cell | null {
		const { unsupported } = chosenDtypes(this.sizes, this.state).dtype;
		const isKnown = (count: string) => this.sizes.gpus.some((x) => x.count === count);
		for (const [count, groups] of FIT.smallest.filter((x) => isKnown(x[0])))
			for (const group of groups) {
				const fitting = group
					.map((i) => GPUS[i]!)
					.filter((x) => !unsupported.includes(x.name) && this.choose(x, count).fits)
					.map((x) => this.cell(x, count))
					.filter(suits);
				const speedOf = (x: Cell) => x.decode ?? Number(x.gpu.bandwidth);
				if (fitting.length)
					return fitting.reduce((a, x) => (speedOf(x) > speedOf(a) ? x : a));
			}
		return null;
	}

	cell(gpu: Gpu, count: string): Cell {
		const { split, fits } = this.choose(gpu, count);
		const found = this.of(split, count);
		const { sized, limit } = found;
		const memory = BigInt(gpu.memory);
		const batch = fits ? limit.largestBatch(memory) : 0n;
		const sequences = batch === null ? null : batch * BigInt(split.replicas);
		const context = fits ? null : limit.longestContext(memory);
		const short = fits ? 0 : found.needed - Number(memory);
		const { work } = found;
		if (!work && split.layout.speed) found.work = decodeBytesAndFlops(sized);
		return {
			gpu,
			count,
			split,
			fits,
			sequences,
			context,
			short,
			decode: fits && found.work ? decodeRate(sized, gpu, found.work) : null,
		};
	}
}

const lastFitters = new WeakMap<Sizes, Map<string, Fitter>>();

/** What keeps the answers of the last questions, by what they depend on. */
function recall<V>(kept: Map<string, V>, key: string, make: () => V, most = MOST_KEPT): V {
	let found = kept.get(key);
	if (found === undefined) {
		if (kept.size >= most) kept.clear();
		kept.set(key, (found = make()));
	}
	return found;
}

const MOST_KEPT = 4;

/** The fitter of a model under these settings, which several sections ask. */
export function fitterOf(sizes: Sizes, state: Pick<State, Load>): Fitter {
	let kept = lastFitters.get(sizes);
	if (!kept) lastFitters.set(sizes, (kept = new Map<string, Fitter>()));
	return recall(
		kept,
		[state.context, state.batch, state.dtype, state.kv].join(" "),
		() => new Fitter(sizes, { ...state }),
	);
}

/** A GPU in some number: what `fit` says about it. */
export interface Cell extends Hardware {
	split: Split;
	fits: boolean;
	/** The sequences at the chosen context that fit; null: any number. */
	sequences: bigint | null;
	/** Where it does not fit, the longest context that does. */
	context: bigint | null;
	/** The bytes that the most loaded GPU lacks. */
	short: number;
	/** Upper bound on tokens per second of decode; null where it does not fit or none is known. */
	decode: number | null;
}

/**
 * The numbers of GPUs that the matrix shows: five, from the smallest in which some GPU holds the
 * weights, or those up to the smallest hardware.
 */
export function shownCounts(sizes: Sizes, state: Pick<State, Load>): string[] {
	const counts = sizes.gpus.map((x) => x.count);
	const placeOf = (fitter: Fitter) => {
		const count = fitter.smallest?.count;
		return count ? counts.indexOf(count) : counts.length;
	};
	const first = placeOf(new Fitter(sizes, { ...state, context: 1n, batch: 1n }));
	const smallest = placeOf(fitterOf(sizes, state));
	const start = Math.max(Math.min(Math.max(first, smallest - 4), counts.length - 5), 0);
	return counts.slice(start, start + 5);
}

export const SIZING_SETTINGS = [
	"context",
	"batch",
	"dtype",
	"kv",
	"gpus",
	"tp",
	"mode",
	"trainers",
	"precision",
	"optimizer",
	"zero",
	"recompute",
	"attention",
	"kernels",
	...GPU_SETTINGS,
] as const;
export type SizingSettings = Readonly<Pick<State, (typeof SIZING_SETTINGS)[number]>>;

const lastSettings = new WeakMap<ModelData, Map<string, Sized>>();

/**
 * The split of the settings: the named one, or what `fit` chooses for the chosen GPU; several
 * sections ask for the same.
 */
export function settings(model: ModelData, state: SizingSettings): Sized {
	let kept = lastSettings.get(model);
	if (!kept) lastSettings.set(model, (kept = new Map<string, Sized>()));
	const key = SIZING_SETTINGS.map((x) => state[x]).join("\0");
	return recall(kept, key, () => sizeModel(model, state));
}

function sizeModel(model: ModelData, state: SizingSettings): Sized {
	const sizes = sizesOf(model);
	const { gpu, count } = chosenHardware(sizes, state);
	const split =
		namedSplit(sizes, state, count) ?? fitterOf(sizes, state).choose(gpu, count).split;
	return withMode(sizedIn(sizes, state, split, count), state, BigInt(gpu.memory));
}

export interface FitVerdict {
	sized: Sized;
	fits: boolean;
	total: bigint;
	memory: bigint;
	maxContext: bigint | null;
	maxBatch: bigint | null;
}

/** Whether it fits without headroom, of which a driver or another program may take a part. */
export const fitsBarely = (x: FitVerdict) => x.fits && headroomOf(x, x.memory) < 0n;

/** The exact answer for the chosen GPUs, in the split of the settings. */
export function verdict(sized: Sized, gpu: Gpu): FitVerdict {
	const memory = BigInt(gpu.memory);
	const { total } = memoryPerGpu(sized).mostLoaded.values;
	const limit = new MemoryLimit(sized.plan);
	const batch = limit.largestBatch(memory);
	return {
		sized,
		total,
		memory,
		fits: leftOf({ total }, memory) >= 0n,
		maxContext: limit.longestContext(memory),
		maxBatch: batch === null ? null : batch * BigInt(sized.split.replicas),
	};
}

/** Changes of the settings with which the model fits. */
export interface Suggestion {
	/** As options of the command line. */
	change: string;
	says: string;
	to: Partial<State>;
	total: bigint;
}

export const weightBytes = (sizes: Sizes, name: string) =>
	BigInt(sizes.dtypes.find((x) => x.name === name)!.bytes);

/**
 * What a change gives up, in halvings: of the bits of a weight, of the bytes of the cache, and of
 * the context.
 */
interface Candidate extends Suggestion {
	losses: [weights: number, cache: number, context: number];
}

const beats = (a: Candidate, b: Candidate) =>
	a.losses.every((x, i) => x <= b.losses[i]!) && a.losses.some((x, i) => x < b.losses[i]!);

const TINY = 10_000_000n;
/** Whether a step is so short that its ceilings mean little. */
export const isTiny = (model: ModelData): boolean => {
	const sizes = sizesOf(model);
	return weightBytes(sizes, sizes.dtype) < TINY;
};

/**
 * Smaller weights, a smaller KV cache, a shorter context, more or larger GPUs: those that nothing
 * else beats in everything.
 */
export function suggestions(
	sizes: Sizes,
	state: Pick<State, Load>,
	gpu: Gpu,
	count: string,
): Suggestion[] {
	const own = state.dtype || sizes.dtype;
	const ownKv = state.kv || sizes.kv;
	const formats = [
		own,
		...sizes.dtypes
			.map((x) => x.name)
			.filter(
				(x) => gpu.formats.includes(x) && weightBytes(sizes, x) < weightBytes(sizes, own),
			),
	];
	const kvs = [
		ownKv,
		...(sizes.kvs.find((x) => x.name === ownKv)!.wide
			? gpu.kvs.filter((x) => sizes.kvs.some((y) => y.name === x))
			: []),
	];
	const bitsOf = (name: string) => sizes.dtypes.find((x) => x.name === name)!.bits;
	const cacheBytes = (kv: string) =>
		Number(
			memoryPerGpu(
				sizedIn(sizes, { ...state, kv }, { layout: sizes.layouts[0]!, replicas: 1 }, "1"),
			).mostLoaded.values.cache,
		);
	const ownCache = cacheBytes(ownKv);
	const found: Candidate[] = [];
	for (const dtype of formats) {
		const bits =
			dtype === own ? 0 : Math.max(Math.log2(bitsOf(own).mean / bitsOf(dtype).suggested!), 0);
		for (const kv of kvs) {
			const to: Changed = { ...(dtype !== own && { dtype }), ...(kv !== ownKv && { kv }) };
			const candidate = withContext(sizes, { ...state, ...to }, gpu, count);
			if (!candidate) continue;
			const all: Changed =
				candidate.context < state.context ? { ...to, context: candidate.context } : to;
			if (!Object.keys(all).length) continue;
			const cache =
				kv === ownKv || !ownCache ? 0 : Math.log2(ownCache / Math.max(cacheBytes(kv), 1));
			const losses: Candidate["losses"] = [
				bits,
				cache,
				Math.log2(Number(state.context) / Number(candidate.context)),
			];
			if (sum(losses) <= FIT.halvings)
				found.push({
					...describe(all, sizes),
					to: { ...all, tp: "" },
					total: candidate.total,
					losses,
				});
		}
	}
	const best = found
		.filter((x) => !found.some((y) => beats(y, x)))
		.sort((x, y) => sum(x.losses) - sum(y.losses));
	return [...best.slice(0, FIT.suggestions), ...otherGpus(sizes, state, gpu, count)];
}

const sum = (list: readonly number[]) => list.reduce((a, b) => a + b, 0);

type Changed = Partial<Pick<State, "dtype" | "kv" | "context">>;

function describe(
	{ dtype, kv, context }: Changed,
	{ dtypes, kvs }: Sizes,
): { change: string; says: string } {
	const titleIn = (formats: Sizes["dtypes"] | Sizes["kvs"], name: string) =>
		formats.find((x) => x.name === name)!.title;
	const named = [
		dtype && [`--dtype ${dtype}`, `weights in ${titleIn(dtypes, dtype)}`],
		kv && [`--kv-dtype ${kv}`, `KV cache in ${titleIn(kvs, kv)}`],
		context && [`--context ${context}`, `${grouped(context)} tokens`],
	].filter((x) => Array.isArray(x));
	return { change: named.map((x) => x[0]).join(" "), says: named.map((x) => x[1]).join(", ") };
}

function withContext(
	sizes: Sizes,
	state: Pick<State, Load>,
	gpu: Gpu,
	count: string,
): { context: bigint; total: bigint } | null {
	const at = (context: bigint) => {
		const fitter = new Fitter(sizes, { ...state, context });
		const { split, fits } = fitter.choose(gpu, count);
		return fits
			? {
					context,
					total: memoryPerGpu(sizedIn(sizes, { ...state, context }, split, count))
						.mostLoaded.values.total,
				}
			: null;
	};
	const wanted = state.context;
	const whole = at(wanted);
	if (whole) return whole;
	const memory = BigInt(gpu.memory);
	const longest = splitsOf(sizes, count, gpu.node).map(
		(split) =>
			new MemoryLimit(sizedIn(sizes, state, split, count).plan).longestContext(memory) ??
			wanted,
	);
	const most = longest.reduce((a, b) => (b > a ? b : a), 0n);
	const rounded = value(FIT.rounded, { T: most < wanted ? most : wanted });
	return rounded ? at(rounded) : null;
}

/**
 * The smallest larger number of the same GPU, with fewer bits if it is smaller; the smallest larger
 * GPU in the same number, with the most bits with which one fits; the smallest hardware of all.
 */
function* otherGpus(
	sizes: Sizes,
	state: Pick<State, Load>,
	gpu: Gpu,
	count: string,
): Generator<Suggestion> {
	const own = state.dtype || sizes.dtype;
	const fitters = new Map<string, Fitter>();
	const suggest = (dtype: string, x: Gpu, n: string): Suggestion | null => {
		const at = dtype === own ? state : { ...state, dtype };
		const fitter = recall(fitters, dtype, () => new Fitter(sizes, at), Infinity);
		const { split, fits } = fitter.choose(x, n);
		if (!fits) return null;
		const said = dtype === own ? null : describe({ dtype }, sizes);
		return {
			change: `${said ? `${said.change} ` : ""}--on ${n === "1" ? "" : `${n}x`}${x.name}`,
			says: `${said ? `${said.says}, ` : ""}${n === "1" ? "" : `${n} × `}${x.title}`,
			to: { ...(said && { dtype }), card: x.name, gpus: n, tp: "" },
			total: memoryPerGpu(sizedIn(sizes, at, split, n)).mostLoaded.values.total,
		};
	};
	const formats = (x: Gpu) => [
		own,
		...FIT.bits.flatMap((bits) => {
			const known = x.formats.map((name) => sizes.dtypes.find((y) => y.name === name));
			const smaller = known.find(
				(y) =>
					y?.bits.suggested === bits &&
					weightBytes(sizes, y.name) < weightBytes(sizes, own),
			);
			return smaller ? [smaller.name] : [];
		}),
	];
	const found: (Suggestion | null)[] = [];
	let counts = gpu.name === CUSTOM ? [] : sizes.gpus.map((x) => x.count);
	for (const dtype of formats(gpu)) {
		const larger = counts.filter((n) => Number(n) > Number(count));
		const n = larger.find((x) => suggest(dtype, gpu, x));
		if (n === undefined) continue;
		found.push(suggest(dtype, gpu, n));
		counts = counts.slice(0, counts.indexOf(n));
	}
	const larger = GPUS.filter((x) => BigInt(x.memory) > BigInt(gpu.memory)).sort((a, b) =>
		Number(BigInt(a.memory) - BigInt(b.memory)),
	);
	for (let place = 0; place <= FIT.bits.length; place++) {
		const fits = larger.find((x) => formats(x)[place] && suggest(formats(x)[place]!, x, count));
		if (!fits) continue;
		found.push(suggest(formats(fits)[place]!, fits, count));
		break;
	}
	const best = fitterOf(sizes, state).smallest;
	found.push(best && best.gpu.name !== gpu.name ? suggest(own, best.gpu, best.count) : null);
	const all = found.filter((x) => x !== null);
	yield* all.filter((x, i) => all.findIndex((y) => y.change === x.change) === i);
}
