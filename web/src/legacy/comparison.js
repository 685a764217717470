// The comparison of two models: waterfall of causes, treemap of differences, weights and configs side by side.
import { grouped, signed, texts } from "./expressions.js";
import { sumFormula, numberWithFormula, inShort, productFormula, shapeText, sideFormulas } from "./derivations.js";
import { faint, formula, h, hidden, numberButton, path, rect, row, s, scrollRegion, section, table } from "./dom.js";
import { shortPath, treemap } from "./treemap.js";

function causeDetails(cause) {
	return [cause.label, cause.where, cause.of.map((x) => formula(...x))];
}

function waterfall(data, names, models) {
	const [a, b] = data.totals.map(BigInt);
	const levels = [a];
	for (const x of data.causes) levels.push(levels.at(-1) + BigInt(x.delta));
	const top = levels.reduce((m, x) => (x > m ? x : m), 1n);
	const at = (n) => Number((n * 10_000n) / top) / 100;
	const barCell = (from, to, kind) => {
		const [left, right] = from < to ? [at(from), at(to)] : [at(to), at(from)];
		const width = Math.max(right - left, 0.4);
		const bar = (style) => rect(`${left}%`, 3, `${width}%`, 14, style);
		return h("td.flow", s("svg", { width: "100%", height: 20, "aria-hidden": "true" }, bar(kind), kind === "fewer" && bar("hatched")));
	};
	const totalRow = ({ name, counts: [x] }, n) => row({ class: "head" }, name, [numberWithFormula(x.value, name, x.symbols, x.numbers)], barCell(0n, n, "total"));
	const rows = data.causes.map((x, i) => row([x.label, h("span.faint.block", x.where)], [numberButton(signed(x.delta), () => causeDetails(x))], barCell(levels[i], levels[i + 1], x.delta.startsWith("-") ? "fewer" : "more")));
	const element = table(hidden(`From ${names[0]} to ${names[1]}`), ["cause", ["parameters"], "change"], totalRow(models[0], a), rows, totalRow(models[1], b));
	element.className = "waterfall";
	return element;
}

const shapeCell = (x) => (x ? `${shapeText(x)}${x.tied ? ", tied" : ""}` : "–");

function weightDerivation(x, models) {
	const entries = [x.a, x.b].map((weight, i) => {
		if (!weight) return [];
		const tableRow = models[i].sections.flatMap((y) => y.rows).find((y) => y.path === x.path && y.shape.join() === weight.shape.join());
		return [`${models[i].name}:`, tableRow ? sideFormulas(tableRow) : "", productFormula(weight, [[grouped(weight.copies), weight.copies]], grouped(weight.parameters))];
	});
	const [a, b] = [x.a, x.b].map((y) => grouped(y?.parameters ?? 0));
	const n = BigInt(x.delta);
	return [x.path, ...entries.flat(2), formula(`${models[1].name} − ${models[0].name}`, `${b} − ${a}`, signed(n)), inShort("difference", n < 0n ? -n : n)];
}

// The length of a list, which opens the list.
const lengthButton = (list, title) => numberButton(String(list.length), () => [title, formula(`|{${list.join(", ")}}|`, list.length)]);

function weightTable(data, models) {
	const rows = data.weights.map((x) => row(path(x.path), shapeCell(x.a), shapeCell(x.b), [numberButton(signed(x.delta), () => weightDerivation(x, models))]));
	const { weights, parameters } = data.shared;
	const sharedRows = models[0].sections.flatMap((x) => x.rows).filter((x) => weights.includes(x.path));
	const sum = numberButton(grouped(parameters), () => ["the same in both", sumFormula(sharedRows.map((x) => [x.path, x.total]))]);
	return table([lengthButton(weights, "weights"), " weights are the same in both: ", sum, " parameters"], ["weight", ...models.map((x) => x.name), ["difference"]], rows);
}

function configTable(data, names) {
	const rows = data.config.map((x) => row(path(x.key), x.a, x.b, x.moves));
	return table([lengthButton(data.agreed, "keys"), texts.agreed], ["key", ...names, "affects"], rows);
}

export function comparison(data, models) {
	const names = models.map((x) => x.name);
	const items = data.weights.filter((x) => x.delta !== "0").map((x) => {
		const [sign, n] = x.delta.startsWith("-") ? ["fewer", -BigInt(x.delta)] : ["more", BigInt(x.delta)];
		return { name: shortPath(x.path), group: x.group, detail: sign, size: n, sign, details: () => weightDerivation(x, models) };
	});
	const total = numberButton(signed(data.delta), () => ["difference", formula(`${names[1]} − ${names[0]}`, `${grouped(data.totals[1])} − ${grouped(data.totals[0])}`, signed(data.delta))], { "data-part": "delta" });
	return h(
		"div",
		h("p.total", total, " parameters"),
		section("causes", "Causes", scrollRegion("table of causes", waterfall(data, names, models)), faint(data.method)),
		section("differences", "Differences to scale", items.length ? treemap("Differences", items, "parameters") : h("p", "No weights differ."), faint(texts.signs)),
		section("aligned", "Weights side by side", scrollRegion("table of weights", weightTable(data, models))),
		section("configs", "Configurations", scrollRegion("table of configurations", configTable(data, names))),
	);
}
