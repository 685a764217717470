// Memory over the context: a curve for each model, cards as lines, and every crossing.
import { gibibytes, grouped, texts } from "./forms.js";
import { h, line, opening, rect, roving, s, told, words } from "./dom.js";
import { lines } from "./bar.js";
import { ground, scale } from "./plane.js";

const [TOP, BOTTOM, LEFT, RIGHT] = [24, 44, 52, 12];
const STEPS = 4;

// Where the curve is looked at: each power of two in so many steps.
export function sampled(total) {
	return Array.from({ length: 32 * STEPS + 1 }, (_, i) => total(2 ** (i / STEPS)));
}

// About where it reaches so many bytes; undefined: nowhere.
export function guess(samples, total, memory) {
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

// The powers of two and the bytes that are shown: until every curve has left the cards behind.
function span(curves, cards, state, own) {
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
	const cards = named.flatMap(({ place, text }) => [line(LEFT, place, box.right, place, "card"), words(LEFT + 4, place - 3, text, "small halo")]);
	return [...ground(box, across, up, texts.axes), ...cards];
}

// curves: {name, found, samples, crossings: [{card, at}], made: other for others}; `draw` draws in layers
export function curve(draw, curves, cards, state, own, width) {
	const height = Math.round(Math.min(Math.max(width * 0.5, 300), 420));
	const [first, last, most] = span(curves, cards, state, own);
	const least = Math.min(...curves.map((c) => c.samples[first * STEPS]), ...cards.map((x) => Number(x.memory)));
	const [low, high] = [Math.log2(least / 2 ** 30) - 0.25, Math.log2(most / 2 ** 30)];
	const box = { left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM };
	const [x, y] = [scale(first, last, LEFT, box.right), scale(low, high, box.bottom, TOP)];
	const up = (bytes) => y(Math.log2(Number(bytes) / 2 ** 30));
	const named = lines(cards, up, 13);
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

// A mark of the first, round, or of the second, square.
export const dot = (second, x, y) => (second ? rect(x - 4, y - 4, 8, 8, "dot") : s("circle.dot", { cx: x, cy: y, r: 4.5 }));

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
			const label = left !== undefined && words(left, py + dy, text, "small halo strong");
			if (label) taken.push([left, left + wide, py + dy]);
			dots.push(opening(() => told(() => c.tell(crossing)), { "aria-label": `${c.name} fills ${card.title} at ${text} tokens` }, dot(i, px, py), label));
		}
	}
	roving(dots);
	return dots;
}

function spoken(curves) {
	const one = (c) => {
		const found = c.crossings.filter((x) => x.at).map((x) => `${x.card.title} at ${grouped(x.at)} tokens`);
		return `${c.name}: from ${gibibytes(Math.round(c.samples[0]))} with one token; ${found.length ? `it fills ${found.join(", ")}` : "it fills none of the cards"}`;
	};
	return `Memory over the context. ${curves.map(one).join(". ")}`;
}

export function key(curves) {
	if (curves.length < 2) return null;
	const one = (c, i) => h("li", s("svg", { width: 36, height: 12, "aria-hidden": "true" }, line(0, 6, 36, 6, i ? "curve second" : "curve"), dot(i, 18, 6)), c.name);
	return h("ul.legend", curves.map(one));
}
