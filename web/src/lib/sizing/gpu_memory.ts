// The memory of each GPU for inference or training, evaluated from the library's expressions.
import type { MemoryLine, ModelData } from "../data";
import { approximate, value, type Expression, type Variables } from "../expressions";
import type { State } from "../state";
import { sizesOf, type DType, type LayoutData, type Sizes } from "./data";

export const INFERENCE_PARTS = ["weights", "cache", "activations", "logits", "overhead"] as const;
export const TRAINING_PARTS = ["weights", "gradients", "master", "optimizer", "activations", "logits", "overhead"] as const;
export type Part = (typeof INFERENCE_PARTS)[number] | (typeof TRAINING_PARTS)[number];
export const MAX_TOKENS = 2n ** 32n;

export interface Stage {
	where: string;
	lines: Record<string, MemoryLine[]>;
}

/** What is evaluated for each GPU: the stages with their expressions, and the values of all variables but the parts. */
export interface Plan {
	mode: "run" | "train";
	parts: readonly Part[];
	stages: Stage[];
	variables: Variables<bigint>;
	label: string;
	gpus: string;
	/** Sequences are padded to this many tokens. */
	tokens?: Expression;
	/** Of training. */
	training?: { ranks: string[]; tp: string; dp: string; chosen: Record<string, string> };
}

/** One way to split the model over GPUs. */
export interface Split {
	layout: LayoutData;
	replicas: number;
}

/** A model under the settings of the page. */
export interface Sized {
	sizes: Sizes;
	dtype: DType;
	kv: Sizes["kvs"][number];
	split: Split;
	count: string;
	variables: Variables<bigint>;
	plan: Plan;
}

/** The parts of the memory of one GPU of a stage, with all variables. */
export type StageMemory = Variables<bigint> & { total: bigint };
export interface GpuMemory {
	values: StageMemory;
	stage: Stage;
}

const integers = (texts: Record<string, string>) => Object.fromEntries(Object.entries(texts).map(([name, n]) => [name, BigInt(n)]));
const line = (what: string, form: Expression): MemoryLine[] => [{ what, form, says: "" }];
const ceilDiv = (a: bigint, b: bigint) => -(-a / b) + (a % b ? 1n : 0n);

const stagesOf = new WeakMap<Sizes, Map<string, Stage[]>>();

/** The stages of a layout; made once, so that their expressions are compiled once. */
function inferenceStages(sizes: Sizes, layout: LayoutData): Stage[] {
	const known = stagesOf.get(sizes) ?? new Map<string, Stage[]>();
	stagesOf.set(sizes, known);
	let found = known.get(layout.name);
	if (!found) {
		const form = (i: number) => sizes.forms[i]!;
		found = layout.stages.map((x) => ({
			where: x.where,
			lines: {
				weights: line("weights", x.weights),
				cache: x.cache.map((y) => ({ what: y.what, form: form(y.form), says: "" })),
				activations: line("activations", form(x.activations)),
				logits: line("logits", form(x.logits)),
				overhead: line("overhead", form(x.overhead)),
			},
		}));
		known.set(layout.name, found);
	}
	return found;
}

export const splitLabel = (split: Split, count: string) =>
	count === "1" ? "one GPU" : `${count} GPUs, ${split.replicas > 1 ? `${split.replicas} replicas of ` : ""}${split.layout.name}`;

function inferencePlan(sized: Omit<Sized, "plan">): Plan {
	const { sizes, split, variables, count } = sized;
	return { mode: "run", parts: INFERENCE_PARTS, stages: inferenceStages(sizes, split.layout), variables, label: splitLabel(split, count), gpus: count };
}

function trainingPlan({ training }: Sizes, state: State, trainingTp: string): Plan {
	const chosen = Object.fromEntries(training.choices.map((x) => [x.name, (x.options.find((y) => y[0] === state[x.name]) ?? x.options[0]!)[0]]));
	const gpus = training.gpus.includes(state.trainers!) ? state.trainers! : "1";
	const ranks = training.ranks.filter((x) => Number(x) <= Number(gpus));
	const tp = ranks.includes(state.tp!) ? state.tp! : trainingTp;
	const dp = String(Number(gpus) / Number(tp));
	const resident = training.static[chosen.precision!]![tp]!;
	const moving = training.moving[`${training.kept[chosen.precision!]} ${chosen.attention} ${chosen.kernels}`]!;
	const places = { ...resident, optimizer: resident.optimizer[chosen.optimizer!]!, activations: moving[chosen.recompute!]!, logits: moving.logits! };
	const lines = Object.fromEntries(Object.entries(places).map(([part, list]) => [part, list.map((i) => training.lines[i]!)]));
	const sharded = Object.entries(training.zero).map(([name, stage]) => [name, Number(chosen.zero) >= Number(stage) ? dp : "1"]);
	const variables = integers({ T: state.context!, B: state.batch!, TP: tp, ...Object.fromEntries(sharded) });
	const label = gpus === "1" ? "one GPU" : `each of ${gpus} GPUs, TP ${tp} × DP ${dp}, ZeRO-${chosen.zero}`;
	return { mode: "train", parts: TRAINING_PARTS, stages: [{ where: "", lines }], variables, label, gpus, tokens: training.tokens, training: { ranks, tp, dp, chosen } };
}

/** The dtypes of weights and KV cache that are chosen. */
export function chosenDtypes(sizes: Sizes, state: State) {
	const dtype = sizes.dtypes.find((x) => x.name === state.dtype) ?? sizes.dtypes[0]!;
	const kv = sizes.kvs.find((x) => x.name === state.kv) ?? sizes.kvs.find((x) => x.name === sizes.kv)!;
	return { dtype, kv };
}

/** The model in one split; every replica has its part of the sequences. */
export function sizedIn(sizes: Sizes, state: State, split: Split, count: string): Sized {
	const { dtype, kv } = chosenDtypes(sizes, state);
	const batch = ceilDiv(BigInt(state.batch!), BigInt(split.replicas));
	const own = integers({ T: state.context!, TP: split.layout.tp, ...dtype.variables, ...kv.variables });
	const bytes = (x: LayoutData["read"][string]): bigint => (typeof x === "object" && "form" in x ? value(x.form, own) + BigInt(x.more[dtype.name] ?? 0) : value(x, own));
	const read = Object.entries(split.layout.read).map(([name, x]) => [name, bytes(x)]);
	const variables = { ...own, ...Object.fromEntries(read), B: batch };
	const sized = { sizes, dtype, kv, split, count, variables };
	return { ...sized, plan: inferencePlan(sized) };
}

export function splitsOf(sizes: Sizes, count: string, node = 8): Split[] {
	const found = sizes.gpus.find((x) => x.count === count) ?? sizes.gpus[0]!;
	const splits = found.splits.map(([i, replicas]) => ({ layout: sizes.layouts[i]!, replicas }));
	return splits.filter((x) => Number(x.layout.tp) <= node);
}

/** The split that the settings name: with this tensor parallelism in one replica, else null: `fit` chooses. */
export function namedSplit(sizes: Sizes, state: State, count: string): Split | null {
	return (state.tp && splitsOf(sizes, count).find((x) => x.layout.tp === state.tp && x.replicas === 1)) || null;
}

export const chosenCount = (sizes: Sizes, state: State) => (sizes.gpus.find((x) => x.count === state.gpus) ?? sizes.gpus[0]!).count;

/** Turns inference settings into those of training where these are chosen. */
export function withMode(sized: Sized, state: State, memory: bigint): Sized {
	if (state.mode !== "train") return sized;
	// without a choice, the least tensor parallelism with which a step fits the GPU, else the most
	const plans = sized.sizes.training.ranks.filter((x) => Number(x) <= Number(state.trainers)).map((tp) => trainingPlan(sized.sizes, state, tp));
	const plan = plans.find((x) => memoryPerGpu({ plan: x }).mostLoaded.values.total <= memory) ?? plans.at(-1) ?? trainingPlan(sized.sizes, state, "1");
	return { ...sized, plan };
}

function evaluateStage(plan: Plan, stage: Stage, variables: Variables<bigint>): GpuMemory {
	const values = { ...variables } as StageMemory;
	if (plan.tokens) values.T = value(plan.tokens, variables);
	values.total = 0n;
	for (const part of plan.parts) {
		values[part] = stage.lines[part]!.reduce((sum, x) => sum + value(x.form, values), 0n);
		values.total += values[part]!;
	}
	return { values, stage };
}

/** The memory of a GPU in each stage, and of the most loaded one. */
export function memoryPerGpu({ plan }: Pick<Sized, "plan">, context = plan.variables.T!, batch = plan.variables.B!) {
	const shares = plan.stages.map((x) => evaluateStage(plan, x, { ...plan.variables, T: context, B: batch }));
	const mostLoaded = shares.reduce((a, x) => (x.values.total > a.values.total ? x : a));
	return { shares, mostLoaded };
}

/** Memory in floating point, for positions in pixels and for comparisons that are far from equal. */
export class ApproximateMemory {
	private readonly values: Variables<number>;

	constructor(private readonly plan: Plan) {
		this.values = Object.fromEntries(Object.entries(plan.variables).map(([name, n]) => [name, Number(n)]));
	}

	/** Every part on the most loaded GPU, and their sum. */
	parts(context: number, batch = Number(this.plan.variables.B)): Record<string, number> {
		let most: Record<string, number> = { total: -1 };
		for (const stage of this.plan.stages) {
			const found = this.stage(stage, context, batch);
			if (found.total! > most.total!) most = { ...found };
		}
		return most;
	}

	total(context: number, batch = Number(this.plan.variables.B)): number {
		let most = 0;
		for (const stage of this.plan.stages) most = Math.max(most, this.stage(stage, context, batch).total!);
		return most;
	}

	private stage(stage: Stage, context: number, batch: number): Record<string, number> {
		const { values, plan } = this;
		values.T = context;
		values.B = batch;
		if (plan.tokens) values.T = approximate(plan.tokens, values);
		let total = 0;
		for (const part of plan.parts) {
			let sum = 0;
			for (const x of stage.lines[part]!) sum += approximate(x.form, values);
			values[part] = sum;
			total += sum;
		}
		values.total = total;
		return values;
	}
}

/** Compares memory exactly: in floating point where the two are far apart, else in whole numbers. */
export class MemoryLimit {
	readonly approximate: ApproximateMemory;

	constructor(private readonly plan: Plan) {
		this.approximate = new ApproximateMemory(plan);
	}

	fits(context: bigint, batch: bigint, memory: bigint): boolean {
		const [total, limit] = [this.approximate.total(Number(context), Number(batch)), Number(memory)];
		if (Math.abs(total - limit) > 1e-9 * limit + 64) return total <= limit;
		return memoryPerGpu({ plan: this.plan }, context, batch).mostLoaded.values.total <= memory;
	}

	/** The longest context that fits: 0n if none does, null if any does. */
	longestContext(memory: bigint, batch = this.plan.variables.B!): bigint | null {
		return largest((n) => this.fits(n, batch, memory), (n) => this.approximate.total(n, Number(batch)), Number(memory));
	}

	/** The most sequences that fit at a context, in the same sense. */
	largestBatch(memory: bigint, context = this.plan.variables.T!): bigint | null {
		return largest((n) => this.fits(context, n, memory), (n) => this.approximate.total(Number(context), n), Number(memory));
	}
}

/** The largest whole number below MAX_TOKENS that fits, found by interpolation, as memory grows nearly linearly; null if any does. */
function largest(fits: (n: bigint) => boolean, total: (n: number) => number, memory: number): bigint | null {
	if (!fits(1n)) return 0n;
	if (fits(MAX_TOKENS - 1n)) return null;
	let [low, high] = [1n, MAX_TOKENS - 1n];
	let [atLow, atHigh] = [total(1), total(Number(high))];
	for (let step = 0; high - low > 1n; step++) {
		const share = step % 3 === 2 ? 0.5 : Math.min(Math.max((memory - atLow) / (atHigh - atLow || 1), 0), 1);
		const guess = low + BigInt(Math.floor(Number(high - low) * share));
		const middle = guess <= low ? low + 1n : guess >= high ? high - 1n : guess;
		if (fits(middle)) [low, atLow] = [middle, total(Number(middle))];
		else [high, atHigh] = [middle, total(Number(middle))];
	}
	return low;
}
