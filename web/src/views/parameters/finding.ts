// The finding of the parameters section: which part is most of it, true for every model.
import type { Digits, ModelData } from "../../lib/data";
import { grouped, share } from "../../lib/format";
import { modelPart } from "../../lib/model_parts";
import type { Cell } from "./measures";

const TENTHS = ["", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine"];
const NOUNS: Record<string, string> = {
	parameters: "parameters",
	bytes: "bytes of the weights",
	flops: "FLOPs of a token",
};

/** "Seven of ten" where that is right to a hundredth, else the percentage. */
function portion(n: bigint, whole: bigint): string {
	const hundredths = Number((n * 10_000n) / whole) / 100;
	const tenth = Math.round(hundredths / 10);
	return TENTHS[tenth] && Math.abs(hundredths - tenth * 10) <= 1
		? `${TENTHS[tenth]} of ten`
		: `${share(n, whole)} of the`;
}

/** The part that the finding is about, whose derivation has its numbers. */
export const largest = (cells: readonly Cell[]): Cell | undefined =>
	[...cells].sort((a, b) => (a.size < b.size ? 1 : -1))[0];

/** The experts that a token uses, of all, where each MoE layer has the same; else null. */
export type ChosenExperts = readonly [chosen: bigint, experts: bigint] | null;

export function chosenExperts(model: ModelData): ChosenExperts {
	const kinds = (model.experts as { kinds: { chosen: Digits; experts: Digits }[] } | null)?.kinds;
	const first = kinds?.[0];
	return first && kinds.every((x) => x.chosen === first.chosen && x.experts === first.experts)
		? [BigInt(first.chosen), BigInt(first.experts)]
		: null;
}

/** What a token uses of a part: "10 of 512 experts (1.95%)", by the experts if they say the same. */
function used({ size, active }: Cell, experts: ChosenExperts): string {
	const part = share(active, size);
	return experts && experts[0] * size === experts[1] * active
		? `${grouped(experts[0])} of ${grouped(experts[1])} experts (${part})`
		: `${part} of them`;
}

export function finding(
	measure: string,
	cells: readonly Cell[],
	whole: bigint,
	experts: ChosenExperts,
): string {
	const most = largest(cells);
	if (!most) return measure === "cache" ? "Nothing is cached" : "There are no weights";
	if (measure === "cache")
		return cells.length === 1
			? `The whole cache is ${most.name}`
			: `${share(most.size, whole)} of the cache is ${most.name}`;
	const text = `${portion(most.size, whole)} ${NOUNS[measure]} are ${modelPart(most.key).within}`;
	return most.active < most.size && measure !== "flops"
		? `${text}, and a token uses ${used(most, experts)}`
		: text;
}
