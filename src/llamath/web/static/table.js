// The table of tensors: folded by section, filtered, sorted, under any of their names.
import { grouped } from "./forms.js";
import { choice, formula, h, numeral } from "./dom.js";

const NAMES = [["path", "canonical"], ["hf", "Hugging Face"], ["meta", "Meta"], ["gguf", "GGUF"]];

const called = (row, kind) => (kind === "path" ? row.path : row.names[kind] || `– (${row.path})`);

export function derivation(row, section) {
  const n = (text) => grouped(BigInt(text));
  if (row.tied) return { title: row.path, lines: [`Its numbers are those of ${row.tied}: it adds none.`] };
  const factors = [row.copies, row.times].filter((x) => x !== "1");
  const letters = [row.dims.join("·"), ...(row.copies === "1" ? [] : [n(row.copies)]), ...(row.times === "1" ? [] : [section.letter])];
  const numbers = [...row.shape, ...factors].map(n);
  return { title: row.path, lines: [formula(letters.join("·"), numbers.join("·"), n(row.total))] };
}

function sorted(rows, key) {
  if (!key) return rows;
  if (key === "path") return rows.toSorted((a, b) => (a.path < b.path ? -1 : 1));
  return rows.toSorted((a, b) => (BigInt(a[key]) < BigInt(b[key]) ? 1 : -1));
}

function line(row, section, names) {
  const total = row.tied ? "tied" : numeral(grouped(BigInt(row.total)), () => derivation(row, section));
  const copies = BigInt(row.copies) * BigInt(row.times);
  return h(
    "tr",
    {},
    h("th", { scope: "row", class: "path" }, called(row, names)),
    h("td", {}, `${row.dims.join("×")} = ${row.shape.join("×")}`),
    h("td", { class: "n" }, grouped(BigInt(row.each))),
    h("td", { class: "n" }, grouped(copies)),
    h("td", { class: "n" }, total),
    h("td", { class: "n" }, row.share),
  );
}

function body(section, index, state, closed, again) {
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (x) => words.every((word) => [x.path, x.group, ...Object.values(x.names)].some((y) => y.toLowerCase().includes(word)));
  const rows = sorted(section.rows.filter(matches), state.sort);
  if (!rows.length) return null;
  const open = !closed.has(index) || words.length > 0;
  const turn = (to) => {
    if (to) closed.delete(index);
    else closed.add(index);
    again(index);
  };
  const key = (event) => {
    if (event.key === "ArrowRight" && !open) turn(true);
    else if (event.key === "ArrowLeft" && open) turn(false);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") neighbour(event.currentTarget, event.key === "ArrowDown" ? 1 : -1);
    else return;
    event.preventDefault();
  };
  const total = numeral(grouped(BigInt(section.total)), () => ({
    title: section.where,
    lines: [formula(`${section.letter === "1" ? "" : `${section.letter}·`}(${section.symbols})`, `${section.times}·(${section.numbers})`, grouped(BigInt(section.total)))],
  }));
  const toggle = h("button", { type: "button", class: "fold", "aria-expanded": String(open), "data-section": index, onclick: () => turn(!open), onkeydown: key }, section.where);
  const head = h(
    "tr",
    { class: "head" },
    h("th", { scope: "rowgroup", colspan: "2" }, toggle),
    h("td", { class: "n" }, grouped(BigInt(section.each))),
    h("td", { class: "n" }, grouped(BigInt(section.times))),
    h("td", { class: "n" }, total),
    h("td", { class: "n" }, section.share),
  );
  return h("tbody", {}, head, ...(open ? rows.map((x) => line(x, section, state.names)) : []));
}

function neighbour(button, step) {
  const all = [...button.closest("table").querySelectorAll("button.fold")];
  all[all.indexOf(button) + step]?.focus();
}

export function tensors(model, state, change) {
  const closed = new Set();
  const place = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table of tensors" });
  const count = h("p", { class: "faint", role: "status" });
  const draw = (focused) => {
    const bodies = model.sections.map((x, i) => body(x, i, state, closed, draw));
    const columns = [["path", "weight"], ["", "shape"], ["each", "each"], ["", "copies"], ["total", "all"], ["", "share"]];
    const sorts = columns.map(([key, text]) => {
      const chosen = key && state.sort === key;
      const next = () => change({ sort: chosen ? "" : key });
      const said = key ? h("button", { type: "button", class: "plain", "data-sort": key, onclick: next }, text) : text;
      const style = ["weight", "shape"].includes(text) ? null : "n";
      return h("th", { scope: "col", class: style, "aria-sort": chosen ? (key === "path" ? "ascending" : "descending") : null }, said);
    });
    place.replaceChildren(h("table", {}, h("caption", { class: "hidden" }, `Tensors of ${model.name}`), h("thead", {}, h("tr", {}, ...sorts)), ...bodies.filter(Boolean)));
    const shown = bodies.filter(Boolean).length;
    count.textContent = state.find ? `${shown ? `${shown} of ${model.sections.length} groups have` : "nothing has"} “${state.find}”` : "";
    if (focused !== undefined) place.querySelector(`button[data-section="${focused}"]`)?.focus();
  };
  const find = h("input", { type: "search", id: "find", value: state.find, maxlength: "80", oninput: (event) => change({ find: event.target.value }) });
  const search = h("span", { class: "choice" }, h("label", { for: "find" }, "Find ( / )"), " ", find);
  const controls = h("div", { class: "controls" }, search, choice("Names", "names", NAMES, state.names, (x) => change({ names: x })));
  draw();
  return { element: h("div", {}, controls, count, place), draw };
}
