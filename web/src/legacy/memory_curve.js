// Memory as a function of the context: a curve for each model, GPUs as lines, and their intersections.
import { gibibytes, grouped, texts } from "./expressions.js";
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
	const current = Math.log2(Number(state.context));
	const firstPower = Math.max(Math.min(8, Math.floor(current) - 1), 0);
	const maxMemory = Math.max(...cards.map((x) => Number(x.memory)), ...curves.flatMap((c) => [c.samples[firstPower * STEPS], Number(c.memory.total)])) * 1.5;
	const ends = [...own.map((x) => Math.log2(Number(x)) + 2), current + 1, 20];
	const crossed = Math.max(...curves.map((c) => c.samples.findIndex((n) => n > maxMemory) / STEPS || 32));
	const lastPower = Math.min(Math.ceil(Math.max(...ends)), 32);
	return [firstPower, crossed > 0 ? Math.max(Math.min(lastPower, Math.ceil(crossed)), firstPower + 2) : lastPower, maxMemory];
}

const power = (n) => `${2 ** (n % 10)}${["", "k", "M", "G"][Math.floor(n / 10)]}`;

function backdrop({ first, last, x, low, high, y }, labels, box) {
	const every = (last - first) * 34 > box.right - LEFT ? 2 : 1;
	const across = Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, i) => [x(first + i * every), power(first + i * every)]);
	const step = Math.ceil((high - low) / 8);
	const up = Array.from({ length: Math.floor((high - Math.ceil(low)) / step) + 1 }, (_, i) => Math.ceil(low) + i * step).map((n) => [y(n), n < 0 ? `2^${n}` : grouped(2n ** BigInt(n))]);
	const cards = labels.flatMap(({ place, text }) => [line(LEFT, place, box.right, place, "card"), svgText(LEFT + 4, place - 3, text, "small halo")]);
	return [...gridLines(box, across, up, texts.axes), ...cards];
}

// curves: {name, found, samples, crossings: [{card, at}], made: version number}; `draw` comes from layeredSvg
export function memoryCurve(draw, curves, cards, state, own, width) {
	const height = Math.round(Math.min(Math.max(width * 0.5, 300), 420));
	const [first, last, maxMemory] = axisRanges(curves, cards, state, own);
	const minMemory = Math.min(...curves.map((c) => c.samples[first * STEPS]), ...cards.map((x) => Number(x.memory)));
	const [low, high] = [Math.log2(minMemory / 2 ** 30) - 0.25, Math.log2(maxMemory / 2 ** 30)];
	const box = { left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM };
	const [x, y] = [linearScale(first, last, LEFT, box.right), linearScale(low, high, box.bottom, TOP)];
	const toY = (bytes) => y(Math.log2(Number(bytes) / 2 ** 30));
	const labels = gpuLabels(cards, toY, 13);
	const curvePath = (c, i) => {
		const points = c.samples.slice(first * STEPS, last * STEPS + 1).filter((n) => n <= maxMemory).map((n, j) => `${x(first + j / STEPS).toFixed(1)},${toY(n).toFixed(1)}`);
		return s("polyline", { points: points.join(" "), class: i ? "curve second" : "curve" });
	};
	const occupied = labels.map(({ place, text }) => [LEFT, LEFT + text.length * 6 + 8, place - 3]);
	const currentX = x(Math.log2(Number(state.context)));
	return draw({ viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": describeCurves(curves), class: "plot" }, [
		[[first, last, low, high, width].join(" "), () => backdrop({ first, last, x, low, high, y }, labels, box)],
		[[first, last, low, high, width, ...curves.map((c) => c.version)].join(" "), () => [...curves.map(curvePath), ...marks(curves, { x, up: toY, first, last }, width, occupied)]],
		[currentX, () => [line(currentX, TOP, currentX, box.bottom, "now")]],
	]);
}

// A round marker for the first model, a square one for the second.
export const marker = (second, x, y) => (second ? rect(x - 4, y - 4, 8, 8, "dot") : s("circle.dot", { cx: x, cy: y, r: 4.5 }));

function marks(curves, { x, up: toY, first, last }, width, occupied) {
	const dots = [];
	for (const [i, c] of curves.entries()) {
		for (const crossing of c.crossings) {
			const { card, at } = crossing;
			const n = at ? Math.log2(Number(at)) : -1;
			if (n < first || n > last) continue;
			const [px, py, text] = [x(n), toY(card.memory), grouped(at)];
			const textWidth = text.length * 7;
			const isFree = ([left, dy]) => left > LEFT && left + textWidth < width && occupied.every(([a, b, h]) => b < left || a > left + textWidth || Math.abs(h - py - dy) > 12);
			const sides = [[px - 8 - textWidth, -5], [px + 8, 13], [px - 8 - textWidth, -18], [px + 8, 26], [px + 8, -6]];
			const [left, dy] = sides.find(isFree) ?? [];
			const label = left !== undefined && svgText(left, py + dy, text, "small halo strong");
			if (label) occupied.push([left, left + textWidth, py + dy]);
			dots.push(clickable(() => showDetails(() => c.details(crossing)), { "aria-label": `${c.name} fills ${card.title} at ${text} tokens` }, marker(i, px, py), label));
		}
	}
	addRovingFocus(dots);
	return dots;
}

function describeCurves(curves) {
	const describe = (c) => {
		const filled = c.crossings.filter((x) => x.at).map((x) => `${x.card.title} at ${grouped(x.at)} tokens`);
		return `${c.name}: from ${gibibytes(Math.round(c.samples[0]))} with one token; ${filled.length ? `it fills ${filled.join(", ")}` : "it fits every GPU"}`;
	};
	return `Memory over the context. ${curves.map(describe).join(". ")}`;
}

export function curveLegend(curves) {
	if (curves.length < 2) return null;
	const entry = (c, i) => h("li", s("svg", { width: 36, height: 12, "aria-hidden": "true" }, line(0, 6, 36, 6, i ? "curve second" : "curve"), marker(i, 18, 6)), c.name);
	return h("ul.legend", curves.map(entry));
}
