// Memory over the context, both in powers: a curve for each model, cards as lines, and every crossing with its context.
import { gibibytes, grouped } from "./forms.js";
import { h, line, rect, s, words } from "./dom.js";
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
	for (let n = 0; n < 40 && high - low > 0.5; n += 1) {
		const [a, b] = [total(low), total(high)];
		const cut = n % 3 === 2 ? (low + high) / 2 : low + ((memory - a) / (b - a)) * (high - low);
		const middle = Math.min(Math.max(cut, low + 0.25), high - 0.25);
		if (total(middle) <= memory) low = middle;
		else high = middle;
	}
	return low;
}

// From which power of two to which, and up to how many bytes: where every curve has left the cards behind, nothing more is told.
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
	return [...ground(box, across, up, ["tokens of each sequence; k 1,024, M 1,048,576", "GiB"]), ...cards];
}

// curves: {name, found, samples, crossings: [{card, at}]}; `draw` draws in layers
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
	return draw({ viewBox: `0 0 ${width} ${height}`, "aria-label": spoken(curves), class: "plot" }, [
		[[first, last, low, high, width].join(" "), () => backdrop({ first, last, x, low, high, y }, named, box)],
		[[first, last, low, high, width, ...curves.flatMap((c) => [...c.samples, ...c.crossings.map((z) => z.at)])].join(" "), () => [...curves.map(way), ...marks(curves, { x, up, first, last }, width, taken)]],
		[now, () => [line(now, TOP, now, box.bottom, "now")]],
	]);
}

const dot = (second, x, y) => (second ? rect(x - 4, y - 4, 8, 8, "dot") : s("circle", { cx: x, cy: y, r: 4.5, class: "dot" }));

function marks(curves, { x, up, first, last }, width, taken) {
	const dots = [];
	for (const [i, c] of curves.entries()) {
		for (const { card, at } of c.crossings) {
			const n = at ? Math.log2(Number(at)) : -1;
			if (n < first || n > last) continue;
			const [px, py, text] = [x(n), up(card.memory), grouped(at)];
			dots.push(dot(i, px, py));
			const wide = text.length * 7;
			const free = ([left, dy]) => left > LEFT && left + wide < width && taken.every(([a, b, h]) => b < left || a > left + wide || Math.abs(h - py - dy) > 12);
			const sides = [[px - 8 - wide, -5], [px + 8, 13], [px - 8 - wide, -18], [px + 8, 26], [px + 8, -6]];
			const [left, dy] = sides.find(free) ?? [];
			if (left === undefined) continue;
			taken.push([left, left + wide, py + dy]);
			dots.push(words(left, py + dy, text, "small halo strong"));
		}
	}
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
	return h("ul", { class: "legend" }, curves.map(one));
}
