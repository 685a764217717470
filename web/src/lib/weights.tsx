// What views say about weights: short names, shapes, and the derivation of their sizes.
import type { Digits } from "./data";
import { formula } from "./derivation";
import { grouped, times } from "./format";

/**
 * A weight matrix or vector: its dimensions in letters and numbers, and how many copies there are.
 */
export interface Sized {
	dims: string[];
	shape: Digits[];
	copies: Digits;
}

/** A weight in one kind of layer, or outside the layers. */
export interface WeightRow extends Sized {
	path: string;
	names: Record<string, string>;
	group: string;
	/** How each dimension follows from others, in numbers; empty where it is a number itself. */
	numbers: string[];
	/** Of a table, whose rows are looked up. */
	lookup: boolean;
	each: Digits;
	/** Layers of this kind. */
	times: Digits;
	tied: string;
	total: Digits;
	share: string;
}

/** A kind of layer, or a part of the model outside the layers. */
export interface ModelSection {
	where: string;
	layers: boolean;
	times: Digits;
	letter: string;
	each: Digits;
	symbols: string;
	numbers: string;
	of: string[][];
	total: Digits;
	share: string;
	rows: WeightRow[];
}

/** A path without its layer prefix and without .weight. */
export const shortPath = (path: string): string =>
	path.replace("layers.{l}.", "").replace(/\.weight$/, "");

export const inFactor = (side: string) => (side.includes(" ") ? `(${side})` : side);

export const shapeText = (x: Sized): string =>
	`${x.dims.map(inFactor).join("×")} = ${x.shape.join("×")}${times(x.copies)}`;

/** A matrix as what it maps: inputs → outputs, of a table rows → a row; a vector as its length. */
export function mapText({ shape, lookup }: { shape: readonly Digits[]; lookup: boolean }): string {
	const [out, ...rest] = shape.map(grouped);
	if (lookup) return `${out} → ${rest.join("×")}`;
	return rest.length ? `${rest.join("×")} → ${out}` : (out ?? "1");
}

/** The product of a weight's dimensions and its copies; a copy is [letter, number]. */
export function productFormula(
	x: Pick<Sized, "dims" | "shape">,
	copies: [string, Digits][],
	result: string,
	prefix: [string, string] = ["", ""],
) {
	const factors = copies.filter((y) => y[1] !== "1");
	const letters = x.dims.map(inFactor);
	return formula(
		prefix[0] + [...letters, ...factors.map((y) => inFactor(y[0]))].join("·"),
		prefix[1] + [...x.shape, ...factors.map((y) => y[1])].map(grouped).join("·"),
		result,
	);
}

/** A formula for each dimension of a shape. */
export const sideFormulas = (x: Pick<WeightRow, "dims" | "numbers" | "shape">) =>
	x.dims.map((side, i) =>
		formula(/^\d/.test(side) ? "from the builder" : side, x.numbers[i], grouped(x.shape[i]!)),
	);
