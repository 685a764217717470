// Memory under sliders: Python's forms at these settings, the fullest GPU as a bar, cards as lines.
import { gibibytes, gigabytes, grouped, largest, percent, value, written } from "./forms.js";
import { choice, formula, h, numeral, s } from "./dom.js";
import { whole } from "./state.js";

export const PARTS = ["weights", "cache", "activations", "logits", "overhead"];
const WORDS = {
  T: "T: tokens of each sequence", B: "B: sequences", C: "C: tokens of prompts read at once", a: "a: bytes of an activation",
  q: "q: numbers in a block of the cache", s: "s: bytes of such a block", p: "p: bytes of a number beside the cache",
};

export function settings(model, state) {
  const sizes = model.sizes;
  const dtype = sizes.dtypes.find((x) => x.name === state.dtype) ?? sizes.dtypes[0];
  const kv = sizes.kvs.find((x) => x.name === state.kv) ?? sizes.kvs.find((x) => x.name === sizes.kv);
  const split = sizes.gpus.find((x) => x.count === state.gpus) ?? sizes.gpus[0];
  const variables = { T: BigInt(state.context), B: BigInt(state.batch) };
  for (const [name, n] of Object.entries({ ...dtype.variables, ...kv.variables })) variables[name] = BigInt(n);
  return { dtype, kv, split, variables };
}

function share(stage, dtype, variables) {
  const parts = stage.cache.map((x) => ({ what: x.what, form: x.form, bytes: value(x.form, variables) }));
  const found = { weights: BigInt(stage.weights[dtype.name]), cache: parts.reduce((a, x) => a + x.bytes, 0n) };
  found.activations = value(stage.activations, variables);
  found.logits = value(stage.logits, variables);
  found.overhead = value(stage.overhead, { ...variables, ...found });
  const total = PARTS.reduce((a, x) => a + found[x], 0n);
  return { ...found, total, parts, stage };
}

// What each GPU holds of each stage, and which of them holds most.
export function held({ dtype, split, variables }) {
  const shares = split.stages.map((x) => share(x, dtype, variables));
  return { shares, fullest: shares.reduce((a, x) => (x.total > a.total ? x : a)) };
}

export function longest(set, memory) {
  const most = 2n ** 32n;
  return largest((n) => held({ ...set, variables: { ...set.variables, T: n } }).fullest.total <= memory, most);
}

function derivation(part, found, set) {
  const { dtype, split, variables } = set;
  const all = { ...variables, ...found };
  const bytes = (n) => h("p", {}, `${gigabytes(n)}, ${gibibytes(n)}`);
  if (part === "weights") {
    const lines = dtype.lines.map((x) => `${x.what}: ${x.formula} = ${grouped(BigInt(x.bytes))}`);
    const whose = split.count === "1" ? [] : [`Of these one GPU holds, with ${split.layout}, ${grouped(found.weights)} bytes: its pieces of the matrices that are cut, and those that every GPU has whole.`];
    return { title: `weights, ${dtype.name}`, lines: [formula(lines.join("\n+ "), `${grouped(BigInt(dtype.bytes))} bytes`), ...whose, bytes(found.weights)] };
  }
  const form = part === "cache" ? ["+", ...found.parts.map((x) => x.form)] : found.stage[part];
  const text = written(form, all, true);
  const used = Object.keys(WORDS).filter((x) => new RegExp(`(^|[^A-Za-z])${x}([^A-Za-z]|$)`).test(text));
  const estimate = { activations: "An estimate: a plain pass with flash attention.", overhead: "An estimate: device context, workspaces, gaps." }[part];
  const legend = used.length ? used.map((x) => WORDS[x]).join("; ") : "";
  return { title: part, lines: [formula(text, written(form, all, false), `${grouped(found[part])} bytes`), legend, bytes(found[part]), estimate].filter(Boolean) };
}

function bar(found, cards) {
  const [width, height] = [960, 150];
  const room = cards.filter((x) => BigInt(x.memory) <= found.total * 4n || x === cards[0]);
  const top = [found.total, ...room.map((x) => BigInt(x.memory))].reduce((a, x) => (x > a ? x : a));
  const at = (n) => Number((n * 940_000n) / top) / 1000;
  const shapes = [];
  let x = 0;
  for (const part of PARTS) {
    const w = at(found[part]);
    shapes.push(s("rect", { x, y: 84, width: Math.max(w, found[part] ? 0.5 : 0), height: 48, class: part }, s("title", {}, `${part} ${gibibytes(found[part])}`)));
    if (w > part.length * 8 + 8) shapes.push(s("text", { x: x + 6, y: 113 }, part));
    x += w;
  }
  const ends = [-Infinity, -Infinity, -Infinity];
  for (const card of room) {
    const place = at(BigInt(card.memory));
    const left = Math.min(Math.max(place - card.name.length * 3.6, 0), width - card.name.length * 7.3);
    const row = ends.findIndex((end) => end <= left);
    shapes.push(s("line", { x1: place, x2: place, y1: row < 0 ? 70 : 22 + row * 22, y2: 138, class: "card" }));
    if (row < 0) continue;
    ends[row] = left + card.name.length * 7.3 + 8;
    shapes.push(s("text", { x: left, y: 16 + row * 22, class: "small" }, card.name));
  }
  const spoken = PARTS.map((part) => `${part} ${percent(found[part], found.total)}`).join(", ");
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${gibibytes(found.total)} on the fullest GPU: ${spoken}`, class: "bar" }, ...shapes);
}

function row(part, found, set) {
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, h("span", { class: `key ${part}` }), part),
    h("td", { class: "n" }, numeral(grouped(found[part]), () => derivation(part, found, set), { "data-part": part })),
    h("td", { class: "n" }, gigabytes(found[part])),
    h("td", { class: "n" }, gibibytes(found[part])),
    h("td", { class: "n" }, percent(found[part], found.total)),
  );
}

function fits(cards, found, set) {
  const rows = cards.map((card) => {
    const memory = BigInt(card.memory);
    const left = memory - found.total;
    const most = longest(set, memory);
    const context = most === null ? "any" : most === 0n ? "none" : `${grouped(most)} tokens`;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, card.title),
      h("td", { class: "n" }, gibibytes(memory)),
      h("td", {}, left >= 0n ? `fits, ${gibibytes(left)} left` : `lacks ${gibibytes(-left)}`),
      h("td", { class: "n", "data-card": card.name }, context),
    );
  });
  const columns = [["card"], ["memory", "n"], ["at these settings"], ["longest context", "n"]];
  const head = columns.map(([text, style]) => h("th", { scope: "col", class: style }, text));
  return h("table", {}, h("caption", {}, "Cards, by what the fullest GPU holds"), h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows));
}

function slider(label, name, state, change) {
  const position = (text) => Math.round(Math.log2(Number(text)) * 4);
  const number = h("input", { id: name, type: "text", inputmode: "numeric", value: state[name], maxlength: "10", "aria-describedby": `${name}-note` });
  const note = h("span", { id: `${name}-note`, class: "faint", role: "status" });
  const range = h("input", { type: "range", min: "0", max: name === "context" ? "84" : "48", value: position(state[name]), "aria-label": `${label}, slider` });
  number.addEventListener("input", () => {
    const n = whole(number.value.replaceAll(/[ ,_]/g, ""));
    note.textContent = n ? "" : "a whole number from 1 to 4,294,967,295";
    number.setAttribute("aria-invalid", String(!n));
    if (!n) return;
    range.value = position(n);
    change({ [name]: n.toString() });
  });
  range.addEventListener("input", () => {
    const n = BigInt(Math.round(2 ** (Number(range.value) / 4)));
    number.value = n.toString();
    note.textContent = "";
    number.setAttribute("aria-invalid", "false");
    change({ [name]: n.toString() });
  });
  return h("span", { class: "slider" }, h("label", { for: name }, label), range, number, note);
}

export function memory(model, cards, state, change) {
  const plain = (list, key) => list.map((x) => [x[key], x[key]]);
  const { sizes } = model;
  const now = settings(model, state);
  const controls = h(
    "div",
    { class: "controls" },
    slider("Context", "context", state, change),
    slider("Batch", "batch", state, change),
    choice("Weights", "dtype", plain(sizes.dtypes, "name"), now.dtype.name, (x) => change({ dtype: x })),
    choice("Cache", "kv", plain(sizes.kvs, "name"), now.kv.name, (x) => change({ kv: x })),
    choice("GPUs", "gpus", sizes.gpus.map((x) => [x.count, x.count === "1" ? "1" : `${x.count} (${x.layout})`]), now.split.count, (x) => change({ gpus: x })),
  );
  const place = h("div", {});
  const draw = () => {
    const set = settings(model, state);
    const found = held(set).fullest;
    const head = ["", "bytes", "GB", "GiB", "share"].map((x) => h("th", { scope: "col", class: x ? "n" : null }, x || h("span", { class: "hidden" }, "what")));
    const total = h(
      "tr",
      { class: "head" },
      h("th", { scope: "row" }, "all"),
      h("td", { class: "n" }, numeral(grouped(found.total), () => ({ title: "all", lines: [formula(PARTS.join(" + "), PARTS.map((x) => grouped(found[x])).join(" + "), `${grouped(found.total)} bytes`)] }), { "data-part": "total" })),
      h("td", { class: "n" }, gigabytes(found.total)),
      h("td", { class: "n" }, gibibytes(found.total)),
      h("td", {}),
    );
    const said = set.split.count === "1" ? "on one GPU" : `on the fullest of ${set.split.count} GPUs, ${set.split.layout}, ${found.stage.where}`;
    const lines = h("table", {}, h("caption", {}, said), h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...PARTS.map((x) => row(x, found, set)), total));
    place.replaceChildren(bar(found, cards), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table of memory" }, lines), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table of cards" }, fits(cards, found, set)));
  };
  draw();
  return { element: h("div", {}, controls, place), draw };
}
