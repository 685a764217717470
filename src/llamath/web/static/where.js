// To scale: where the parameters, bytes, FLOPs or the cache are, by kind of weight, by kind of layer or layer by layer; or one block.
import { texts } from "./data.js";
import { gibibytes, grouped, times, value } from "./forms.js";
import { choice, faint, formula, h, numeral } from "./dom.js";
import { derived } from "./derived.js";
import { settings } from "./memory.js";
import { derivation } from "./table.js";
import { bare, matrices, treemap } from "./treemap.js";

const UNITS = { parameters: "parameters", bytes: "bytes", flops: "FLOPs", cache: "bytes" };
const [MANY, REST] = [40, 100];

function weight(x, map, dtype) {
	const symbols = (many) => [x.dims.join("·"), ...(many === "1" ? [] : [grouped(many)])].join("·");
	const numbers = (many) => [...x.shape, ...(many === "1" ? [] : [many])].map(grouped).join("·");
	if (map === "parameters") return formula(symbols(x.copies), numbers(x.copies), grouped(x.parameters));
	if (map === "flops") return formula(`2·${symbols(x.live)}`, `2·${numbers(x.live)}`, `${grouped(x.flops)} FLOPs`);
	return formula(`${x.path} in ${dtype}: ${grouped(x.parameters)} numbers`, `${grouped(x.bytes[dtype])} bytes`);
}

// The same weight in several kinds of layers is one area where areas are kinds of weights.
function merged(tiles) {
	const made = new Map();
	for (const x of tiles) {
		const key = `${x.path} ${x.shape}`;
		const old = made.get(key);
		const sum = (a, b) => String(BigInt(a) + BigInt(b));
		if (!old) made.set(key, x);
		else {
			const bytes = Object.fromEntries(Object.keys(x.bytes).map((y) => [y, sum(old.bytes[y], x.bytes[y])]));
			made.set(key, { ...old, bytes, ...Object.fromEntries(["copies", "live", "parameters", "flops"].map((y) => [y, sum(old[y], x[y])])) });
		}
	}
	return [...made.values()];
}

function areas(one, state, set) {
	const place = (i) => (state.by === "kind" ? one.sections[i].where + (one.sections[i].times === "1" ? "" : ` × ${grouped(one.sections[i].times)}`) : undefined);
	const dtype = set.dtype.name;
	const common = (x) => ({ place: place(x.section), section: x.section, group: x.group ?? "attention" });
	const mixed = (x, name, detail, form, title) => ({ ...common(x), name, detail, size: value(form, set.variables), tell: () => [title, derived(form, set.variables, UNITS[state.map])] });
	if (state.map === "cache") return one.remembered.map((x) => mixed(x, bare(x.path), x.what, x.form, x.what));
	const tiles = (state.by === "kind" ? one.tiles : merged(one.tiles)).map((x) => {
		const many = times(x.copies);
		const size = BigInt((state.map === "bytes" ? x.bytes[dtype] : x[state.map]) ?? 0);
		return { ...common(x), name: bare(x.path), detail: x.shape.join("×") + many, size, tell: () => [x.path, weight(x, state.map, dtype)] };
	});
	if (state.map !== "flops") return tiles;
	const meet = (x) => `${bare(x.path)}: positions meet`;
	return [...tiles, ...one.mixing.map((x) => mixed(x, meet(x), "no weights", x.flops, `${meet(x)}, without weights`))];
}

function layer(one, state, set, i) {
	const kind = one.layers.kinds[one.layers.order[i]];
	const section = one.sections[kind.section];
	const dtype = set.dtype.name;
	const form = state.map === "bytes" ? (kind.bytes[dtype] ?? "0") : kind[state.map];
	const inside = state.map === "parameters" ? Object.entries(kind.groups).map(([group, x]) => [group, BigInt(x)]) : undefined;
	const lines = () => {
		if (state.map === "parameters") return [formula(section.symbols, section.numbers, grouped(kind.parameters))];
		return state.map === "bytes" ? [formula(`layer ${i} in ${dtype}: ${grouped(kind.parameters)} numbers`, `${grouped(form)} bytes`)] : derived(form, set.variables, UNITS[state.map]);
	};
	return { name: String(i), said: `layer ${i}`, inside, place: section.where, section: kind.section, group: "other", detail: "", size: value(form, set.variables), tell: () => [`layer ${i}`, lines()] };
}

function items(one, state, set) {
	const outside = (x) => one.sections[x.section].layers === false;
	if (state.by !== "layer" || !one.layers.order.length) return areas(one, state, set);
	return [...one.layers.order.map((_, i) => layer(one, state, set, i)), ...areas(one, { ...state, by: "kind" }, set).filter(outside)];
}

function map(one, state, change) {
	const set = settings(one, state);
	const found = items(one, state, set).filter((x) => x.size > 0n);
	if (!found.length) return h("p", state.map === "cache" ? "Nothing is remembered." : "Nothing to show.");
	const focus = (x) => (one.sections[x.section].layers ? () => change({ focus: String(x.section) }) : undefined);
	const whole = found.reduce((a, x) => a + x.size, 0n);
	const unit = UNITS[state.map];
	const sums = found.map((x) => `${x.said ?? x.name}: ${grouped(x.size)}`);
	const total = numeral(grouped(whole), () => [`all: ${texts.maps[state.map]}`, formula(sums.join("\n+ "), grouped(whole))], { "data-part": "area" });
	const where = state.map === "flops" ? `, the token after ${grouped(BigInt(state.context) - 1n)} others` : state.map === "cache" ? `, ${grouped(state.context)} tokens × ${grouped(state.batch)}` : state.map === "bytes" ? `, ${set.dtype.name}` : "";
	const said = [total, ` ${unit}${where}`, unit === "bytes" ? ` (${gibibytes(whole)})` : ""];
	return h("div", faint(...said), treemap(`${one.name}: ${texts.maps[state.map]}`, found, unit, focus));
}

function block(one, section) {
	const all = numeral(grouped(section.each), () => [`one of ${section.where}`, formula(section.symbols, section.numbers, grouped(section.each))]);
	const tell = (x) => numeral(grouped(x.each), () => derivation(x, section));
	const said = h("p", `${section.where}: `, all, " parameters each; matrices to one scale, as wide as they read, as high as they write");
	return h("div", said, matrices(section.where, section.rows.filter((x) => !x.tied), tell));
}

export function where(one, state, change) {
	const layers = one.sections.map((x, i) => [String(i), x]).filter(([, x]) => x.layers);
	const by = Object.entries(texts.by).filter(([x]) => x !== "layer" || one.layers.order.length);
	const place = h("div");
	const controls = h("div", { class: "controls" });
	let [shown, waiting] = ["", 0];
	// A map of many areas follows a slider once that rests.
	const draw = () => {
		const wanted = `${state.map} ${state.by} ${state.focus}`;
		clearTimeout(waiting);
		if (wanted === shown && place.querySelectorAll(".tile").length > MANY) waiting = setTimeout(show, REST);
		else show();
		shown = wanted;
	};
	const show = () => {
		const section = one.sections[Number(state.focus || -1)];
		place.replaceChildren(section ? block(one, section) : map(one, state, again));
		for (const name of ["map", "by", "focus"]) controls.querySelector(`#choice-${name}`).value = state[name];
	};
	const again = (to) => {
		change(to);
		controls.querySelector("#choice-focus").focus();
	};
	controls.append(
		choice("Areas", "map", Object.entries(texts.maps), state.map, change),
		choice("by", "by", by, state.by, change),
		choice("Focus", "focus", [["", "whole model"], ...layers.map(([i, x]) => [i, `a block of ${x.where}`])], state.focus, change),
	);
	draw();
	return { element: h("div", controls, place), draw };
}
