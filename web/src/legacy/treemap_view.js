// The treemap section: parameters, bytes, FLOPs or KV cache by kind or layer, or the matrices of one block.
import { gibibytes, grouped, sum, texts, times, value } from "./expressions.js";
import { choice, faint, formula, group, h, numberButton } from "./dom.js";
import { sumFormula, numberWithFormula, derivation, inBytes, productFormula } from "./derivations.js";
import { settings } from "./gpu_memory.js";
import { shortPath, matrices, treemap } from "./treemap.js";

const UNITS = { parameters: "parameters", bytes: "bytes", flops: "FLOPs", cache: "bytes" };
const [MANY_TILES, DELAY_MS] = [40, 100];

function weightFormulas(x, map, dtype) {
	const copies = productFormula(x, [[grouped(x.copies), x.copies]], `${grouped(x.parameters)} parameters`);
	if (map === "parameters") return [copies];
	if (map === "flops") return [copies, productFormula(x, [[grouped(x.live), x.live]], `${grouped(x.flops)} FLOPs`, ["2·", "2·"])];
	return [copies, storedFormula(x, dtype), texts.stored];
}

// The bytes of a weight from the formula of its codec, or from the file's header.
function storedFormula(x, { name, codecs }) {
	const sizes = { n: x.shape.reduce((a, n) => a * BigInt(n), 1n), out: x.shape[0], in: x.shape[1] };
	const sumOver = (format) => x.kept[name].map(([codec, n, each]) => `${grouped(n)}·(${format(codecs[codec], each)})`).join(" + ");
	const numbers = (text, each) => text?.replace(/\b(n|out|in)\b/g, (letter) => grouped(sizes[letter])) ?? grouped(each);
	return formula(sumOver((text) => text ?? "bytes in the file"), sumOver(numbers), `${grouped(x.bytes[name])} bytes`);
}

// Tiles by kind of layer, or by kind of weight, which merges equal weights of several kinds of layers.
function weightTiles(one, state, set) {
	const byKind = state.by === "kind";
	const sectionLabel = (x) => one.sections[x.section].where + times(one.sections[x.section].times);
	const unit = UNITS[state.map];
	const common = (x) => ({ place: byKind ? sectionLabel(x) : undefined, section: x.section, group: x.group ?? "attention" });
	const computedTile = (x, name, detail, form, title) => ({ ...common(x), name, detail, size: value(form, set.variables), details: () => [title, derivation(form, set.variables, unit)] });
	if (state.map === "cache") return one.cached.map((x) => computedTile(x, shortPath(x.path), x.what, x.form, x.what));
	const size = (x) => (state.map === "bytes" ? x.bytes[set.dtype.name] : x[state.map]) ?? 0;
	const tiles = [...Map.groupBy(one.tiles, (x) => `${byKind && x.section} ${x.path} ${x.shape}`).values()].map((list) => {
		const [x] = list;
		const details = () => [x.path, ...list.flatMap((y) => weightFormulas(y, state.map, set.dtype)), list.length > 1 && [[size, unit], [(y) => y.copies, "copies"]].map(([of, what]) => sumFormula(list.map((y) => [sectionLabel(y), of(y)]), what))].flat();
		return { ...common(x), name: shortPath(x.path), detail: x.shape.join("×") + times(sum(list.map((y) => y.copies))), size: sum(list.map(size)), details };
	});
	if (state.map !== "flops") return tiles;
	const productName = (x) => `${shortPath(x.path)}: attention products`;
	return [...tiles, ...one.mixing.map((x) => computedTile(x, productName(x), "no weights", x.flops, `${productName(x)}, without weights`))];
}

function layer(one, state, set, i) {
	const kind = one.layers.kinds[one.layers.order[i]];
	const section = one.sections[kind.section];
	const dtype = set.dtype.name;
	const form = state.map === "bytes" ? (kind.bytes[dtype] ?? 0) : kind[state.map];
	const inside = state.map === "parameters" ? Object.entries(kind.groups).map(([group, x]) => [group, BigInt(x)]) : undefined;
	const lines = () => {
		if (state.map === "parameters") return [formula(section.symbols, section.numbers, grouped(kind.parameters))];
		return state.map === "bytes" ? [sumFormula(kind.paths.map((x, j) => [shortPath(x), kind.of[dtype][j]]), "bytes")] : derivation(form, set.variables, UNITS[state.map]);
	};
	return { name: String(i), label: `layer ${i}`, inside, place: section.where, section: kind.section, group: "other", detail: "", size: value(form, set.variables), details: () => [`layer ${i}`, lines()] };
}

function items(one, state, set) {
	const isOutsideLayers = (x) => one.sections[x.section].layers === false;
	if (state.by !== "layer" || !one.layers.order.length) return weightTiles(one, state, set);
	return [...one.layers.order.map((_, i) => layer(one, state, set, i)), ...weightTiles(one, { ...state, by: "kind" }, set).filter(isOutsideLayers)];
}

function map(one, state, change) {
	const set = settings(one, state);
	const tiles = items(one, state, set).filter((x) => x.size > 0n);
	if (!tiles.length) return h("p", state.map === "cache" ? "Nothing is cached." : "Nothing to show.");
	const focus = (x) => (one.sections[x.section].layers ? () => change({ focus: String(x.section) }) : undefined);
	const totalSize = sum(tiles.map((x) => x.size));
	const unit = UNITS[state.map];
	const details = () => [`all: ${texts.maps[state.map]}`, sumFormula(tiles.map((x) => [x.label ?? x.name, x.size])), unit === "bytes" && inBytes(totalSize)];
	const total = numberButton(grouped(totalSize), details, { "data-part": "area" });
	const tokens = `${grouped(state.context)} tokens`;
	const scope = { flops: `the last of ${tokens}`, cache: `${tokens} × ${grouped(state.batch)}`, bytes: set.dtype.name }[state.map];
	return h("div", faint(total, ` ${unit}`, scope && [", ", h("span.set", scope)], unit === "bytes" && [" (", numberButton(gibibytes(totalSize), details), ")"]), treemap(`${one.name}: ${texts.maps[state.map]}`, tiles, unit, focus));
}

function block(one, section) {
	const all = numberWithFormula(section.each, `one of ${section.where}`, section.symbols, section.numbers);
	const details = (x) => numberButton(grouped(x.each), () => [x.path, productFormula(x, [], grouped(x.each))]);
	const heading = h("p", h("span.name", section.where), ": ", all, texts.matrices);
	return h("div", heading, matrices(section.where, section.rows.filter((x) => !x.tied), details));
}

export function treemapView(one, state, change) {
	const layers = one.sections.map((x, i) => [String(i), x]).filter(([, x]) => x.layers);
	const by = Object.entries(texts.by).filter(([x]) => x !== "layer" || one.layers.order.length);
	const place = h("div");
	const controls = group();
	let [shown, drawnSettings, waiting] = ["", "", 0];
	// A treemap of many tiles is redrawn once the slider rests.
	const draw = () => {
		const view = `${state.map} ${state.by} ${state.focus}`;
		const dependencies = { bytes: ["dtype"], flops: ["context"], cache: ["context", "batch", "kv"] }[state.map] ?? [];
		const settingsKey = [view, ...dependencies.map((x) => state[x])].join(" ");
		if (settingsKey === drawnSettings) return;
		drawnSettings = settingsKey;
		clearTimeout(waiting);
		if (view === shown && place.querySelectorAll(".tile").length > MANY_TILES) waiting = setTimeout(show, DELAY_MS);
		else show();
		shown = view;
	};
	const show = () => {
		const section = one.sections[Number(state.focus || -1)];
		place.replaceChildren(section ? block(one, section) : map(one, state, changeAndFocus));
		for (const name of ["map", "by", "focus"]) controls.querySelector(`#choice-${name}`).value = state[name];
	};
	const changeAndFocus = (to) => {
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
