// The page: what its address says, drawn; and drawn anew, in part, when that changes.
import { data, grouped, texts } from "./forms.js";
import { inShort } from "./derived.js";
import { asked, button, choice, faint, formula, h, hidden, numeral, row, section } from "./dom.js";
import { possible, read, write } from "./state.js";
import { tensors } from "./table.js";
import { held, settings } from "./memory.js";
import { memory } from "./sizes.js";
import { passes, speed } from "./speed.js";
import { where } from "./where.js";
import { block } from "./block.js";
import { checkpoint } from "./verdicts.js";
import { comparison } from "./compare.js";
import { others } from "./served.js";
import { saying } from "./share.js";
import { copies, takeaways } from "./taking.js";
import { configured, isConfig, opener } from "./drop.js";
import { headerOf, knowing } from "./headers.js";
import { Refused } from "./strict.js";
import { designed, designer, dimensions, millionths, quantity } from "./design.js";

const known = possible(data.settings);
const state = read(location.hash, known);
const main = document.getElementById("page");
let parts = {};
let waiting = 0;
const file = opener(data, change);

const model = () => data.models[state.view === "b" ? 1 : 0];

function counts(one) {
	const [total, ...rest] = one.counts;
	const tell = (x) => () => [`${x.name}: ${x.everyday}`, x.says, formula(x.symbols, x.numbers, grouped(x.value)), inShort(x.name, BigInt(x.value), x.everyday), letters(one)];
	const others = rest.map((x) => h("li", `${x.name} `, numeral(grouped(x.value), tell(x))));
	return [
		h("p.total", numeral(grouped(total.value), tell(total), { "data-part": "parameters" }), " parameters (", numeral(one.everyday, tell(total)), ")"),
		h("details", h("summary", "Other counts"), h("ul", others)),
		h("p.faint.source", `${one.family}: ${one.source}`),
		...[checkpoint(one)].filter(Boolean),
		...one.notes.map((x) => h("p.faint.note", x)),
	];
}

function letters(one, open) {
	const said = (x) => [x.says, x.key].filter(Boolean).join(", ");
	const number = (x) => (open ? numeral(grouped(x.value), () => [said(x) || x.letter, formula(...x.of), x.from]) : grouped(x.value));
	return h("table.letters", h("caption", hidden("letters")), h("tbody", one.letters.map((x) => row(x.letter, [number(x)], said(x)))));
}

function single() {
	const one = model();
	parts = { where: where(one, state, change), block: block(one, state, change), memory: memory([one], data.cards, state, change), speed: speed(one, data, state, change), tensors: tensors(one, state, change) };
	return [
		...counts(one),
		section("where", "Treemap", parts.where.element),
		section("block", "Block diagram", parts.block.element),
		section("memory", "Memory", parts.memory.element),
		section("speed", "Speed", parts.speed.element),
		section("tensors", "Tensors", parts.tensors.element),
		section("letters", "Letters", letters(one, true)),
	];
}

function design() {
	parts = { design: designer(data, state, change) };
	return [parts.design.element];
}

function difference() {
	parts = { memory: memory(data.models, data.cards, state, change) };
	return [comparison(data.difference, data.models), section("memory", "Memory of both", parts.memory.element)];
}

function views() {
	const names = { a: data.models[0].name, ...(data.models.length > 1 ? { b: data.models[1].name, difference: "both" } : {}), design: "Design" };
	const buttons = Object.entries(names).map(([key, text]) => button(text, () => change({ view: key }), { "data-view": key, "aria-pressed": String(state.view === key) }));
	return h("nav", { "aria-label": "views" }, buttons);
}

function help() {
	return asked("Keys", h("dl", texts.keys.flatMap(([key, text]) => [h("dt", key), h("dd", text)])));
}

const themed = () => (document.documentElement.dataset.theme = state.theme || "auto");

function draw() {
	themed();
	const both = state.view === "difference";
	const names = data.models.map((x) => x.name);
	const own = state.view === "design";
	const title = own ? "Design" : both ? names.join(" → ") : model().name;
	const tools = h("div.controls.tools", choice("Theme", "theme", texts.themes, state.theme, change), !own && copies(both ? data.difference.copy : model().copy, title), file.button, button("Keys ( ? )", help));
	document.title = `${title} · llamath`;
	main.replaceChildren(h("header", h("h1", title), tools), ...[file.place, others(data.served), views()].filter(Boolean), ...(own ? design() : both ? difference() : single()));
	takeaways(main, title);
}

// A setting that no part shows by itself draws the whole page.
function change(to) {
	Object.assign(state, to);
	const names = Object.keys(to);
	cancelAnimationFrame(waiting);
	waiting = requestAnimationFrame(() => history.replaceState(null, "", write(state, known)));
	if (names.includes("theme")) themed();
	else if (names.every((x) => known[x][2].length)) for (const part of new Set(names.flatMap((x) => known[x][2]))) redraw(part);
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
	Object.assign(state, read(location.hash, known));
	draw();
});

addEventListener("resize", () => ["memory", "speed"].forEach((part) => redraw(part)));

// What stands beside a number opens the same.
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

// For tests.
globalThis.llamath = { data, state, settings, held, passes, designed, dimensions, quantity, millionths, isConfig, configured, headerOf, knowing, Refused };

document.body.append(saying);
draw();
