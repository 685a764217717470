// The memory of each GPU for inference or training, evaluated from the library's expressions.
import type { MemoryLine } from "../data";
import {
	bindApproximately,
	bindExactly,
	sumOf,
	value,
	type Evaluate,
	type Expression,
	type Variables,
} from "../expressions";
import type { State, TrainingChoice } from "../settings";
import { FIT, type DType, type LayoutData, type Sizes, type TrainingData } from "./data";

/** The settings on which the memory of a model depends, whatever the hardware. */
export type Load = "context" | "batch" | "dtype" | "kv";

export const INFERENCE_PARTS = ["weights", "cache", "activations", "logits", "overhead"] as const;
export const TRAINING_PARTS = [
	"weights",
	"gradients",
	"master",
	"optimizer",
	"activations",
	"logits",
	"overhead",
] as const;
export type Part = (typeof INFERENCE_PARTS)[number] | (typeof TRAINING_PARTS)[number];
export const MAX_TOKENS = 2n ** 32n;

export interface Stage {
	where: string;
	lines: Record<string, MemoryLine[]>;
}

/**
 * What is evaluated for each GPU: the stages with their expressions, and the values of all
 * variables but the parts.
 */
export interface Plan {
	mode: "run" | "train";
	parts: readonly Part[];
	stages: Stage[];
	variables: Variables<bigint>;
	/** The parts as functions of context and batch. */
	memory: BoundMemory;
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
	/** The variables that context and batch do not change; the same object for the same choices. */
	constants: Variables<bigint>;
	variables: Variables<bigint>;
	plan: Plan;
}

/** The parts of the memory of one GPU of a stage, with all variables. */
export type StageMemory = Variables<bigint> & { total: bigint };
export interface GpuMemory {
	values: StageMemory;
	stage: Stage;
}

const integers = (texts: Record<string, string>) =>
	Object.fromEntries(Object.entries(texts).map(([name, n]) => [name, BigInt(n)]));
const line = (what: string, form: Expression): MemoryLine[] => [{ what, form, says: "" }];
const ceilDiv = (a: bigint, b: bigint) => -(-a / b) + (a % b ? 1n : 0n);

interface Kept<K, V> {
	get(key: K): V | undefined;
	set(key: K, value: V): unknown;
}

/** What is kept under a key; made where it is not there yet. */
function remember<K, V>(kept: Kept<K, V>, key: K, make: () => V): V {
	let found = kept.get(key);
	if (found === undefined) kept.set(key, (found = make()));
	return found;
}

const stagesOf = new WeakMap<LayoutData, Stage[]>();
const constantsOf = new WeakMap<LayoutData, Map<string, Variables<bigint>>>();
const boundTo = new WeakMap<Variables<bigint>, BoundMemory>();
const trainingMemory = new WeakMap<TrainingData, Map<string, BoundMemory>>();

/** The stages of a layout; made once, so that their expressions are compiled once. */
function inferenceStages(sizes: Sizes, layout: LayoutData): Stage[] {
	const form = (i: number) => sizes.forms[i]!;
	return remember(stagesOf, layout, () =>
		layout.stages.map((x) => ({
			where: x.where,
			lines: {
				weights: line("weights", x.weights),
				cache: x.cache.map((y) => ({ what: y.what, form: form(y.form), says: "" })),
				activations: line("activations", form(x.activations)),
				logits: line("logits", form(x.logits)),
				overhead: line("overhead", form(x.overhead)),
			},
		})),
	);
}

export const splitName = ({ replicas, layout }: Split) =>
	`${replicas > 1 ? `${replicas} replicas of ` : ""}${layout.name}`;

export const splitLabel = (split: Split, count: string) =>
	count === "1" ? "one GPU" : `${count} GPUs, ${splitName(split)}`;

function inferencePlan(sized: Omit<Sized, "plan">): Plan {
	const { sizes, split, constants, variables, count } = sized;
	const stages = inferenceStages(sizes, split.layout);
	const memory = remember(
		boundTo,
		constants,
		() => new BoundMemory(INFERENCE_PARTS, stages, constants),
	);
	return {
		mode: "run",
		parts: INFERENCE_PARTS,
		stages,
		variables,
		memory,
		label: splitLabel(split, count),
		gpus: count,
	};
}

type TrainingSettings = Pick<State, Load | "trainers" | "tp" | TrainingChoice>;

function trainingPlan(sizes: Sizes, state: TrainingSettings, trainingTp: string): Plan {
	const training = sizes.training!;
	const chosen = Object.fromEntries(
		training.choices.map((x) => [
			x.name,
			(x.options.find((y) => y[0] === state[x.name]) ?? x.options[0]!)[0],
		]),
	);
	const gpus = training.gpus.includes(state.trainers) ? state.trainers : "1";
	const ranks = training.ranks.filter((x) => Number(x) <= Number(gpus));
	const tp = ranks.includes(state.tp) ? state.tp : trainingTp;
	const dp = String(Number(gpus) / Number(tp));
	const resident = training.static[chosen.precision!]![tp]!;
	const moving =
		training.moving[
			`${training.kept[chosen.precision!]} ${chosen.attention} ${chosen.kernels}`
		]!;
	const places = {
		...resident,
		optimizer: resident.optimizer[chosen.optimizer!]!,
		activations: moving[chosen.recompute!]!,
		logits: moving.logits!,
	};
	const lines = Object.fromEntries(
		Object.entries(places).map(([part, list]) => [part, list.map((i) => training.lines[i]!)]),
	);
	const sharded = Object.entries(training.zero).map(([name, stage]) => [
		name,
		Number(chosen.zero) >= Number(stage) ? dp : "1",
	]);
	const constants = integers({ TP: tp, ...Object.fromEntries(sharded) });
	const variables = { ...constants, T: state.context, B: state.batch };
	const key = JSON.stringify([tp, dp, chosen]);
	const memory = remember(
		remember(trainingMemory, training, () => new Map<string, BoundMemory>()),
		key,
		() => new BoundMemory(TRAINING_PARTS, [{ where: "", lines }], constants, training.tokens),
	);
	const label =
		gpus === "1" ? "one GPU" : `each of ${gpus} GPUs, TP ${tp} × DP ${dp}, ZeRO-${chosen.zero}`;
	return {
		mode: "train",
		parts: TRAINING_PARTS,
		stages: memory.stages,
		variables,
		memory,
		label,
		gpus,
		tokens: training.tokens,
		training: { ranks, tp, dp, chosen },
	};
}

/** The dtypes of weights and KV cache that are chosen. */
export function chosenDtypes(sizes: Sizes, state: Pick<State, "dtype" | "kv">) {
	const dtype = sizes.dtypes.find((x) => x.name === state.dtype) ?? sizes.dtypes[0]!;
	const kv =
		sizes.kvs.find((x) => x.name === state.kv) ?? sizes.kvs.find((x) => x.name === sizes.kv)!;
	return { dtype, kv };
}

/** The model in one split; every replica has its part of the sequences. */
export function sizedIn(
	sizes: Sizes,
	state: Pick<State, Load>,
	split: Split,
	count: string,
): Sized {
	const { dtype, kv } = chosenDtypes(sizes, state);
	const { layout } = split;
	const constants = remember(
		remember(constantsOf, layout, () => new Map<string, Variables<bigint>>()),
		`${dtype.name} ${kv.name}`,
		() => {
			const own = integers({ TP: layout.tp, ...dtype.variables, ...kv.variables });
			const bytes = (x: LayoutData["read"][string]): bigint =>
				typeof x === "object" && "form" in x
					? value(x.form, own) + BigInt(x.more[dtype.name] ?? 0)
					: value(x, own);
			return {
				...own,
				...Object.fromEntries(
					Object.entries(layout.read).map(([name, x]) => [name, bytes(x)]),
				),
			};
		},
	);
	const variables = {
		...constants,
		T: state.context,
		B: ceilDiv(state.batch, BigInt(split.replicas)),
	};
	const sized = { sizes, dtype, kv, split, count, constants, variables };
	return { ...sized, plan: inferencePlan(sized) };
}

export function splitsOf(sizes: Sizes, count: string, node = 8): Split[] {
	const found = sizes.gpus.find((x) => x.count === count) ?? sizes.gpus[0]!;
	const splits = found.splits.map(([i, replicas]) => ({ layout: sizes.layouts[i]!, replicas }));
	return splits.filter((x) => Number(x.layout.tp) <= node);
}

/**
 * The split that the settings name: with this tensor parallelism in one replica, else null: `fit`
 * chooses.
 */
export function namedSplit(sizes: Sizes, state: Pick<State, "tp">, count: string): Split | null {
	return (
		(state.tp &&
			splitsOf(sizes, count).find((x) => x.layout.tp === state.tp && x.replicas === 1)) ||
		null
	);
}

/** Turns inference settings into those of training where these are chosen. */
export function withMode(
	sized: Sized,
	state: TrainingSettings & Pick<State, "mode">,
	memory: bigint,
): Sized {
	const { training } = sized.sizes;
	if (state.mode !== "train" || !training) return sized;
	const { ranks, start } = training;
	if (state.trainers === start.trainers)
		return { ...sized, plan: trainingPlan(sized.sizes, state, start.tp) };
	// without a choice, the least tensor parallelism with which a step fits the GPU, else the most
	const plans = ranks
		.filter((x) => Number(x) <= Number(state.trainers))
		.map((tp) => trainingPlan(sized.sizes, state, tp));
	const plan =
		plans.find((x) => leftOf(memoryPerGpu({ plan: x }).mostLoaded.values, memory) >= 0n) ??
		plans.at(-1) ??
		trainingPlan(sized.sizes, state, "1");
	return { ...sized, plan };
}

const numbers = (variables: Variables<bigint>): Variables<number> =>
	Object.fromEntries(Object.entries(variables).map(([name, n]) => [name, Number(n)]));

/** A stage with a function for each part, which may use the parts before it. */
interface BoundStage<N> {
	stage: Stage;
	parts: [part: Part, evaluate: Evaluate<N>][];
}

/**
 * The memory of the GPUs of some choices, bound to all that context and batch do not change; what
 * was found is kept.
 */
class BoundMemory {
	readonly exact: BoundStage<bigint>[];
	readonly approximate: BoundStage<number>[];
	readonly exactTokens: Evaluate<bigint> | null;
	readonly approximateTokens: Evaluate<number> | null;
	private readonly limits = new Map<string, bigint | null>();

	constructor(
		parts: readonly Part[],
		readonly stages: Stage[],
		constants: Variables<bigint>,
		tokens?: Expression,
	) {
		const approximations = numbers(constants);
		const bound = <N>(
			bind: (x: Expression, known: Variables<N>) => Evaluate<N>,
			known: Variables<N>,
		): BoundStage<N>[] =>
			stages.map((stage) => ({
				stage,
				parts: parts.map((part) => [
					part,
					bind(sumOf(stage.lines[part]!.map((x) => x.form)), known),
				]),
			}));
		this.exact = bound(bindExactly, constants);
		this.approximate = bound(bindApproximately, approximations);
		this.exactTokens = tokens === undefined ? null : bindExactly(tokens, constants);
		this.approximateTokens =
			tokens === undefined ? null : bindApproximately(tokens, approximations);
	}

	/** The answer to a question about these choices; a slider asks the same again and again. */
	limit(key: string, find: () => bigint | null): bigint | null {
		if (this.limits.size > MOST_LIMITS) this.limits.clear();
		return remember(this.limits, key, find);
	}
}

const MOST_LIMITS = 1000;

function evaluateStage(
	{ stage, parts }: BoundStage<bigint>,
	variables: Variables<bigint>,
	tokens: Evaluate<bigint> | null,
): GpuMemory {
	const values = { ...variables } as StageMemory;
	if (tokens) values.T = tokens(variables);
	let total = 0n;
	for (const [part, evaluate] of parts) total += values[part] = evaluate(values);
	values.total = total;
	return { values, stage };
}

/** The memory of a GPU in each stage, and of the most loaded one. */
export function memoryPerGpu(
	{ plan }: Pick<Sized, "plan">,
	context = plan.variables.T!,
	batch = plan.variables.B!,
) {
	const variables = { ...plan.variables, T: context, B: batch };
	const shares = plan.memory.exact.map((x) =>
		evaluateStage(x, variables, plan.memory.exactTokens),
	);
	const mostLoaded = shares.reduce((a, x) => (x.values.total > a.values.total ? x : a));
	return { shares, mostLoaded };
}

/**
 * Memory in floating point, for positions in pixels and for comparisons that are far from equal.
 */
export class ApproximateMemory {
	constructor(private readonly plan: Plan) {}

	/** Every part on the most loaded GPU, and their sum. */
	parts(context: number, batch = Number(this.plan.variables.B)): Record<string, number> {
		return this.stages(context, batch).reduce((a, x) => (x.total! > a.total! ? x : a));
	}

	total(context: number, batch = Number(this.plan.variables.B)): number {
		let most = 0;
		for (const { total } of this.stages(context, batch)) most = Math.max(most, total!);
		return most;
	}

	private stages(T: number, B: number): Variables<number>[] {
		const { approximate, approximateTokens } = this.plan.memory;
		return approximate.map(({ parts }) => {
			const values: Variables<number> = { T, B };
			if (approximateTokens) values.T = approximateTokens(values);
			let total = 0;
			for (const [part, evaluate] of parts) total += values[part] = evaluate(values);
			values.total = total;
			return values;
		});
	}
}

const approximateLeft = bindApproximately(FIT.left, {});
/** The bytes that are left on a GPU. */
export const leftOf = ({ total }: Pick<StageMemory, "total">, memory: bigint): bigint =>
	value(FIT.left, { memory, total });
/** Those that are left of what may be planned with. */
export const headroomOf = ({ total }: Pick<StageMemory, "total">, memory: bigint): bigint =>
	value(FIT.headroom, { memory, total });

/**
 * Compares memory exactly: in floating point where the two are far apart, else in whole numbers.
 */
export class MemoryLimit {
	readonly approximate: ApproximateMemory;

	constructor(private readonly plan: Plan) {
		this.approximate = new ApproximateMemory(plan);
	}

	fits(context: bigint, batch: bigint, memory: bigint): boolean {
		return this.margin(context, batch, memory) >= 0;
	}

	/** The bytes that are left, in floating point; its sign is exact. */
	private margin(context: bigint, batch: bigint, memory: bigint): number {
		const limit = Number(memory);
		const left = approximateLeft({
			memory: limit,
			total: this.approximate.total(Number(context), Number(batch)),
		});
		if (Math.abs(left) > 1e-9 * limit + 64) return left;
		return Number(
			leftOf(memoryPerGpu({ plan: this.plan }, context, batch).mostLoaded.values, memory),
		);
	}

	/** The longest context that fits: 0n if none does, null if any does. */
	longestContext(memory: bigint, batch = this.plan.variables.B!): bigint | null {
		return this.plan.memory.limit(`batch ${batch} in ${memory}`, () =>
			largest((n) => this.margin(n, batch, memory)),
		);
	}

	/** The most sequences that fit at a context, in the same sense. */
	largestBatch(memory: bigint, context = this.plan.variables.T!): bigint | null {
		return this.plan.memory.limit(`context ${context} in ${memory}`, () =>
			largest((n) => this.margin(context, n, memory)),
		);
	}
}

/**
 * The largest whole number below MAX_TOKENS whose margin is not negative, found by interpolation,
 * as memory grows nearly linearly; null if any has.
 */
function largest(margin: (n: bigint) => number): bigint | null {
	let [low, high] = [1n, MAX_TOKENS - 1n];
	let [atLow, atHigh] = [margin(low), margin(high)];
	if (atLow < 0) return 0n;
	if (atHigh >= 0) return null;
	for (let step = 0; high - low > 1n; step++) {
		const share = step % 3 === 2 ? 0.5 : atLow / (atLow - atHigh);
		const guess = low + BigInt(Math.floor(Number(high - low) * share));
		const middle = guess <= low ? low + 1n : guess >= high ? high - 1n : guess;
		const found = margin(middle);
		if (found >= 0) [low, atLow] = [middle, found];
		else [high, atHigh] = [middle, found];
	}
	return low;
}
