// The finding of the parameters section: which part is most of it, true for every model.
import { share } from "../../lib/format";
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

/** The greatest common divisor. */
export function commonDivisor(a: bigint, b: bigint): bigint {
	while (b) [a, b] = [b, a % b];
	return a;
}

/** One in how many of the copies a token uses: "one in 32", "3 in 64". */
function used({ size, active }: Cell): string {
	const a = commonDivisor(size, active);
	return active === a ? `one in ${size / a}` : `${active / a} in ${size / a}`;
}

/** The part that the finding is about, whose derivation has its numbers. */
export const largest = (cells: readonly Cell[]): Cell | undefined =>
	[...cells].sort((a, b) => (a.size < b.size ? 1 : -1))[0];

export function finding(measure: string, cells: readonly Cell[], whole: bigint): string {
	const most = largest(cells);
	if (!most) return measure === "cache" ? "Nothing is cached" : "There are no weights";
	if (measure === "cache")
		return cells.length === 1
			? `The whole cache is ${most.name}`
			: `${share(most.size, whole)} of the cache is ${most.name}`;
	const text = `${portion(most.size, whole)} ${NOUNS[measure]} are ${modelPart(most.key).within}`;
	return most.active < most.size && measure !== "flops"
		? `${text}, and a token uses ${used(most)} of them`
		: text;
}
