// Two models: the waterfall of causes, what differs to scale, weights by role, configurations side by side.
import { grouped, short, signed, times } from "./forms.js";
import { faint, formula, h, hidden, numeral, path, rect, row, s, scrolled, section, table } from "./dom.js";
import { bare, treemap } from "./treemap.js";

function told(cause) {
	const lines = cause.parts.map((x) => `${x.path}${x.layers ? ` in ${x.layers} layers` : ""}: ${signed(x.delta)}`);
	return [cause.label, formula(lines.join("\n"), signed(cause.delta)), cause.where];
}

// The total of one of them, with its own formula.
function ended(one) {
	const { symbols, numbers, value } = one.counts[0];
	return numeral(grouped(value), () => [one.name, formula(symbols, numbers, grouped(value))]);
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
		return h("td", { class: "flow" }, s("svg", { width: "100%", height: 20, "aria-hidden": "true" }, bar(kind), kind === "fewer" && bar("hatched")));
	};
	const end = (one, n) => row({ class: "head" }, one.name, [ended(one)], cell(0n, n, "total"));
	const rows = data.causes.map((x, i) => row([x.label, h("span", { class: "faint block" }, x.where)], [numeral(signed(x.delta), () => told(x))], cell(levels[i], levels[i + 1], x.delta.startsWith("-") ? "fewer" : "more")));
	const made = table(hidden(`From ${names[0]} to ${names[1]}`), ["cause", ["parameters"], "from and to"], end(models[0], a), rows, end(models[1], b));
	made.className = "waterfall";
	return made;
}

const shape = (x) => (x ? `${x.dims.join("×")} = ${x.shape.join("×")}${times(x.copies)}${x.tied ? ", tied" : ""}` : "–");

function pair(x) {
	const [a, b] = [x.a, x.b].map((y) => BigInt(y?.parameters ?? 0));
	return [x.path, formula(`${shape(x.b)}\n− ${shape(x.a)}`, `${grouped(b)} − ${grouped(a)}`, signed(x.delta))];
}

function aligned(data, names) {
	const rows = data.weights.map((x) => row(path(x.path), shape(x.a), shape(x.b), [numeral(signed(x.delta), () => pair(x))]));
	return table(`${data.shared.weights.length} weights are the same in both: ${grouped(data.shared.parameters)} parameters`, ["weight", ...names, ["difference"]], rows);
}

function configs(data, names) {
	const rows = data.config.map((x) => row(path(x.key), x.a, x.b, x.moves));
	return table(`${data.agreed.length} keys say the same; * a default, – no such key`, ["key", ...names, "moves"], rows);
}

export function comparison(data, models) {
	const names = models.map((x) => x.name);
	const items = data.weights.filter((x) => x.delta !== "0").map((x) => {
		const [sign, n] = x.delta.startsWith("-") ? ["fewer", -BigInt(x.delta)] : ["more", BigInt(x.delta)];
		return { name: bare(x.path), group: x.group, detail: `${sign} by ${short(n)}`, size: n, sign, tell: () => pair(x) };
	});
	const total = numeral(signed(data.delta), () => ["difference", formula(`${grouped(data.totals[1])} − ${grouped(data.totals[0])}`, signed(data.delta))], { "data-part": "delta" });
	return h(
		"div",
		h("p", { class: "total" }, total, " parameters"),
		section("causes", "Why", scrolled("table of causes", waterfall(data, names, models)), faint(data.method)),
		section("differences", "What differs, to scale", items.length ? treemap("Differences", items, "parameters") : h("p", "No weight differs."), faint("+ more in the second; −, with a dashed edge: fewer")),
		section("aligned", "Weight by weight", scrolled("table of weights", aligned(data, names))),
		section("configs", "Configurations", scrolled("table of configurations", configs(data, names))),
	);
}
