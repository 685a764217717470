// The finding of each chapter of a model's page, as a sentence.
import type { ModelData } from "../lib/data";
import { gibibytes, grouped, inWords, onEachGpu, shortBytes } from "../lib/format";
import { sizesOf } from "../lib/sizing/data";
import { chosenHardware, settings, type SizingSettings } from "../lib/sizing/fit";
import { memoryPerGpu } from "../lib/sizing/gpu_memory";
import { factsOf } from "./facts/fact_sheet";

/** The layers that a token passes, its FLOPs, and the cache that it leaves. */
export function worksFinding(model: ModelData): string {
	const fact = (name: string) => factsOf(model).rows.find((x) => x.name === name)?.value;
	const [layers, decode, cache] = ["Layers", "Decode", "KV cache"].map(fact);
	return `A token ${inWords([
		`passes ${layers} layers`,
		...(decode ? [`takes ${decode}`] : []),
		...(cache && !cache.startsWith("0 ") ? [`leaves ${cache} in the KV cache`] : []),
	])}`;
}

/** How many weights there are, and their size in memory. */
export function sizeFinding(model: ModelData): string {
	const weights = factsOf(model).weights;
	const sizes = [weights[0]!, ...weights.slice(1).slice(-1)].map(
		(x) => `${inMemory(x.bytes)} in ${x.name}`,
	);
	return `${model.everyday} parameters take ${inWords(sizes)}`;
}

const inMemory = (bytes: string) =>
	BigInt(bytes) < 1n << 30n ? shortBytes(bytes) : gibibytes(bytes);

/** The memory of the chosen hardware, without which nothing runs. */
export function needsFinding(model: ModelData, state: SizingSettings): string {
	const { count } = chosenHardware(sizesOf(model), state);
	const { total } = memoryPerGpu(settings(model, { ...state, mode: "run" })).mostLoaded.values;
	const load = state.batch === 1n ? "one sequence" : `${grouped(state.batch)} sequences`;
	return `It takes ${gibibytes(total)}${onEachGpu(count)} for ${load} of ${grouped(state.context)} tokens`;
}
