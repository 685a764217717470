// The page: what its address says, drawn; and drawn anew, in part, when that changes.
import { grouped, value } from "./forms.js";
import { choice, formula, h, numeral, section } from "./dom.js";
import { possible, read, write } from "./state.js";
import { matrices, treemap } from "./treemap.js";
import { derivation, tensors } from "./table.js";
import { held, memory, PARTS, settings } from "./memory.js";
import { comparison } from "./compare.js";

const data = JSON.parse(document.getElementById("data").textContent);
const known = possible(data);
const state = read(location.hash, known);
const main = document.getElementById("page");
const MAPS = { parameters: "parameters", bytes: "bytes", flops: "FLOPs of matrices, per token", cache: "bytes of cache" };
let parts = {};
let waiting = 0;

const model = () => data.models[state.view === "b" ? 1 : 0];

function counts(one) {
  const [total, ...rest] = one.counts;
  const tell = (x) => () => ({ title: `${x.name}: ${x.everyday}`, lines: [x.says, x.symbols ? formula(x.symbols, x.numbers, grouped(BigInt(x.value))) : grouped(BigInt(x.value)), letters(one)].filter(Boolean) });
  const others = rest.map((x) => h("li", {}, `${x.name} `, numeral(grouped(BigInt(x.value)), tell(x))));
  return [
    h("p", { class: "total" }, numeral(grouped(BigInt(total.value)), tell(total), { "data-part": "parameters" }), ` parameters (${one.everyday})`),
    h("details", {}, h("summary", {}, "Other counts"), h("ul", {}, ...others)),
    h("p", { class: "faint" }, `${one.family}: ${one.source}`),
    ...one.notes.map((x) => h("p", { class: "faint" }, x)),
  ];
}

function letters(one) {
  const said = (x) => [x.says, x.key].filter(Boolean).join(", ");
  const rows = one.letters.map((x) => h("tr", {}, h("th", { scope: "row" }, x.letter), h("td", { class: "n" }, grouped(BigInt(x.value))), h("td", {}, said(x))));
  return h("table", { class: "letters" }, h("caption", { class: "hidden" }, "letters"), h("tbody", {}, ...rows));
}

function tileOf(x, kind, dtype, one) {
  const bytes = x.bytes[dtype];
  const size = { parameters: x.parameters, bytes, flops: x.flops }[kind];
  const name = x.path.replace("layers.{l}.", "").replace(/\.weight$/, "");
  const many = x.copies === "1" ? "" : ` × ${grouped(BigInt(x.copies))}`;
  const symbols = (n) => [x.dims.join("·"), ...(n === "1" ? [] : [n])];
  const numbers = (n) => [...x.shape, ...(n === "1" ? [] : [n])].map((y) => grouped(BigInt(y)));
  const lines = {
    parameters: [symbols(x.copies).join("·"), numbers(x.copies).join("·"), grouped(BigInt(x.parameters))],
    bytes: [`${x.path} in ${dtype}: ${grouped(BigInt(x.parameters))} numbers`, `${grouped(BigInt(bytes))} bytes`],
    flops: [`2·${symbols(x.live).join("·")}`, `2·${numbers(x.live).join("·")}`, `${grouped(BigInt(x.flops))} FLOPs`],
  }[kind];
  return { name, group: x.group, detail: x.shape.join("×") + many, size: BigInt(size), tell: () => ({ title: x.path, lines: [formula(...lines), letters(one)] }) };
}


function map(one) {
  const set = settings(one, state);
  const title = `${one.name}: ${MAPS[state.map]}`;
  if (state.map !== "cache") return treemap(title, one.tiles.map((x) => tileOf(x, state.map, set.dtype.name, one)), state.map === "flops" ? "FLOPs" : state.map);
  const items = one.sizes.gpus[0].stages[0].cache.map((x) => {
    const n = value(x.form, set.variables);
    return { name: x.what, group: "attention", detail: `${state.context} tokens × ${state.batch}`, size: n, tell: () => ({ title: x.what, lines: [formula(`${grouped(n)} bytes`)] }) };
  });
  return items.length ? treemap(title, items, "bytes") : h("p", {}, "Nothing is remembered.");
}

function where(one) {
  const layers = one.sections.map((x, i) => [String(i), x]).filter(([, x]) => x.layers);
  const modes = choice("Areas", "map", Object.entries(MAPS), state.map, (x) => change({ map: x }));
  const focus = choice("Focus", "focus", [["", "whole model"], ...layers.map(([i, x]) => [i, `a block of ${x.where}`])], state.focus, (x) => change({ focus: x }));
  const place = h("div", {});
  const draw = () => {
    const block = one.sections[Number(state.focus || -1)];
    if (!block) return place.replaceChildren(map(one));
    const tell = (x) => numeral(grouped(BigInt(x.each)), () => derivation(x, block));
    const text = `${block.where}: ${grouped(BigInt(block.each))} parameters each; matrices to one scale, as wide as they read, as high as they write`;
    return place.replaceChildren(h("p", {}, text), matrices(block.where, block.rows.filter((x) => !x.tied), tell));
  };
  draw();
  return { element: h("div", {}, h("div", { class: "controls" }, modes, focus), place), draw };
}

function single() {
  const one = model();
  parts = { where: where(one), memory: memory(one, data.cards, state, change), tensors: tensors(one, state, change) };
  return [
    ...counts(one),
    section("where", "To scale", parts.where.element),
    section("memory", "Memory to run it", parts.memory.element),
    section("tensors", "Tensors", parts.tensors.element),
    section("letters", "Letters", letters(one)),
  ];
}

function views() {
  if (data.models.length < 2) return null;
  const names = { a: data.models[0].name, b: data.models[1].name, difference: "both" };
  const buttons = Object.entries(names).map(([key, text]) => h("button", { type: "button", "data-view": key, "aria-pressed": String(state.view === key), onclick: () => change({ view: key }) }, text));
  return h("nav", { "aria-label": "models" }, ...buttons);
}

function help() {
  const keys = [["/", "find a tensor"], ["?", "this list"], ["← →", "fold and unfold a group of tensors"], ["↑ ↓", "the next group, the next tile"], ["Enter", "what a number or tile comes from"], ["Esc", "close"]];
  const dialog = h("dialog", { "aria-labelledby": "help" }, h("h2", { id: "help" }, "Keys"), h("dl", {}, ...keys.flatMap(([key, text]) => [h("dt", {}, key), h("dd", {}, text)])), h("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Close"));
  return dialog;
}

const keys = help();

function draw() {
  document.documentElement.dataset.theme = state.theme || "auto";
  const both = state.view === "difference";
  const names = data.models.map((x) => x.name);
  const title = both ? names.join(" → ") : model().name;
  const themes = [["", "as the system"], ["light", "light"], ["dark", "dark"]];
  const tools = h("div", { class: "controls tools" }, choice("Theme", "theme", themes, state.theme, (x) => change({ theme: x })), h("button", { type: "button", onclick: () => keys.showModal() }, "Keys ( ? )"));
  document.title = `${title} · llamath`;
  main.replaceChildren(h("header", {}, h("h1", {}, title), tools), ...[views()].filter(Boolean), ...(both ? [comparison(data.difference, names)] : single()));
}

// Which parts show which settings; any other setting draws the whole page.
const SHOW = { context: ["memory", "where"], batch: ["memory", "where"], dtype: ["memory", "where"], kv: ["memory", "where"], gpus: ["memory"], map: ["where"], focus: ["where"], names: ["tensors"], sort: ["tensors"], find: ["tensors"] };

function change(to) {
  Object.assign(state, to);
  const names = Object.keys(to);
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => history.replaceState(null, "", write(state, known)));
  if (names.includes("theme")) document.documentElement.dataset.theme = state.theme || "auto";
  else if (names.every((x) => SHOW[x])) for (const part of new Set(names.flatMap((x) => SHOW[x]))) redraw(part, names);
  else {
    draw();
    if (names.includes("view")) main.querySelector(`[data-view="${state.view}"]`)?.focus();
  }
}

function redraw(part, names) {
  const depends = part !== "where" || names.some((x) => ["map", "focus"].includes(x)) || state.map === "cache" || (state.map === "bytes" && names.includes("dtype"));
  if (!depends) return;
  const sorting = document.activeElement?.dataset?.sort;
  parts[part]?.draw();
  if (sorting) main.querySelector(`[data-sort="${sorting}"]`)?.focus();
}

addEventListener("hashchange", () => {
  Object.assign(state, read(location.hash, known));
  draw();
});

addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "?") keys.showModal();
  else if (event.key === "/") document.getElementById("find")?.focus();
  else return;
  event.preventDefault();
});

// For tests, and for who asks from the console: what the fullest GPU holds at these settings, as texts.
globalThis.llamath = {
  memory(index, asked) {
    const one = data.models[index];
    const found = held(settings(one, asked)).fullest;
    return Object.fromEntries([...PARTS, "total"].map((x) => [x, found[x].toString()]));
  },
};

document.body.append(keys);
draw();
