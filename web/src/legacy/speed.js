// The speed section: upper bounds of decode and prefill on a roofline.
import { grouped, texts, value } from "./expressions.js";
import { choice, faint, formula, group, h, layeredSvg, line, clickable, liveText, addRovingFocus, row, s, scrollRegion, table, showDetails, svgText } from "./dom.js";
import { marker } from "./memory_curve.js";
import { derivation } from "./derivations.js";
import { settings } from "./gpu_memory.js";
import { gridLines, linearScale } from "./axes.js";
import { figureWidth } from "./memory_view.js";

const NANO = 10n ** 9n;
const [TOP, BOTTOM, LEFT, RIGHT, HEIGHT] = [30, 46, 64, 14, 380];
const PREFIXES = [[15, "P"], [12, "T"], [9, "G"], [6, "M"], [3, "k"], [0, ""]];

// n / unit to three significant digits, or as a whole number if that has more.
function threeDigits(n, unit) {
	if (2n * n >= 199n * unit) return grouped((2n * n + unit) / (2n * unit));
	return String(Number((Number(n) / Number(unit)).toPrecision(3)));
}

function prefixed(n) {
	const [power, letter] = PREFIXES.find(([x]) => n >= 10n ** BigInt(x)) ?? PREFIXES.at(-1);
	return `${Number((Number(n) / 10 ** power).toPrecision(4))} ${letter}`;
}

// Decode and prefill with their positions on the roofline.
export function speedLimits(set, card, roof) {
	const dtype = set.dtype.rates.find((x) => card.flops[x]);
	const rates = { bandwidth: BigInt(card.bandwidth), peak: BigInt(card.flops[dtype]) };
	const passes = Object.entries(set.split.speed).map(([name, x]) => {
		const values = { ...set.variables, ...rates, work: value(set.sizes.work[name], set.variables) };
		for (const key of ["tokens", "bytes", "FLOPs"]) values[key] = value(x[key], values);
		for (const key of ["rate", "bound", "reached", "intensity"]) values[key] = value(roof[key], values);
		return { name, forms: x, values, bound: values.bound ? "memory" : "arithmetic" };
	});
	return { passes, dtype, ...rates };
}

const FORMATS = { rate: (x) => threeDigits(x.rate, NANO), bytes: (x) => grouped(x.bytes), FLOPs: (x) => grouped(x.FLOPs), intensity: (x) => threeDigits(x.intensity, NANO) };

function limitDerivation({ set, roof, found }, i, what) {
	const { name, values, forms, bound } = found.passes[i];
	const isSingleGpu = set.split.count === "1";
	const roundedFormula = () => formula(`${what} / 10⁹`, `${grouped(values[what])} / 10⁹`, FORMATS[what](values));
	const lines = {
		bytes: () => [derivation(forms.bytes, values, "bytes"), isSingleGpu ? "" : `One GPU of each stage of ${set.split.layout}; ${texts.stages[name]}`],
		FLOPs: () => [derivation(set.sizes.work[name], values, "FLOPs of all (work)"), isSingleGpu ? "" : derivation(forms.FLOPs, values, "FLOPs of one GPU"), texts.flops],
		rate: () => [derivation(roof.rate, values, "tokens in 10⁹ seconds"), roundedFormula(), `Bound by ${bound}: ${texts.bounds[bound]}.`],
		intensity: () => [derivation(roof.intensity, values, "FLOPs for 10⁹ bytes"), roundedFormula()],
	}[what];
	return [`${name}: ${what === "rate" ? "maximum tokens per second" : what}`, lines().flat()];
}

// The table of both passes; its cells are updated in place.
function limitsTable(now) {
	const updaters = [];
	const rows = now().found.passes.map(({ name }, i) => {
		const number = (what) => [liveText(updaters, () => FORMATS[what](now().found.passes[i].values), () => limitDerivation(now(), i, what), { "data-speed": `${name}-${what}` })];
		return row(texts.passes[name], number("rate"), liveText(updaters, () => now().found.passes[i].bound), ...["bytes", "FLOPs", "intensity"].map(number));
	});
	// A published rate of the GPU.
	const publishedRate = (name, key, unit) => {
		const what = () => name ?? now().found.dtype;
		const text = () => `${prefixed(now().found[key])}${unit}`;
		return liveText(updaters, text, () => [now().card.title, formula(...now().card.facts[what()], text()), now().card.source]);
	};
	const caption = ["Of one GPU; ", liveText(updaters, () => now().found.dtype), " products at ", publishedRate(null, "peak", "FLOP/s"), ", memory at ", publishedRate("bandwidth", "bandwidth", "B/s")];
	return { updaters, element: table(caption, texts.columns.speed, rows) };
}

const range = ([from, to], make) => Array.from({ length: to - from + 1 }, (_, i) => make(from + i));
const power = (n) => (n < 0 ? String(10 ** n) : grouped(10n ** BigInt(n)));

function roofline(draw, now, width) {
	const { found, card } = now();
	const [bandwidth, peak] = [Math.log10(Number(found.bandwidth)), Math.log10(Number(found.peak))];
	const points = found.passes.map((x) => ({ ...x, text: `${x.name} ≤ ${FORMATS.rate(x.values)} tokens/s`, at: Math.log10(Number(x.values.intensity) / 1e9), high: Math.log10(Number(x.values.reached)) }));
	const ridge = peak - bandwidth;
	const across = [Math.floor(Math.min(ridge, ...points.map((p) => p.at)) - 0.15), Math.ceil(Math.max(ridge, ...points.map((p) => p.at)) + 0.3)];
	const up = [Math.floor(Math.min(peak, ...points.map((p) => p.high)) - 0.3), Math.ceil(peak + 0.2)];
	const box = { left: LEFT, right: width - RIGHT, top: TOP, bottom: HEIGHT - BOTTOM };
	const [x, y] = [linearScale(...across, LEFT, box.right), linearScale(...up, box.bottom, TOP)];
	const start = Math.max(across[0], up[0] - bandwidth);
	const corners = [[start, start + bandwidth], [ridge, peak], [across[1], peak]].map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`);
	const flopsPerByte = Math.round(10 ** ridge);
	const ridgeDerivation = () => [texts.ridge, formula("peak / bandwidth", `${grouped(found.peak)} / ${grouped(found.bandwidth)}`, `${flopsPerByte} FLOPs per byte`)];
	const backdrop = () => [
		...gridLines(box, range(across, (n) => [x(n), width < 560 && n % 2 ? "" : power(n)]), range(up, (n) => [y(n), prefixed(10n ** BigInt(Math.max(n, 0)))]), texts.plane),
		s("polyline.curve", { points: corners.join(" ") }),
		line(x(ridge), y(peak), x(ridge), box.bottom, "card"),
		clickable(() => showDetails(ridgeDerivation), { tabindex: "0" }, svgText(x(ridge) + 5, box.bottom - 6, `ridge at ${flopsPerByte}`, "small halo")),
	];
	const marks = () => {
		const occupied = [];
		const shapes = points.map((p, i) => {
			const textWidth = p.text.length * 7;
			const left = Math.min(x(p.at) + 11, width - RIGHT - textWidth);
			let top = y(p.high) + 22;
			while (occupied.some(([a, b, c]) => Math.abs(c - top) < 18 && left < b && left + textWidth > a)) top += 18;
			occupied.push([left, left + textWidth, top]);
			return clickable(() => showDetails(() => limitDerivation(now(), i, "rate")), {}, marker(i, x(p.at), y(p.high)), svgText(left, top, p.text, "halo strong"));
		});
		addRovingFocus(shapes);
		return shapes;
	};
	const label = points.map((p) => `${p.text}, bound by ${p.bound}, ${FORMATS.intensity(p.values)} FLOPs per byte`).join("; ");
	const plane = [...across, ...up, bandwidth, peak, width].join(" ");
	return draw({ viewBox: `0 0 ${width} ${HEIGHT}`, role: "group", "aria-label": `Roofline of ${card.title}: ${label}`, class: "plot" }, [[plane, backdrop], [`${plane} ${points.map((p) => [p.at, p.high, p.text])}`, marks]]);
}

export function speedView(model, data, state, change) {
	const figure = h("figure.plots");
	const svg = layeredSvg();
	let now = {};
	const update = () => {
		const card = data.gpus.find((x) => x.name === state.card) ?? data.gpus[0];
		const set = settings(model, state);
		now = { card, set, roof: data.roof, found: speedLimits(set, card, data.roof) };
	};
	update();
	const limits = limitsTable(() => now);
	const draw = () => {
		update();
		for (const refresh of limits.updaters) refresh();
		const picture = roofline(svg, () => now, figureWidth());
		if (!picture.isConnected) figure.append(picture);
	};
	const cards = choice("GPU", "card", data.gpus.map((x) => [x.name, x.title]), state.card, change);
	draw();
	return { element: h("div", group(cards), scrollRegion("table of speed", limits.element), figure, faint(texts.ceilings)), draw };
}
