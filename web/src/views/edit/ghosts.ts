// What a picture of a layer says of the same layer before an edit: outlines of its matrices, and
// their sizes in brackets.
import type { ModelData } from "../../lib/data";
import { sizeElsewhere, useText } from "../compare/layer_difference";
import type { Matrix } from "../plate/contract";
import type { Comparison } from "../plate/measure";
import { kindAt, plateOf, stagesOf, type Pass, type Stage } from "../plate/plate_model";

/** The stage of the original that corresponds to a layer of the edited model: it has its steps. */
export function originalStage(original: ModelData, stage: Stage, pass: Pass): Stage | null {
	const names = (x: Stage) => x.steps.map((y) => y.name).join();
	return stagesOf(original, pass).find((x) => names(x) === names(stage)) ?? null;
}

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
			return use ? [`(${sizeElsewhere(matrix.use, use)})`] : [];
		},
		notesOf: () => [],
	};
}
