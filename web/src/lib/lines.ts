// Paths of lines and areas through points, to a thousandth of a pixel.
type Point = readonly [x: number, y: number];

const at = (x: number, y: number): string => `${Number(x.toFixed(3))},${Number(y.toFixed(3))}`;

export const linePath = (points: readonly Point[]): string =>
	points.length ? `M${points.map(([x, y]) => at(x, y)).join("L")}` : "";

/** The area between two lines over the same x. */
export const areaPath = (
	points: readonly (readonly [x: number, low: number, high: number])[],
): string =>
	points.length
		? `${linePath(points.map(([x, , high]) => [x, high]))}L${[...points]
				.reverse()
				.map(([x, low]) => at(x, low))
				.join("L")}Z`
		: "";
