// How two layers differ, step by step: a step of one model corresponds to the step of the same name
// in the other.
import { value } from "../../lib/expressions";
import { grouped, times } from "../../lib/format";
import { isMatrix } from "../plate/contract";
import type { Mark } from "../plate/layer_picture";
import {
	asNumber,
	layersOfKind,
	numLayers,
	mapSides,
	type HeadGroups,
	type PlateData,
	type Stage,
	type Step,
	type WeightUse,
} from "../plate/plate_model";

export interface StepPair {
	name: string;
	/** The step in each model. */
	steps: [Step | null, Step | null];
	mark: Mark;
	/** What each model has in the place, in words and numbers. */
	texts: [string, string];
}

/** Inputs → outputs of a matrix with its copies; the length of a vector. */
export function useText(use: WeightUse): string {
	const shape = use.shape.map((n) => grouped(n));
	const [outputs, inputs] = mapSides(use, shape);
	const size = shape.length > 1 ? `${inputs.join(" × ")} → ${outputs.join(" × ")}` : shape[0]!;
	return (
		size +
		(use.live === use.copies
			? times(use.copies)
			: ` × ${grouped(use.copies)}, ${grouped(use.live)} active`)
	);
}

/** The size of a matrix in the other model: its outputs, if these alone differ, else the whole. */
export function sizeElsewhere(own: WeightUse, other: WeightUse): string {
	const [[outputs, inputs], [, ownInputs]] = [other, own].map((x) =>
		mapSides(
			x,
			x.shape.map((n) => grouped(n)),
		).map((side) => side.join(" × ")),
	) as [[string, string], [string, string]];
	const isOneSided =
		own.shape.length > 1 && own.copies === other.copies && own.live === other.live;
	if (isOneSided && inputs === ownInputs) return outputs;
	return useText(other);
}

type HeadSharing = HeadGroups & { kind: "heads" };
const sharingOf = (stage: Stage) => stage.heads.find((x): x is HeadSharing => x.kind === "heads");

const plural = (n: number, name: string): string =>
	`${grouped(n)} ${(n === 1 ? name.replace(/(head|vector|group|expert)s/, "$1") : name).replace("key and value head", "KV head")}`;

/**
 * What a step without weights does, with the heads, the experts and the cache that decide its size.
 */
function operationText(step: Step, stage: Stage): string {
	const at = { T: 1n, B: 1n };
	if (step.kind === "scores" || step.kind === "state") {
		const heads = sharingOf(stage);
		return heads
			? `${plural(asNumber(heads.n), heads.many)}, ${plural(asNumber(heads.k), heads.few)}`
			: step.does;
	}
	if (step.kind === "choice") return step.does.replace(" with their weights", "");
	if (step.kind === "cache") return `${grouped(value(step.keeps, at))} cached per token`;
	if (step.kind === "mix") return `values of ${grouped(value(step.shape.at(-1)!, at))} per head`;
	// where heads are split is no difference
	return step.does.replace("split into heads, ", "").replace("rotated by position", "RoPE");
}

/** The weights of a step and what it does. */
function stepText(step: Step, stage: Stage): string {
	const matrix = step.uses.find(isMatrix) ?? step.uses[0];
	if (!matrix) return operationText(step, stage);
	if (step.kind === "choice")
		return `${operationText(step, stage)}, with ${step.uses[0]!.path.split(".").at(-1)!.replaceAll("_", " ")}`;
	const bias =
		step.uses.length > 1 && step.uses.some((x) => /bias$/.test(x.path)) ? " + bias" : "";
	const does = step.kind === "linear" || step.kind === "lookup" ? "" : `${step.does}, `;
	return `${does}${useText(matrix)}${bias}`;
}

export function compareStages(a: Stage, b: Stage): StepPair[] {
	const byName = [a, b].map((x) => new Map(x.steps.map((y) => [y.name, y]))) as [
		Map<string, Step>,
		Map<string, Step>,
	];
	const names = merged(
		a.steps.map((x) => x.name),
		b.steps.map((x) => x.name),
	);
	return names.map((name) => {
		const steps: [Step | null, Step | null] = [
			byName[0].get(name) ?? null,
			byName[1].get(name) ?? null,
		];
		const texts = steps.map((x, i) => (x ? stepText(x, [a, b][i]!) : "")) as [string, string];
		const [x, y] = steps;
		return {
			name,
			steps,
			texts,
			mark:
				!x || !y
					? "only"
					: texts[0] === texts[1] && x.kind === y.kind && x.parameters === y.parameters
						? "same"
						: "differs",
		};
	});
}

/**
 * The names of both lists; those of the second alone stand behind the last common name before them.
 */
function merged(a: string[], b: string[]): string[] {
	const all = [...a];
	let at = 0;
	for (const name of b) {
		const found = all.indexOf(name);
		if (found >= 0) at = Math.max(at, found + 1);
		else all.splice(at++, 0, name);
	}
	return all;
}

const isAttention = (label: string) => /attention|MLA/.test(label);

/**
 * How well a kind of layer corresponds to another, by the parts of their names: attention + MoE.
 */
function likeness(a: string, b: string): number {
	const [mixers, ffns] = [a.split(" + "), b.split(" + ")];
	return (
		Number(mixers[0] === ffns[0]) * 2 +
		Number(mixers.at(-1) === ffns.at(-1)) * 2 +
		Number(isAttention(a) === isAttention(b))
	);
}

/** The kind of the other model that is most like a kind; of several, the most frequent. */
export function correspondingKind(from: PlateData, kind: number, to: PlateData): number {
	const rank = (i: number) =>
		likeness(from.kinds[kind]!.label, to.kinds[i]!.label) +
		layersOfKind(to, i) / (numLayers(to) + 1);
	return to.kinds.reduce((best, _, i) => (rank(i) > rank(best) ? i : best), 0);
}
