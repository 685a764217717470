// Grid lines and tick labels of a plot with two logarithmic axes.
import { line, svgText } from "./dom.js";

// Map values from `from` to `to` linearly onto pixels from `start` to `end`.
export const linearScale = (from, to, start, end) => (n) => start + ((n - from) / (to - from)) * (end - start);

// `across` and `up` are lists of [position, label].
export function gridLines({ left, right, top, bottom }, across, up, [below, above]) {
	return [
		...across.flatMap(([x, text]) => [line(x, top, x, bottom, "grid"), svgText(x, bottom + 17, text, "small tick", x > right - 9 ? "end" : "middle")]),
		...up.flatMap(([y, text]) => [line(left, y, right, y, "grid"), svgText(left - 6, y + 4, text, "small tick", "end")]),
		svgText(right, bottom + 36, below, "small tick", "end"),
		svgText(0, top - 12, above),
	];
}
