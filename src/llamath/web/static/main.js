// The main script: renders the views from the state in the URL and redraws the parts that a setting affects.
import { data, grouped, texts, value } from "./expressions.js";
import { inShort } from "./derivations.js";
import { openDialog, button, choice, formula, h, hidden, numberButton, row, section } from "./dom.js";
import { settingRules, readState, writeState } from "./url_state.js";
import { tensorTable } from "./tensor_table.js";
import { memoryPerGpu, settings } from "./gpu_memory.js";
import { memoryView } from "./memory_view.js";
import { speedLimits, speedView } from "./speed.js";
import { treemapView } from "./treemap_view.js";
import { blockView } from "./block_view.js";
import { checkpointStatus } from "./checkpoint_status.js";
import { comparison } from "./comparison.js";
import { pageLinks } from "./page_links.js";
import { statusLine } from "./clipboard.js";
import { copyPageButtons, addCopyButtons } from "./copy_buttons.js";
import { readConfig, isConfig, fileOpener } from "./dropped_file.js";
import { readHeader, indexFormats } from "./file_headers.js";
import { FileError } from "./strict_json.js";
import { evaluateDesign, designer, decodeSizes, formatPpm, parseCount } from "./design.js";

const rules = settingRules(data.settings);
const state = readState(location.hash, rules);
const main = document.getElementById("page");
let parts = {};
let waiting = 0;
const file = fileOpener(data, change);

const model = () => data.models[state.view === "b" ? 1 : 0];

function counts(model) {
	const [total, ...rest] = model.counts;
	const details = (x) => () => [`${x.name}: ${x.everyday}`, x.says, formula(x.symbols, x.numbers, grouped(x.value)), inShort(x.name, BigInt(x.value), x.everyday), letters(model)];
	const otherCounts = rest.map((x) => h("li", `${x.name} `, numberButton(grouped(x.value), details(x))));
	return [
		h("p.total", numberButton(grouped(total.value), details(total), { "data-part": "parameters" }), " parameters (", numberButton(model.everyday, details(total)), ")"),
		h("details", h("summary", "Other counts"), h("ul", otherCounts)),
		h("p.faint.source", `${model.family}: ${model.source}`),
		...[checkpointStatus(model)].filter(Boolean),
		...model.notes.map((x) => h("p.faint.note", x)),
	];
}

function letters(one, open) {
	const description = (x) => [x.says, x.key].filter(Boolean).join(", ");
	const number = (x) => (open ? numberButton(grouped(x.value), () => [description(x) || x.letter, formula(...x.of), x.from]) : grouped(x.value));
	return h("table.letters", h("caption", hidden("letters")), h("tbody", one.letters.map((x) => row(x.letter, [number(x)], description(x)))));
}

function single() {
	const shown = model();
	parts = { where: treemapView(shown, state, change), block: blockView(shown, state, change), memory: memoryView([shown], data.cards, state, change), speed: speedView(shown, data, state, change), tensors: tensorTable(shown, state, change) };
	return [
		...counts(shown),
		section("where", "Treemap", parts.where.element),
		section("block", "Block diagram", parts.block.element),
		section("memory", "Memory", parts.memory.element),
		section("speed", "Speed", parts.speed.element),
		section("tensors", "Tensors", parts.tensors.element),
		section("letters", "Letters", letters(shown, true)),
	];
}

function design() {
	parts = { design: designer(data, state, change) };
	return [parts.design.element];
}

function difference() {
	parts = { memory: memoryView(data.models, data.cards, state, change) };
	return [comparison(data.difference, data.models), section("memory", "Memory of both", parts.memory.element)];
}

function views() {
	const names = { a: data.models[0].name, ...(data.models.length > 1 ? { b: data.models[1].name, difference: "Comparison" } : {}), design: "Design" };
	const buttons = Object.entries(names).map(([key, text]) => button(text, () => change({ view: key }), { "data-view": key, "aria-pressed": String(state.view === key) }));
	return h("nav", { "aria-label": "views" }, buttons);
}

function help() {
	return openDialog("Keys", h("dl", texts.keys.flatMap(([key, text]) => [h("dt", key), h("dd", text)])));
}

const applyTheme = () => (document.documentElement.dataset.theme = state.theme || "auto");

function draw() {
	applyTheme();
	const isComparison = state.view === "difference";
	const names = data.models.map((x) => x.name);
	const isDesign = state.view === "design";
	const title = isDesign ? "Design" : isComparison ? names.join(" → ") : model().name;
	const tools = h("div.controls.tools", choice("Theme", "theme", texts.themes, state.theme, change), !isDesign && copyPageButtons(isComparison ? data.difference.copy : model().copy, title), file.button, button("Keys ( ? )", help));
	document.title = `${title} · llamath`;
	main.replaceChildren(h("header", h("h1", title), tools), ...[file.place, pageLinks(data.served), views()].filter(Boolean), ...(isDesign ? design() : isComparison ? difference() : single()));
	addCopyButtons(main, title);
}

// Redraw the parts that depend on the changed settings, or the whole page.
function change(to) {
	Object.assign(state, to);
	const names = Object.keys(to);
	cancelAnimationFrame(waiting);
	waiting = requestAnimationFrame(() => history.replaceState(null, "", writeState(state, rules)));
	if (names.includes("theme")) applyTheme();
	else if (names.every((x) => rules[x][2].length)) for (const part of new Set(names.flatMap((x) => rules[x][2]))) redraw(part);
	else {
		draw();
		if (names.includes("view")) main.querySelector(`[data-view="${state.view}"]`)?.focus();
	}
}

function redraw(part) {
	const sorting = document.activeElement?.dataset?.sort;
	parts[part]?.draw();
	if (sorting) main.querySelector(`[data-sort="${sorting}"]`)?.focus();
}

addEventListener("hashchange", () => {
	Object.assign(state, readState(location.hash, rules));
	draw();
});

addEventListener("resize", () => ["memory", "speed"].forEach((part) => redraw(part)));

// A click on a table cell without a button opens the number of its row.
addEventListener("click", (event) => {
	const cell = event.target.closest?.("td");
	if (cell && !cell.querySelector("button") && getSelection().isCollapsed) cell.parentElement.querySelector(".number")?.click();
});

addEventListener("keydown", (event) => {
	const typing = event.target.closest?.("input, select, textarea, dialog");
	if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
	if (event.key === "?") help();
	else if (event.key === "/") document.getElementById("find")?.focus();
	else return;
	event.preventDefault();
});

// Exposed for tests.
globalThis.llamath = { data, state, value, settings, memoryPerGpu, speedLimits, evaluateDesign, decodeSizes, parseCount, formatPpm, isConfig, readConfig, readHeader, indexFormats, FileError };

document.body.append(statusLine);
draw();
