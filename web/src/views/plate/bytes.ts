// Bytes that a pass reads in one layer: of its active weights and of its KV cache, from the
// library's numbers and expressions.
import type { ModelData } from "../../lib/data";
import { value, type Expression, type Variables } from "../../lib/expressions";
import type { State } from "../../lib/state";
import type { Stage, Step } from "./plate_model";

interface LayerBytes {
	paths: string[];
	of: Record<string, string[]>;
	cache: Expression;
}

interface Layers {
	kinds: LayerBytes[];
	order: number[];
}

interface Sizes {
	dtypes: { name: string }[];
	kvs: { name: string; variables: Record<string, string> }[];
}

export const dtypeOf = (model: ModelData, state: Pick<State, "dtype">): string =>
	state.dtype || (model.sizes as Sizes).dtypes[0]!.name;
const kvOf = (model: ModelData, state: Pick<State, "kv">) =>
	(model.sizes as Sizes).kvs.find((x) => x.name === state.kv) ?? (model.sizes as Sizes).kvs[0]!;
export const kvName = (model: ModelData, state: Pick<State, "kv">): string =>
	kvOf(model, state).name;

/** Undefined for models whose layers the page does not list one by one. */
function layerBytes(model: ModelData, layer: number): LayerBytes | undefined {
	const { kinds, order } = model.layers as Layers;
	return kinds[order[layer] ?? -1];
}

/** The bytes of all copies of a weight in a layer. */
export function weightBytes(
	model: ModelData,
	layer: number,
	path: string,
	dtype: string,
): bigint | null {
	const found = layerBytes(model, layer);
	const at = found?.paths.indexOf(`layers.{l}.${path}`) ?? -1;
	const bytes = at < 0 ? undefined : found!.of[dtype]?.[at];
	return bytes === undefined ? null : BigInt(bytes);
}

/** The bytes of the weights that one token uses in a step; null if they are not known. */
export function activeBytes(
	model: ModelData,
	layer: number,
	step: Step,
	dtype: string,
): bigint | null {
	let sum = 0n;
	for (const use of step.uses) {
		if (use.tied || use.copies === "0") continue;
		const all = weightBytes(model, layer, use.path, dtype);
		if (all === null) return null;
		sum += (all * BigInt(use.live)) / BigInt(use.copies);
	}
	return sum;
}

/** The library's expression for the cache of a layer, with its variables for one sequence. */
export function cacheForm(
	model: ModelData,
	layer: number,
	state: Pick<State, "kv">,
	tokens: bigint,
): { form: Expression; variables: Variables<bigint> } | null {
	const found = layerBytes(model, layer);
	if (!found) return null;
	const variables = Object.fromEntries(
		Object.entries(kvOf(model, state).variables).map(([name, n]) => [name, BigInt(n)]),
	);
	return { form: found.cache, variables: { ...variables, T: tokens, B: 1n } };
}

/** The bytes that the cache of a layer holds for one sequence. */
export function cacheBytes(
	model: ModelData,
	layer: number,
	state: Pick<State, "kv">,
	tokens: bigint,
): bigint | null {
	const found = cacheForm(model, layer, state, tokens);
	return found && value(found.form, found.variables);
}

/** The step at which the cache of a layer is read. */
export const cacheStep = (stage: Stage): string | undefined =>
	["scores", "state", "conv"]
		.map((kind) => stage.steps.find((x) => x.kind === kind))
		.find(Boolean)?.name;
