// What page_data/inference_data.py and training_data.py send: a model's memory and work as
// expressions of the settings.
import type { Digits, MemoryLine, ModelData } from "../data";
import { data } from "../data";
import type { Expression, Operation } from "../expressions";
import type { TrainingChoice } from "../settings";

type Named = Record<string, Digits>;

export interface DType {
	name: string;
	/** The name as people write it. */
	title: string;
	bytes: Digits;
	/** The sum of the weights' formulas: in names, in numbers. */
	of: [string, string];
	codecs: Record<string, string>;
	/** Bits of a weight on average, and those by which `fit` weighs a change to this format. */
	bits: { mean: number; suggested: number | null };
	/** The bytes of an element of each kind of weights, as text. */
	each: Named;
	variables: Named;
	/** Dtypes of the matrix products, best first. */
	rates: string[];
	/** GPUs on which programs do not run this format. */
	unsupported: string[];
	/** GPUs that have no products in the dtype of this format. */
	dequantized: string[];
}

/** A stage of a pipeline; its expressions are places in `Sizes.forms`. */
export interface StageData {
	where: string;
	/** The elements of each kind of weights times its bytes. */
	weights: Expression;
	cache: { what: string; form: number }[];
	activations: number;
	logits: number;
	overhead: number;
}

export interface LayoutData {
	tp: Digits;
	pp: Digits;
	name: string;
	stages: StageData[];
	/** Missing where no bound of the speed is known. */
	speed?: Record<"decode" | "prefill", Record<"tokens" | "bytes" | "FLOPs", Expression>>;
	/** Bytes of weights; `more` is added under the dtypes that it names. */
	read: Record<string, Expression | { form: Expression; more: Record<string, number> }>;
}

export interface TrainingData {
	tokens: Expression;
	zero: Record<string, Digits>;
	choices: { label: string; name: TrainingChoice; options: [string, string][] }[];
	kept: Record<string, string>;
	gpus: Digits[];
	/** What a page begins with. */
	start: { trainers: Digits; tp: Digits };
	ranks: Digits[];
	/** Lines are places in `lines`. */
	static: Record<
		string,
		Record<string, Record<string, number[]> & { optimizer: Record<string, number[]> }>
	>;
	moving: Record<string, Record<string, number[]>>;
	lines: MemoryLine[];
}

export interface Sizes {
	context: Digits;
	/** The context length of the model. */
	own: Digits;
	/** Whether the model states one. */
	stated: boolean;
	dtype: string;
	kv: string;
	dtypes: DType[];
	/** `wide`: `fit` suggests a smaller one. */
	kvs: { name: string; title: string; variables: Named; wide: boolean }[];
	layouts: LayoutData[];
	/** For each number of GPUs, (layout, replicas) in the order in which `fit` tries them. */
	gpus: { count: Digits; splits: [number, number][] }[];
	forms: Expression[];
	/** Missing where no bound of the speed is known. */
	work?: Record<"decode" | "prefill", Expression>;
	notes: Record<string, string[]>;
	/** The bytes of each component of the weights, by dtype. */
	spine: Record<string, Record<string, Digits>>;
	/** Missing where training is not sized. */
	training?: TrainingData;
}

export interface Gpu {
	name: string;
	title: string;
	memory: Digits;
	nominal: Digits;
	bandwidth: Digits;
	node: number;
	source: string;
	/** FLOP/s by dtype. */
	flops: Record<string, Digits>;
	/** Weight formats and KV cache dtypes below 16 bits that `fit` suggests for it. */
	formats: string[];
	kvs: string[];
	/** Why many people can use it; empty if no reason is known. */
	common: string;
	/** Whether the pictures show it. */
	shown: boolean;
}

export const sizesOf = (model: ModelData) => model.sizes as Sizes;
export const GPUS = data.gpus as Gpu[];
/** The rules of `fit`. */
export const FIT = data.fit as {
	/** The bytes of a GPU that are left: a model fits where they are not negative. */
	left: Expression;
	/** Those of the share that may be planned with: hardware is recommended where they are not. */
	headroom: Expression;
	/** Of a stage, by `width`, `stream`, `vocab` and TP. */
	activations: Expression;
	logits: Expression;
	overhead: Expression;
	/** A context as it is suggested, up to one that fits. */
	rounded: Expression;
	/**
	 * The smallest hardware first: of each number of GPUs, groups of equally large ones, which are
	 * places in GPUS. The first group in which a model fits with headroom has the smallest; it is the fastest.
	 */
	smallest: [count: Digits, groups: number[][]][];
	/** The numbers of GPUs over which a model is split, and the context of a model that states none. */
	counts: number[];
	context: Digits;
	/** What gives up more halvings is not suggested, nor more combinations than these. */
	halvings: number;
	/** Bits of a weight that are combined with other GPUs. */
	bits: number[];
	/** Notes on a format and a GPU, which they name in braces. */
	dequantized: string;
	no_kernels: string;
	suggestions: number;
};
export const ROOF = data.roof as Record<"rate" | "reached" | "intensity" | "bound", Operation>;
