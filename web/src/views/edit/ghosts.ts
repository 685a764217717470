// A layer compared with the same layer before an edit: outlines of its matrices, and
// their sizes in brackets.
import type { ModelData } from "../../lib/data";
import { sizeElsewhere, useText } from "../compare/layer_difference";
import type { Matrix } from "../plate/contract";
import type { Comparison } from "../plate/measure";
import { stagesOf, type Stage } from "../plate/plate_model";

const stepsOf = (x: Stage) => `${x.name}: ${x.steps.map((y) => y.name).join()}`;

/** The layer of the original that has the steps of a layer of the edited model. */
export const originalStage = (original: ModelData, stage: Stage): Stage | null =>
	stagesOf(original, "prompt").find((x) => stepsOf(x) === stepsOf(stage)) ?? null;

/** How a layer compares with the one before the edit. */
export function comparedWith(before: Stage): Comparison {
	const steps = new Map(before.steps.map((x) => [x.name, x]));
	const found = ({ step, use }: Matrix) =>
		steps.get(step.name)?.uses.find((x) => x.path === use.path) ?? null;
	const changed = (matrix: Matrix) => {
		const use = found(matrix);
		return use && useText(use) !== useText(matrix.use) ? use : null;
	};
	return {
		matrixOf: changed,
		linesOf: (matrix) => {
			const use = changed(matrix);
			return use ? [`(was ${sizeElsewhere(matrix.use, use)})`] : [];
		},
		notesOf: () => [],
	};
}
