// The comparison of two models: waterfall of causes, treemap of differences, weights and configs side by side.
import { grouped, signed, texts } from "./forms.js";
import { sumFormula, numberWithFormula, inShort, productFormula, shapeText, sideFormulas } from "./derivations.js";
import { faint, formula, h, hidden, numberButton, path, rect, row, s, scrollRegion, section, table } from "./dom.js";
import { bare, treemap } from "./treemap.js";

function causeDetails(cause) {
	return [cause.label, cause.where, cause.of.map((x) => formula(...x))];
}

function waterfall(data, names, models) {
	const [a, b] = data.totals.map(BigInt);
	const levels = [a];
	for (const x of data.causes) levels.push(levels.at(-1) + BigInt(x.delta));
	const top = levels.reduce((m, x) => (x > m ? x : m), 1n);
	const at = (n) => Number((n * 10_000n) / top) / 100;
	const cell = (from, to, kind) => {
		const [left, right] = from < to ? [at(from), at(to)] : [at(to), at(from)];
		const wide = Math.max(right - left, 0.4);
		const bar = (style) => rect(`${left}%`, 3, `${wide}%`, 14, style);
		return h("td.flow", s("svg", { width: "100%", height: 20, "aria-hidden": "true" }, bar(kind), kind === "fewer" && bar("hatched")));
	};
	const end = ({ name, counts: [x] }, n) => row({ class: "head" }, name, [numberWithFormula(x.value, name, x.symbols, x.numbers)], cell(0n, n, "total"));
	const rows = data.causes.map((x, i) => row([x.label, h("span.faint.block", x.where)], [numberButton(signed(x.delta), () => causeDetails(x))], cell(levels[i], levels[i + 1], x.delta.startsWith("-") ? "fewer" : "more")));
	const made = table(hidden(`From ${names[0]} to ${names[1]}`), ["cause", ["parameters"], "from and to"], end(models[0], a), rows, end(models[1], b));
	made.className = "waterfall";
	return made;
}

const shape = (x) => (x ? `${shapeText(x)}${x.tied ? ", tied" : ""}` : "–");

function pair(x, models) {
	const entries = [x.a, x.b].map((one, i) => {
		if (!one) return [];
		const found = models[i].sections.flatMap((y) => y.rows).find((y) => y.path === x.path && y.shape.join() === one.shape.join());
		return [`${models[i].name}:`, found ? sideFormulas(found) : "", productFormula(one, [[grouped(one.copies), one.copies]], grouped(one.parameters))];
	});
	const [a, b] = [x.a, x.b].map((y) => grouped(y?.parameters ?? 0));
	const n = BigInt(x.delta);
	return [x.path, ...entries.flat(2), formula(`${models[1].name} − ${models[0].name}`, `${b} − ${a}`, signed(n)), inShort("difference", n < 0n ? -n : n)];
}

// The length of a list; opens the list.
const many = (list, title) => numberButton(String(list.length), () => [title, formula(`|{${list.join(", ")}}|`, list.length)]);

function aligned(data, models) {
	const rows = data.weights.map((x) => row(path(x.path), shape(x.a), shape(x.b), [numberButton(signed(x.delta), () => pair(x, models))]));
	const { weights, parameters } = data.shared;
	const both = models[0].sections.flatMap((x) => x.rows).filter((x) => weights.includes(x.path));
	const sum = numberButton(grouped(parameters), () => ["the same in both", sumFormula(both.map((x) => [x.path, x.total]))]);
	return table([many(weights, "weights"), " weights are the same in both: ", sum, " parameters"], ["weight", ...models.map((x) => x.name), ["difference"]], rows);
}

function configs(data, names) {
	const rows = data.config.map((x) => row(path(x.key), x.a, x.b, x.moves));
	return table([many(data.agreed, "keys"), texts.agreed], ["key", ...names, "moves"], rows);
}

export function comparison(data, models) {
	const names = models.map((x) => x.name);
	const items = data.weights.filter((x) => x.delta !== "0").map((x) => {
		const [sign, n] = x.delta.startsWith("-") ? ["fewer", -BigInt(x.delta)] : ["more", BigInt(x.delta)];
		return { name: bare(x.path), group: x.group, detail: sign, size: n, sign, tell: () => pair(x, models) };
	});
	const total = numberButton(signed(data.delta), () => ["difference", formula(`${names[1]} − ${names[0]}`, `${grouped(data.totals[1])} − ${grouped(data.totals[0])}`, signed(data.delta))], { "data-part": "delta" });
	return h(
		"div",
		h("p.total", total, " parameters"),
		section("causes", "Why", scrollRegion("table of causes", waterfall(data, names, models)), faint(data.method)),
		section("differences", "Differences, to scale", items.length ? treemap("Differences", items, "parameters") : h("p", "No weights differ."), faint(texts.signs)),
		section("aligned", "Weights side by side", scrollRegion("table of weights", aligned(data, models))),
		section("configs", "Configurations", scrollRegion("table of configurations", configs(data, names))),
	);
}
