// What d3-scale needs of d3-interpolate: the scales of the page map numbers to numbers, and colors
// would be a tenth of its libraries.
type Interpolate = (a: number, b: number) => (t: number) => number;

export const interpolateNumber: Interpolate = (a, b) => (t) => a * (1 - t) + b * t;
export const interpolate = interpolateNumber;
export const interpolateRound: Interpolate = (a, b) => (t) => Math.round(a * (1 - t) + b * t);

/** Through values at equal distances. */
export function piecewise(between: Interpolate, values: readonly number[]): (t: number) => number {
	const parts = values.slice(1).map((b, i) => between(values[i]!, b));
	return (t) => {
		const i = Math.max(0, Math.min(parts.length - 1, Math.floor(t * parts.length)));
		return parts[i]!(t * parts.length - i);
	};
}
