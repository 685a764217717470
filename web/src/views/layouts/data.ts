// What page_data/sizing/layouts_data.py sends: a few plans for training and for serving.
import type { Digits, ModelData } from "../../lib/data";

export interface StageOfLayout {
	layers: string;
	first: boolean;
	last: boolean;
}

/** Passes as (stage, microbatch, whether backward, start); a forward pass takes one unit, a backward pass two. */
export interface Schedule {
	stages: number;
	microbatches: number;
	slots: [number, number, number, number][];
}

export interface TrainingPlan {
	axes: Record<"tp" | "pp" | "ep" | "dp", Digits>;
	zero: string;
	microbatches: Digits;
	recompute: string;
	stages: StageOfLayout[];
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

export interface Parallel {
	gpu: string;
	training: { gpus: Digits; context: Digits; sequences: Digits; dtype: string; peak: Digits; plans: TrainingPlan[] } | null;
	serving: { gpus: Digits; context: Digits; dtype: string; degrees: Digits[]; plans: ServingPlan[] };
}

export const parallelOf = (model: ModelData) => model.parallel as Parallel;

/** The degrees above one, as in TP 8 × PP 4. */
export function axesText(axes: Record<string, Digits>): string {
	return Object.entries(axes).filter((x) => x[1] !== "1").map(([name, n]) => `${name === "replicas" ? "replicas" : name.toUpperCase()} ${n}`).join(" × ") || "one GPU";
}
