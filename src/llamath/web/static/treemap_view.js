// The treemap section: parameters, bytes, FLOPs or KV cache by kind or layer, or the matrices of one block.
import { gibibytes, grouped, sum, texts, times, value } from "./forms.js";
import { choice, faint, formula, group, h, numberButton } from "./dom.js";
import { sumFormula, numberWithFormula, derivation, inBytes, productFormula } from "./derivations.js";
import { settings } from "./gpu_memory.js";
import { bare, matrices, treemap } from "./treemap.js";

const UNITS = { parameters: "parameters", bytes: "bytes", flops: "FLOPs", cache: "bytes" };
const [MANY, REST] = [40, 100];

function weight(x, map, dtype) {
	const copies = productFormula(x, [[grouped(x.copies), x.copies]], `${grouped(x.parameters)} parameters`);
	if (map === "parameters") return [copies];
	if (map === "flops") return [copies, productFormula(x, [[grouped(x.live), x.live]], `${grouped(x.flops)} FLOPs`, ["2·", "2·"])];
	return [copies, stored(x, dtype), texts.stored];
}

// The bytes of a weight from the formula of its codec, or from the file's header.
function stored(x, { name, codecs }) {
	const sizes = { n: x.shape.reduce((a, n) => a * BigInt(n), 1n), out: x.shape[0], in: x.shape[1] };
	const kept = (write) => x.kept[name].map(([codec, many, each]) => `${grouped(many)}·(${write(codecs[codec], each)})`).join(" + ");
	const numbers = (text, each) => text?.replace(/\b(n|out|in)\b/g, (letter) => grouped(sizes[letter])) ?? grouped(each);
	return formula(kept((text) => text ?? "bytes in the file"), kept(numbers), `${grouped(x.bytes[name])} bytes`);
}

// Tiles by kind of layer, or by kind of weight, which merges equal weights of several kinds of layers.
function areas(one, state, set) {
	const kinds = state.by === "kind";
	const treemapView = (x) => one.sections[x.section].where + times(one.sections[x.section].times);
	const unit = UNITS[state.map];
	const common = (x) => ({ place: kinds ? treemapView(x) : undefined, section: x.section, group: x.group ?? "attention" });
	const mixed = (x, name, detail, form, title) => ({ ...common(x), name, detail, size: value(form, set.variables), tell: () => [title, derivation(form, set.variables, unit)] });
	if (state.map === "cache") return one.cached.map((x) => mixed(x, bare(x.path), x.what, x.form, x.what));
	const size = (x) => (state.map === "bytes" ? x.bytes[set.dtype.name] : x[state.map]) ?? 0;
	const tiles = [...Map.groupBy(one.tiles, (x) => `${kinds && x.section} ${x.path} ${x.shape}`).values()].map((list) => {
		const [x] = list;
		const tell = () => [x.path, ...list.flatMap((y) => weight(y, state.map, set.dtype)), list.length > 1 && [[size, unit], [(y) => y.copies, "copies"]].map(([of, what]) => sumFormula(list.map((y) => [treemapView(y), of(y)]), what))].flat();
		return { ...common(x), name: bare(x.path), detail: x.shape.join("×") + times(sum(list.map((y) => y.copies))), size: sum(list.map(size)), tell };
	});
	if (state.map !== "flops") return tiles;
	const meet = (x) => `${bare(x.path)}: attention products`;
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
		return state.map === "bytes" ? [sumFormula(kind.paths.map((x, j) => [bare(x), kind.of[dtype][j]]), "bytes")] : derivation(form, set.variables, UNITS[state.map]);
	};
	return { name: String(i), label: `layer ${i}`, inside, place: section.where, section: kind.section, group: "other", detail: "", size: value(form, set.variables), tell: () => [`layer ${i}`, lines()] };
}

function items(one, state, set) {
	const outside = (x) => one.sections[x.section].layers === false;
	if (state.by !== "layer" || !one.layers.order.length) return areas(one, state, set);
	return [...one.layers.order.map((_, i) => layer(one, state, set, i)), ...areas(one, { ...state, by: "kind" }, set).filter(outside)];
}

function map(one, state, change) {
	const set = settings(one, state);
	const found = items(one, state, set).filter((x) => x.size > 0n);
	if (!found.length) return h("p", state.map === "cache" ? "Nothing is cached." : "Nothing to show.");
	const focus = (x) => (one.sections[x.section].layers ? () => change({ focus: String(x.section) }) : undefined);
	const whole = sum(found.map((x) => x.size));
	const unit = UNITS[state.map];
	const tell = () => [`all: ${texts.maps[state.map]}`, sumFormula(found.map((x) => [x.label ?? x.name, x.size])), unit === "bytes" && inBytes(whole)];
	const total = numberButton(grouped(whole), tell, { "data-part": "area" });
	const tokens = `${grouped(state.context)} tokens`;
	const treemapView = { flops: `the last of ${tokens}`, cache: `${tokens} × ${grouped(state.batch)}`, bytes: set.dtype.name }[state.map];
	return h("div", faint(total, ` ${unit}`, treemapView && [", ", h("span.set", treemapView)], unit === "bytes" && [" (", numberButton(gibibytes(whole), tell), ")"]), treemap(`${one.name}: ${texts.maps[state.map]}`, found, unit, focus));
}

function block(one, section) {
	const all = numberWithFormula(section.each, `one of ${section.where}`, section.symbols, section.numbers);
	const tell = (x) => numberButton(grouped(x.each), () => [x.path, productFormula(x, [], grouped(x.each))]);
	const heading = h("p", h("span.name", section.where), ": ", all, texts.matrices);
	return h("div", heading, matrices(section.where, section.rows.filter((x) => !x.tied), tell));
}

export function treemapView(one, state, change) {
	const layers = one.sections.map((x, i) => [String(i), x]).filter(([, x]) => x.layers);
	const by = Object.entries(texts.by).filter(([x]) => x !== "layer" || one.layers.order.length);
	const place = h("div");
	const controls = group();
	let [shown, drawn, waiting] = ["", "", 0];
	// A treemap of many tiles is redrawn once the slider rests.
	const draw = () => {
		const wanted = `${state.map} ${state.by} ${state.focus}`;
		const depends = { bytes: ["dtype"], flops: ["context"], cache: ["context", "batch", "kv"] }[state.map] ?? [];
		const set = [wanted, ...depends.map((x) => state[x])].join(" ");
		if (set === drawn) return;
		drawn = set;
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
