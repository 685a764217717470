// Two models: the waterfall of causes, what differs to scale, weights by role, configurations side by side.
import { grouped, short, signed } from "./forms.js";
import { formula, h, numeral, s, section } from "./dom.js";
import { treemap } from "./treemap.js";

function told(cause) {
  const lines = cause.parts.map((x) => `${x.path}${x.layers ? ` in ${x.layers} layers` : ""}: ${signed(BigInt(x.delta))}`);
  return { title: cause.label, lines: [formula(lines.join("\n"), signed(BigInt(cause.delta))), cause.where] };
}

function waterfall(data, names) {
  const [a, b] = data.totals.map(BigInt);
  const levels = [a];
  for (const x of data.causes) levels.push(levels.at(-1) + BigInt(x.delta));
  const top = levels.reduce((m, x) => (x > m ? x : m), 1n);
  const at = (n) => Number((n * 10_000n) / top) / 100;
  const cell = (from, to, kind) => {
    const [left, right] = from < to ? [at(from), at(to)] : [at(to), at(from)];
    const wide = Math.max(right - left, 0.4);
    const back = kind === "fewer" ? s("rect", { x: `${left}%`, y: 3, width: `${wide}%`, height: 14, class: "hatched" }) : null;
    return h("td", { class: "flow" }, s("svg", { width: "100%", height: 20, "aria-hidden": "true" }, s("rect", { x: `${left}%`, y: 3, width: `${wide}%`, height: 14, class: kind }), back));
  };
  const end = (name, n) => h("tr", { class: "head" }, h("th", { scope: "row" }, name), h("td", { class: "n" }, grouped(n)), cell(0n, n, "total"));
  const rows = data.causes.map((x, i) => {
    const delta = BigInt(x.delta);
    const kind = delta < 0n ? "fewer" : "more";
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, x.label, h("span", { class: "faint block" }, x.where)),
      h("td", { class: "n" }, numeral(signed(delta), () => told(x))),
      cell(levels[i], levels[i + 1], kind),
    );
  });
  const head = ["cause", "parameters", "from and to"].map((x, i) => h("th", { scope: "col", class: i === 1 ? "n" : null }, x));
  return h("table", { class: "waterfall" }, h("caption", { class: "hidden" }, `From ${names[0]} to ${names[1]}`), h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, end(names[0], a), ...rows, end(names[1], b)));
}

const shape = (x) => (x ? `${x.dims.join("×")} = ${x.shape.join("×")}${x.copies === "1" ? "" : ` × ${grouped(BigInt(x.copies))}`}${x.tied ? ", tied" : ""}` : "–");

function pair(x) {
  const [a, b] = [x.a, x.b].map((y) => BigInt(y?.parameters ?? 0));
  return { title: x.path, lines: [formula(`${shape(x.b)}\n− ${shape(x.a)}`, `${grouped(b)} − ${grouped(a)}`, signed(BigInt(x.delta)))] };
}

function aligned(data, names) {
  const rows = data.weights.map((x) =>
    h("tr", {}, h("th", { scope: "row", class: "path" }, x.path), h("td", {}, shape(x.a)), h("td", {}, shape(x.b)), h("td", { class: "n" }, numeral(signed(BigInt(x.delta)), () => pair(x)))),
  );
  const head = ["weight", names[0], names[1], "difference"].map((x, i) => h("th", { scope: "col", class: i === 3 ? "n" : null }, x));
  const caption = `${data.shared.weights.length} weights are the same in both: ${grouped(BigInt(data.shared.parameters))} parameters`;
  return h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows));
}

function configs(data, names) {
  const rows = data.config.map((x) => h("tr", {}, h("th", { scope: "row", class: "path" }, x.key), h("td", {}, x.a), h("td", {}, x.b), h("td", {}, x.moves)));
  const head = ["key", names[0], names[1], "moves"].map((x) => h("th", { scope: "col" }, x));
  return h("table", {}, h("caption", {}, `${data.agreed.length} keys say the same; * a default, – no such key`), h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows));
}

const scrolled = (label, inside) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, inside);

export function comparison(data, names) {
  const delta = BigInt(data.delta);
  const items = data.weights.filter((x) => x.delta !== "0").map((x) => {
    const n = BigInt(x.delta);
    const name = x.path.replace("layers.{l}.", "").replace(/\.weight$/, "");
    return { name, group: x.group, detail: `${n < 0n ? "fewer" : "more"} by ${short(n < 0n ? -n : n)}`, size: n < 0n ? -n : n, sign: n < 0n ? "fewer" : "more", tell: () => pair(x) };
  });
  const total = numeral(signed(delta), () => ({ title: "difference", lines: [formula(`${grouped(BigInt(data.totals[1]))} − ${grouped(BigInt(data.totals[0]))}`, signed(delta))] }), { "data-part": "delta" });
  const nothing = h("p", {}, "No weight differs.");
  return h(
    "div",
    {},
    h("p", { class: "total" }, total, " parameters"),
    section("causes", "Why", scrolled("table of causes", waterfall(data, names)), h("p", { class: "faint" }, data.method)),
    section("differences", "What differs, to scale", items.length ? treemap("Differences", items, "parameters") : nothing, h("p", { class: "faint" }, "+ more in the second, − and hatched: fewer")),
    section("aligned", "Weight by weight", scrolled("table of weights", aligned(data, names))),
    section("configs", "Configurations", scrolled("table of configurations", configs(data, names))),
  );
}
