// Ceilings of speed on a roofline: decode and prefill on a card of the catalogue.
import { grouped, texts, value } from "./forms.js";
import { choice, faint, formula, group, h, layered, line, opening, renewed, roving, row, s, scrolled, table, told, words } from "./dom.js";
import { dot } from "./curve.js";
import { derived } from "./derived.js";
import { settings } from "./memory.js";
import { ground, scale } from "./plane.js";
import { room } from "./sizes.js";

const NANO = 10n ** 9n;
const [TOP, BOTTOM, LEFT, RIGHT, HEIGHT] = [30, 46, 64, 14, 380];
const PREFIXES = [[15, "P"], [12, "T"], [9, "G"], [6, "M"], [3, "k"], [0, ""]];

// n over a unit to three digits, or to the whole number where that has more.
function three(n, unit) {
	if (2n * n >= 199n * unit) return grouped((2n * n + unit) / (2n * unit));
	return String(Number((Number(n) / Number(unit)).toPrecision(3)));
}

function prefixed(n) {
	const [power, letter] = PREFIXES.find(([x]) => n >= 10n ** BigInt(x)) ?? PREFIXES.at(-1);
	return `${Number((Number(n) / 10 ** power).toPrecision(4))} ${letter}`;
}

// Both passes, and where they stand under the roof.
export function passes(set, card, roof) {
	const dtype = set.dtype.rates.find((x) => card.flops[x]);
	const rates = { bandwidth: BigInt(card.bandwidth), peak: BigInt(card.flops[dtype]) };
	const made = Object.entries(set.split.speed).map(([name, x]) => {
		const known = { ...set.variables, ...rates, work: value(set.sizes.work[name], set.variables) };
		for (const key of ["tokens", "bytes", "FLOPs"]) known[key] = value(x[key], known);
		for (const key of ["rate", "bound", "reached", "intensity"]) known[key] = value(roof[key], known);
		return { name, forms: x, known, bound: known.bound ? "memory" : "arithmetic" };
	});
	return { passes: made, dtype, ...rates };
}

const SHOWN = { rate: (x) => three(x.rate, NANO), bytes: (x) => grouped(x.bytes), FLOPs: (x) => grouped(x.FLOPs), intensity: (x) => three(x.intensity, NANO) };

function tell({ set, roof, found }, i, what) {
	const { name, known, forms, bound } = found.passes[i];
	const one = set.split.count === "1";
	const rounded = () => formula(`${what} / 10⁹`, `${grouped(known[what])} / 10⁹`, SHOWN[what](known));
	const lines = {
		bytes: () => [derived(forms.bytes, known, "bytes"), one ? "" : `One GPU of each stage of ${set.split.layout}; ${texts.stages[name]}`],
		FLOPs: () => [derived(set.sizes.work[name], known, "FLOPs of all (work)"), one ? "" : derived(forms.FLOPs, known, "FLOPs of one GPU"), texts.flops],
		rate: () => [derived(roof.rate, known, "tokens in 10⁹ seconds"), rounded(), `Bound by ${bound}: ${texts.bounds[bound]}.`],
		intensity: () => [derived(roof.intensity, known, "FLOPs for 10⁹ bytes"), rounded()],
	}[what];
	return [`${name}: ${what === "rate" ? "tokens a second at most" : what}`, lines().flat()];
}

// A table of both passes; its texts are renewed in place.
function rates(now) {
	const live = [];
	const rows = now().found.passes.map(({ name }, i) => {
		const number = (what) => [renewed(live, () => SHOWN[what](now().found.passes[i].known), () => tell(now(), i, what), { "data-speed": `${name}-${what}` })];
		return row(texts.passes[name], number("rate"), renewed(live, () => now().found.passes[i].bound), ...["bytes", "FLOPs", "intensity"].map(number));
	});
	// A rate of the data sheet.
	const published = (name, key, unit) => {
		const what = () => name ?? now().found.dtype;
		const text = () => `${prefixed(now().found[key])}${unit}`;
		return renewed(live, text, () => [now().card.title, formula(...now().card.facts[what()], text()), now().card.source]);
	};
	const caption = ["Of one GPU; ", renewed(live, () => now().found.dtype), " products at ", published(null, "peak", "FLOP/s"), ", memory at ", published("bandwidth", "bandwidth", "B/s")];
	return { live, element: table(caption, texts.columns.speed, rows) };
}

const range = ([from, to], make) => Array.from({ length: to - from + 1 }, (_, i) => make(from + i));
const power = (n) => (n < 0 ? String(10 ** n) : grouped(10n ** BigInt(n)));

function roofline(draw, now, width) {
	const { found, card } = now();
	const [bandwidth, peak] = [Math.log10(Number(found.bandwidth)), Math.log10(Number(found.peak))];
	const points = found.passes.map((x) => ({ ...x, text: `${x.name} ≤ ${SHOWN.rate(x.known)} tokens/s`, at: Math.log10(Number(x.known.intensity) / 1e9), high: Math.log10(Number(x.known.reached)) }));
	const ridge = peak - bandwidth;
	const across = [Math.floor(Math.min(ridge, ...points.map((p) => p.at)) - 0.15), Math.ceil(Math.max(ridge, ...points.map((p) => p.at)) + 0.3)];
	const up = [Math.floor(Math.min(peak, ...points.map((p) => p.high)) - 0.3), Math.ceil(peak + 0.2)];
	const box = { left: LEFT, right: width - RIGHT, top: TOP, bottom: HEIGHT - BOTTOM };
	const [x, y] = [scale(...across, LEFT, box.right), scale(...up, box.bottom, TOP)];
	const start = Math.max(across[0], up[0] - bandwidth);
	const corners = [[start, start + bandwidth], [ridge, peak], [across[1], peak]].map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`);
	const most = Math.round(10 ** ridge);
	const ratio = () => [texts.ridge, formula("peak / bandwidth", `${grouped(found.peak)} / ${grouped(found.bandwidth)}`, `${most} FLOPs for each byte`)];
	const backdrop = () => [
		...ground(box, range(across, (n) => [x(n), width < 560 && n % 2 ? "" : power(n)]), range(up, (n) => [y(n), prefixed(10n ** BigInt(Math.max(n, 0)))]), texts.plane),
		s("polyline.curve", { points: corners.join(" ") }),
		line(x(ridge), y(peak), x(ridge), box.bottom, "card"),
		opening(() => told(ratio), { tabindex: "0" }, words(x(ridge) + 5, box.bottom - 6, `ridge at ${most}`, "small halo")),
	];
	const marks = () => {
		const ends = [];
		const shapes = points.map((p, i) => {
			const wide = p.text.length * 7;
			const left = Math.min(x(p.at) + 11, width - RIGHT - wide);
			let top = y(p.high) + 22;
			while (ends.some(([a, b, c]) => Math.abs(c - top) < 18 && left < b && left + wide > a)) top += 18;
			ends.push([left, left + wide, top]);
			return opening(() => told(() => tell(now(), i, "rate")), {}, dot(i, x(p.at), y(p.high)), words(left, top, p.text, "halo strong"));
		});
		roving(shapes);
		return shapes;
	};
	const label = points.map((p) => `${p.text}, bound by ${p.bound}, ${SHOWN.intensity(p.known)} FLOPs for each byte`).join("; ");
	const plane = [...across, ...up, bandwidth, peak, width].join(" ");
	return draw({ viewBox: `0 0 ${width} ${HEIGHT}`, role: "group", "aria-label": `Roofline of ${card.title}: ${label}`, class: "plot" }, [[plane, backdrop], [`${plane} ${points.map((p) => [p.at, p.high, p.text])}`, marks]]);
}

export function speed(model, data, state, change) {
	const figure = h("figure.plots");
	const drawn = layered();
	let now = {};
	const look = () => {
		const card = data.gpus.find((x) => x.name === state.card) ?? data.gpus[0];
		const set = settings(model, state);
		now = { card, set, roof: data.roof, found: passes(set, card, data.roof) };
	};
	look();
	const shown = rates(() => now);
	const draw = () => {
		look();
		for (const renew of shown.live) renew();
		const picture = roofline(drawn, () => now, room());
		if (!picture.isConnected) figure.append(picture);
	};
	const cards = choice("Card", "card", data.gpus.map((x) => [x.name, x.title]), state.card, change);
	draw();
	return { element: h("div", group(cards), scrolled("table of speed", shown.element), figure, faint(texts.ceilings)), draw };
}
