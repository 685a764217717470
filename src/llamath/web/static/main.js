// The page: what its address says, drawn; and drawn anew, in part, when that changes.
import { data, texts } from "./data.js";
import { grouped } from "./forms.js";
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
import { opener, reading } from "./drop.js";
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
	const tell = (x) => () => [`${x.name}: ${x.everyday}`, x.says, x.symbols ? formula(x.symbols, x.numbers, grouped(x.value)) : grouped(x.value), letters(one)];
	const others = rest.map((x) => h("li", `${x.name} `, numeral(grouped(x.value), tell(x))));
	return [
		h("p", { class: "total" }, numeral(grouped(total.value), tell(total), { "data-part": "parameters" }), ` parameters (${one.everyday})`),
		h("details", h("summary", "Other counts"), h("ul", others)),
		faint(`${one.family}: ${one.source}`),
		...[checkpoint(one)].filter(Boolean),
		...one.notes.map((x) => faint(x)),
	];
}

function letters(one) {
	const said = (x) => [x.says, x.key].filter(Boolean).join(", ");
	return h("table", { class: "letters" }, h("caption", hidden("letters")), h("tbody", one.letters.map((x) => row(x.letter, [grouped(x.value)], said(x)))));
}

function single() {
	const one = model();
	parts = { where: where(one, state, change), block: block(one, state, change), memory: memory([one], data.cards, state, change), speed: speed(one, data, state, change), tensors: tensors(one, state, change) };
	return [
		...counts(one),
		section("where", "To scale", parts.where.element),
		section("block", "One block", parts.block.element),
		section("memory", "Memory", parts.memory.element),
		section("speed", "Speed", parts.speed.element),
		section("tensors", "Tensors", parts.tensors.element),
		section("letters", "Letters", letters(one)),
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

function draw() {
	document.documentElement.dataset.theme = state.theme || "auto";
	const both = state.view === "difference";
	const names = data.models.map((x) => x.name);
	const own = state.view === "design";
	const title = own ? "Design" : both ? names.join(" → ") : model().name;
	const themes = [["", "as the system"], ["light", "light"], ["dark", "dark"]];
	const tools = h("div", { class: "controls tools" }, choice("Theme", "theme", themes, state.theme, change), !own && copies(both ? data.difference.copy : model().copy, title), file.button, button("Keys ( ? )", help));
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
	if (names.includes("theme")) document.documentElement.dataset.theme = state.theme || "auto";
	else if (names.every((x) => known[x][2].length)) for (const part of new Set(names.flatMap((x) => known[x][2]))) redraw(part, names);
	else {
		draw();
		if (names.includes("view")) main.querySelector(`[data-view="${state.view}"]`)?.focus();
	}
}

function redraw(part, names) {
	const depends = part !== "where" || names.some((x) => ["map", "by", "focus"].includes(x)) || state.map === "cache" || (state.map === "flops" && names.includes("context")) || (state.map === "bytes" && names.includes("dtype"));
	if (!depends) return;
	const sorting = document.activeElement?.dataset?.sort;
	parts[part]?.draw();
	if (sorting) main.querySelector(`[data-sort="${sorting}"]`)?.focus();
}

addEventListener("hashchange", () => {
	Object.assign(state, read(location.hash, known));
	draw();
});

addEventListener("resize", () => ["memory", "speed"].forEach((part) => redraw(part, [])));

addEventListener("keydown", (event) => {
	const typing = event.target.closest?.("input, select, textarea, dialog");
	if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
	if (event.key === "?") help();
	else if (event.key === "/") document.getElementById("find")?.focus();
	else return;
	event.preventDefault();
});

// For tests, and for who asks from the console: what the fullest GPU holds and how fast it is at most at these settings, as texts.
globalThis.llamath = {
	design(index, sizes) {
		const { design: one } = data.models[index];
		const { form, active, groups, total, live, ...rest } = designed(one, dimensions(one, sizes));
		return { ...rest, total: total.toString(), live: live.toString(), groups: groups.map((x) => x.n.toString()) };
	},
	file: (bytes, name) => reading(new File([bytes], name), data),
	quantity: (text, total) => {
		const found = quantity(text);
		return found && [found.toString(), millionths(BigInt(total), found)];
	},
	memory(index, asked) {
		const set = settings(data.models[index], { ...state, ...asked });
		const found = held(set).fullest;
		return Object.fromEntries([...set.plan.parts, "total"].map((x) => [x, found[x].toString()]));
	},
	speed(index, asked, card) {
		const found = passes(settings(data.models[index], { ...state, ...asked }), data.gpus.find((x) => x.name === card), data.roof);
		return Object.fromEntries(found.passes.map((x) => [x.name, [...["tokens", "bytes", "FLOPs", "rate"].map((y) => x.known[y].toString()), x.bound]]));
	},
};

document.body.append(saying);
draw();
