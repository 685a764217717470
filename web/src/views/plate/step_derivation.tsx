// What a step computes: its shape, weights, FLOPs and what it writes to the cache, each in letters
// and in numbers.
import type { ComponentChildren } from "preact";
import {
	derivation,
	formula,
	inShort,
	legend,
	sumFormula,
	type Derivation,
} from "../../lib/derivation";
import { notation, value, type Expression, type Variables } from "../../lib/expressions";
import { grouped } from "../../lib/format";
import { asNumber, type HeadGroups, type Stage, type Step, type WeightUse } from "./plate_model";

export const shapeOf = (
	shape: readonly Expression[],
	variables: Variables<bigint>,
	letters: boolean,
): string =>
	`[${shape.map((x) => (letters ? notation(x, variables, true) : value(x, variables).toString())).join(", ")}]`;

const inNumbers = (shape: readonly Expression[], variables: Variables<bigint>) =>
	`[${shape.map((x) => notation(x, variables, false)).join(", ")}]`;

function weightLines(use: WeightUse): ComponentChildren[] {
	const inParentheses = (x: string) => (/[+−]/.test(x) ? `(${x})` : x);
	const copies = BigInt(use.copies);
	const factor = copies === 1n ? [] : [grouped(use.copies)];
	const letters = [...factor, ...use.dims.map(inParentheses)].join("·");
	const numbers = [...factor, ...use.shape.map((n) => grouped(n))].join("·");
	const result = use.tied
		? `no parameters of its own: tied to ${use.tied}`
		: copies === 0n
			? "counted at the step that uses it first"
			: `${grouped(use.parameters)} parameters`;
	const sides = use.dims.map((x, i) =>
		use.numbers[i] ? formula(x, use.numbers[i], grouped(use.shape[i]!)) : false,
	);
	return [formula(`${use.path}: ${letters}`, numbers !== letters && numbers, result), ...sides];
}

/** Query heads over KV heads, and the like. */
const headRatio = (x: HeadGroups & { kind: "heads" }) =>
	formula(
		...[true, false].map(
			(letters) => `${notation(x.n, {}, letters)} / ${notation(x.k, {}, letters)}`,
		),
		`${asNumber(x.n) / asNumber(x.k)} ${x.many} for each of ${x.few}`,
	);

export function stepDerivation(step: Step, stage: Stage, variables: Variables<bigint>): Derivation {
	const { shape, each, flops, keeps } = step;
	const shapes = [
		...new Set([
			shapeOf(shape, variables, true),
			inNumbers(shape, variables),
			shapeOf(shape, variables, false),
		]),
	];
	const part = (text: string, form: Expression, unit: string) =>
		form === 0 ? [] : [text, derivation(form, variables, unit)[0]];
	const heads = stage.heads.filter(
		(x): x is HeadGroups & { kind: "heads" } => x.kind === "heads",
	);
	return {
		title: step.name,
		lines: [
			step.does,
			step.takes.length
				? `Inputs: ${step.takes.map((x) => (x === "x" ? "the residual stream" : x)).join(", ")}. Output:`
				: "Output:",
			formula(...shapes),
			...(step.uses.length ? step.uses.flatMap(weightLines) : ["No weights."]),
			...(step.uses.length > 1
				? [
						sumFormula(
							step.uses.map((x): [string, string] => [x.path, x.parameters]),
							"parameters",
						),
					]
				: []),
			...inShort("parameters", BigInt(step.parameters)),
			...(step.kind === "scores" ? heads.map(headRatio) : []),
			...part(
				"For each token:",
				each.length === 1 ? each[0]! : each.length ? (["+", ...each] as Expression) : 0,
				"FLOPs",
			),
			...part("In this pass:", flops, "FLOPs"),
			...part("In the cache after this pass:", keeps, "elements"),
			legend(["+", ...shape, flops, keeps] as Expression),
		],
	};
}
