// What page_data/sizing/layouts_data.py sends: a few plans for training and for serving.
import type { Digits, ModelData } from "../../lib/data";

export interface StageOfLayout {
	layers: string;
	first: boolean;
	last: boolean;
}

/** A stage of a training plan, with what each of its GPUs holds. */
export interface TrainingStage extends StageOfLayout {
	parts: Record<string, Digits>;
}

/**
 * Experts of a layer: all, those on a GPU, and the expert-parallel rank of each GPU of a stage,
 * tensor-parallel ranks first.
 */
export interface ExpertsOfRanks {
	all: Digits;
	each: Digits;
	ranks: number[];
}

/**
 * Passes as (stage, microbatch, whether backward, start); a forward pass takes one unit, a backward
 * pass two.
 */
export interface Schedule {
	stages: number;
	microbatches: number;
	slots: [number, number, number, number][];
}

/**
 * What context parallelism gives each rank: two parts of every sequence, and the keys and values of
 * the others.
 */
export interface PartsOfSequence {
	parts: number;
	tokens: Digits;
	/** Query-key pairs of each rank. */
	pairs: Digits[];
	/**
	 * Elements that a token leaves in one layer, on one rank of tensor parallelism, and the bytes
	 * of one.
	 */
	elements: Digits;
	bytes: Digits;
	/** Bytes of a layer's keys and values: all, and those from other ranks. */
	gathered: Digits;
	received: Digits;
	/** Bytes of a step. */
	sent: Digits;
}

export interface TrainingPlan {
	name: string;
	axes: Record<"tp" | "pp" | "cp" | "ep" | "dp", Digits>;
	parts_of_sequence: PartsOfSequence | null;
	zero: string;
	microbatches: Digits;
	recompute: string;
	stages: TrainingStage[];
	experts: ExpertsOfRanks | null;
	fullest: number;
	parts: Record<string, Digits>;
	memory: Digits;
	seconds: Record<string, number>;
	mfu: number;
	rate: number;
	tokens: number;
	schedule: Schedule | null;
}

export interface ServingPlan {
	name: string;
	tp: Digits;
	pp: Digits;
	replicas: Digits;
	batch: Digits;
	memory: Digits;
	seconds: number;
	rate: number;
	bound: string;
	stages: StageOfLayout[];
}

export interface TrainingPlans {
	gpus: Digits;
	context: Digits;
	sequences: Digits;
	dtype: string;
	peak: Digits;
	plans: TrainingPlan[];
	/** Why a sequence is not divided, or not into more parts. */
	undivided: string;
}

export interface Parallel {
	gpu: string;
	training: TrainingPlans | null;
	/** With sequences as long as the model's context; null for models with a short one. */
	long: TrainingPlans | null;
	serving: {
		gpus: Digits;
		context: Digits;
		dtype: string;
		degrees: Digits[];
		plans: ServingPlan[];
	};
}

export const parallelOf = (model: ModelData) => model.parallel as Parallel;
