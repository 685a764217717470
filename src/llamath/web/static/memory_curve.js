// Memory as a function of the context: a curve for each model, GPUs as lines, and their intersections.
import { gibibytes, grouped, texts } from "./forms.js";
import { h, line, clickable, rect, addRovingFocus, s, showDetails, svgText } from "./dom.js";
import { gpuLabels } from "./memory_bars.js";
import { gridLines, linearScale } from "./axes.js";

const [TOP, BOTTOM, LEFT, RIGHT] = [24, 44, 52, 12];
const STEPS = 4;

// Sample the curve at STEPS points per power of two.
export function sampleCurve(total) {
	return Array.from({ length: 32 * STEPS + 1 }, (_, i) => total(2 ** (i / STEPS)));
}

// The approximate context at which memory reaches this many bytes, or undefined.
export function guessContext(samples, total, memory) {
	const i = samples.findIndex((x) => x > memory);
	if (i < 1) return i === 0 ? 1 : undefined;
	let [low, high] = [2 ** ((i - 1) / STEPS), 2 ** (i / STEPS)];
	while (high - low > 0.5) {
		const middle = (low + high) / 2;
		if (total(middle) <= memory) low = middle;
		else high = middle;
	}
	return low;
}

// The ranges of both axes: up to where every curve exceeds the memory of every GPU.
function axisRanges(curves, cards, state, own) {
	const now = Math.log2(Number(state.context));
	const first = Math.max(Math.min(8, Math.floor(now) - 1), 0);
	const most = Math.max(...cards.map((x) => Number(x.memory)), ...curves.flatMap((c) => [c.samples[first * STEPS], Number(c.found.total)])) * 1.5;
	const ends = [...own.map((x) => Math.log2(Number(x)) + 2), now + 1, 20];
	const over = Math.max(...curves.map((c) => c.samples.findIndex((n) => n > most) / STEPS || 32));
	const last = Math.min(Math.ceil(Math.max(...ends)), 32);
	return [first, over > 0 ? Math.max(Math.min(last, Math.ceil(over)), first + 2) : last, most];
}

const power = (n) => `${2 ** (n % 10)}${["", "k", "M", "G"][Math.floor(n / 10)]}`;

function backdrop({ first, last, x, low, high, y }, named, box) {
	const every = (last - first) * 34 > box.right - LEFT ? 2 : 1;
	const across = Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, i) => [x(first + i * every), power(first + i * every)]);
	const step = Math.ceil((high - low) / 8);
	const up = Array.from({ length: Math.floor((high - Math.ceil(low)) / step) + 1 }, (_, i) => Math.ceil(low) + i * step).map((n) => [y(n), n < 0 ? `2^${n}` : grouped(2n ** BigInt(n))]);
	const cards = named.flatMap(({ place, text }) => [line(LEFT, place, box.right, place, "card"), svgText(LEFT + 4, place - 3, text, "small halo")]);
	return [...gridLines(box, across, up, texts.axes), ...cards];
}

// curves: {name, found, samples, crossings: [{card, at}], made: version number}; `draw` comes from layeredSvg
export function memoryCurve(draw, curves, cards, state, own, width) {
	const height = Math.round(Math.min(Math.max(width * 0.5, 300), 420));
	const [first, last, most] = axisRanges(curves, cards, state, own);
	const least = Math.min(...curves.map((c) => c.samples[first * STEPS]), ...cards.map((x) => Number(x.memory)));
	const [low, high] = [Math.log2(least / 2 ** 30) - 0.25, Math.log2(most / 2 ** 30)];
	const box = { left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM };
	const [x, y] = [linearScale(first, last, LEFT, box.right), linearScale(low, high, box.bottom, TOP)];
	const up = (bytes) => y(Math.log2(Number(bytes) / 2 ** 30));
	const named = gpuLabels(cards, up, 13);
	const way = (c, i) => {
		const points = c.samples.slice(first * STEPS, last * STEPS + 1).filter((n) => n <= most).map((n, j) => `${x(first + j / STEPS).toFixed(1)},${up(n).toFixed(1)}`);
		return s("polyline", { points: points.join(" "), class: i ? "curve second" : "curve" });
	};
	const taken = named.map(({ place, text }) => [LEFT, LEFT + text.length * 6 + 8, place - 3]);
	const now = x(Math.log2(Number(state.context)));
	return draw({ viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": spoken(curves), class: "plot" }, [
		[[first, last, low, high, width].join(" "), () => backdrop({ first, last, x, low, high, y }, named, box)],
		[[first, last, low, high, width, ...curves.map((c) => c.made)].join(" "), () => [...curves.map(way), ...marks(curves, { x, up, first, last }, width, taken)]],
		[now, () => [line(now, TOP, now, box.bottom, "now")]],
	]);
}

// A round marker for the first model, a square one for the second.
export const marker = (second, x, y) => (second ? rect(x - 4, y - 4, 8, 8, "dot") : s("circle.dot", { cx: x, cy: y, r: 4.5 }));

function marks(curves, { x, up, first, last }, width, taken) {
	const dots = [];
	for (const [i, c] of curves.entries()) {
		for (const crossing of c.crossings) {
			const { card, at } = crossing;
			const n = at ? Math.log2(Number(at)) : -1;
			if (n < first || n > last) continue;
			const [px, py, text] = [x(n), up(card.memory), grouped(at)];
			const wide = text.length * 7;
			const free = ([left, dy]) => left > LEFT && left + wide < width && taken.every(([a, b, h]) => b < left || a > left + wide || Math.abs(h - py - dy) > 12);
			const sides = [[px - 8 - wide, -5], [px + 8, 13], [px - 8 - wide, -18], [px + 8, 26], [px + 8, -6]];
			const [left, dy] = sides.find(free) ?? [];
			const label = left !== undefined && svgText(left, py + dy, text, "small halo strong");
			if (label) taken.push([left, left + wide, py + dy]);
			dots.push(clickable(() => showDetails(() => c.tell(crossing)), { "aria-label": `${c.name} fills ${card.title} at ${text} tokens` }, marker(i, px, py), label));
		}
	}
	addRovingFocus(dots);
	return dots;
}

function spoken(curves) {
	const one = (c) => {
		const found = c.crossings.filter((x) => x.at).map((x) => `${x.card.title} at ${grouped(x.at)} tokens`);
		return `${c.name}: from ${gibibytes(Math.round(c.samples[0]))} with one token; ${found.length ? `it fills ${found.join(", ")}` : "it fits every GPU"}`;
	};
	return `Memory over the context. ${curves.map(one).join(". ")}`;
}

export function curveLegend(curves) {
	if (curves.length < 2) return null;
	const one = (c, i) => h("li", s("svg", { width: 36, height: 12, "aria-hidden": "true" }, line(0, 6, 36, 6, i ? "curve second" : "curve"), marker(i, 18, 6)), c.name);
	return h("ul.legend", curves.map(one));
}
