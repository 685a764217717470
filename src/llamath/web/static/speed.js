// Ceilings of speed on a roofline: decode and prefill at the settings of the sliders, on a card of the catalogue.
import { texts } from "./data.js";
import { grouped, value } from "./forms.js";
import { choice, faint, group, h, layered, line, numeral, row, s, scrolled, table, words } from "./dom.js";
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

// Both passes: their tokens, bytes and FLOPs, and where they stand under the roof.
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

function tell(x, what, set, roof) {
	const { known, forms } = x;
	const on = set.split.count === "1" ? "" : `One GPU of each stage of ${set.split.layout}; ${texts.stages[x.name]}`;
	const lines = {
		bytes: () => [...derived(forms.bytes, known, "bytes"), on],
		FLOPs: () => [...derived(set.sizes.work[x.name], known, "FLOPs"), set.split.count === "1" ? "" : `Of these, one GPU's: ${grouped(known.FLOPs)}`, texts.flops],
		rate: () => [...derived(roof.rate, known, "tokens in 10⁹ seconds"), `${three(known.rate, NANO)} a second.`, `Bound by ${x.bound}: ${texts.bounds[x.bound]}.`],
		intensity: () => derived(roof.intensity, known, "FLOPs for 10⁹ bytes"),
	}[what];
	return [`${x.name}: ${what === "rate" ? "tokens a second at most" : what}`, lines()];
}

function rates(found, set, roof) {
	const line = (x) => {
		const open = (what, text) => [numeral(text, () => tell(x, what, set, roof), { "data-speed": `${x.name}-${what}` })];
		const { rate, bytes, FLOPs, intensity } = x.known;
		return row(texts.passes[x.name], open("rate", three(rate, NANO)), x.bound, open("bytes", grouped(bytes)), open("FLOPs", grouped(FLOPs)), open("intensity", three(intensity, NANO)));
	};
	const columns = ["pass", ["tokens/s at most"], "bound by", ["bytes read"], ["FLOPs"], ["FLOPs for each byte"]];
	return table(`Of one GPU; ${found.dtype} products at ${prefixed(found.peak)}FLOP/s, memory at ${prefixed(found.bandwidth)}B/s`, columns, found.passes.map(line));
}

const range = ([from, to], make) => Array.from({ length: to - from + 1 }, (_, i) => make(from + i));
const power = (n) => (n < 0 ? String(10 ** n) : grouped(10n ** BigInt(n)));

function roofline(draw, found, card, width) {
	const [bandwidth, peak] = [Math.log10(Number(found.bandwidth)), Math.log10(Number(found.peak))];
	const points = found.passes.map((x) => ({ ...x, at: Math.log10(Number(x.known.intensity) / 1e9), high: Math.log10(Number(x.known.reached)) }));
	const ridge = peak - bandwidth;
	const across = [Math.floor(Math.min(ridge, ...points.map((p) => p.at)) - 0.15), Math.ceil(Math.max(ridge, ...points.map((p) => p.at)) + 0.3)];
	const up = [Math.floor(Math.min(peak, ...points.map((p) => p.high)) - 0.3), Math.ceil(peak + 0.2)];
	const box = { left: LEFT, right: width - RIGHT, top: TOP, bottom: HEIGHT - BOTTOM };
	const [x, y] = [scale(...across, LEFT, box.right), scale(...up, box.bottom, TOP)];
	const start = Math.max(across[0], up[0] - bandwidth);
	const corners = [[start, start + bandwidth], [ridge, peak], [across[1], peak]].map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`);
	const backdrop = () => [
		...ground(box, range(across, (n) => [x(n), width < 560 && n % 2 ? "" : power(n)]), range(up, (n) => [y(n), prefixed(10n ** BigInt(Math.max(n, 0)))]), ["FLOPs for each byte read", "FLOP/s of each GPU"]),
		s("polyline", { points: corners.join(" "), class: "curve" }),
		line(x(ridge), y(peak), x(ridge), box.bottom, "card"),
		words(x(ridge) + 5, box.bottom - 6, `ridge at ${Math.round(10 ** ridge)}`, "small halo"),
	];
	const [ends, shapes] = [[], []];
	for (const p of points) {
		const [px, py] = [x(p.at), y(p.high)];
		const text = `${p.name} ≤ ${three(p.known.rate, NANO)} tokens/s`;
		const wide = text.length * 7;
		const left = Math.min(px + 11, width - RIGHT - wide);
		let top = py + 22;
		while (ends.some(([a, b, c]) => Math.abs(c - top) < 18 && left < b && left + wide > a)) top += 18;
		ends.push([left, left + wide, top]);
		const drawn = p.name === "decode" ? s("circle", { cx: px, cy: py, r: 6, class: "dot" }) : s("rect", { x: px - 6, y: py - 6, width: 12, height: 12, class: "dot" });
		shapes.push(drawn, words(left, top, text, "halo strong"));
	}
	const said = points.map((p) => `${p.name} at most ${three(p.known.rate, NANO)} tokens a second, bound by ${p.bound}, ${three(p.known.intensity, NANO)} FLOPs for each byte`);
	const label = `Roofline of ${card.title}: ${said.join("; ")}`;
	return draw({ viewBox: `0 0 ${width} ${HEIGHT}`, "aria-label": label, class: "plot" }, [[[...across, ...up, bandwidth, peak, width].join(" "), backdrop], [undefined, () => shapes]]);
}

export function speed(model, data, state, change) {
	const place = scrolled("table of speed");
	const figure = h("figure", { class: "plots" });
	const drawn = layered();
	const draw = () => {
		const card = data.gpus.find((x) => x.name === state.card) ?? data.gpus[0];
		const set = settings(model, state);
		const found = passes(set, card, data.roof);
		place.replaceChildren(rates(found, set, data.roof));
		const picture = roofline(drawn, found, card, room());
		if (!picture.isConnected) figure.append(picture);
	};
	const controls = group(choice("Card", "card", data.gpus.map((x) => [x.name, x.title]), state.card, change));
	const note = faint(texts.ceilings);
	draw();
	return { element: h("div", controls, place, figure, note), draw };
}
