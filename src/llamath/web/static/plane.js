// The ground of a picture with two axes, each in powers: lines with what they stand for.
import { line, words } from "./dom.js";

// A scale from one value to another over a stretch of the picture.
export const scale = (from, to, start, end) => (n) => start + ((n - from) / (to - from)) * (end - start);

// `across` and `up`: [place, text]
export function ground({ left, right, top, bottom }, across, up, [below, above]) {
	return [
		...across.flatMap(([x, text]) => [line(x, top, x, bottom, "grid"), words(x, bottom + 17, text, "small tick", x > right - 9 ? "end" : "middle")]),
		...up.flatMap(([y, text]) => [line(left, y, right, y, "grid"), words(left - 6, y + 4, text, "small tick", "end")]),
		words(right, bottom + 36, below, "small tick", "end"),
		words(0, top - 12, above),
	];
}
