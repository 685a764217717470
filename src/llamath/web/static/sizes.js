// The section on memory: sliders, a bar, every number with its derivation, cards, and the curve over the context.
import { texts } from "./data.js";
import { gibibytes, gigabytes, grouped, percent, value } from "./forms.js";
import { formula, h, hidden, layered, numeral, row, scrolled, table } from "./dom.js";
import { about, held, longest, MOST, settings } from "./memory.js";
import { bars, called } from "./bar.js";
import { controls } from "./controls.js";
import { curve, guess, key, sampled } from "./curve.js";
import { all, both, derived } from "./derived.js";

const CHOSEN = ["mode", "batch", "dtype", "kv", "gpus", "tp", "precision", "optimizer", "trainers", "zero", "recompute", "attention", "kernels"];

// How wide a picture may be; asked for once, since every answer takes a layout of the page.
let wide = 0;
export const room = () => (wide ||= Math.min(Math.max(document.documentElement.clientWidth - 32, 280), 990));
new ResizeObserver(() => (wide = 0)).observe(document.documentElement);

function weights({ dtype, split }, found) {
	const lines = dtype.lines.map((x) => `${x.what}: ${x.formula} = ${grouped(x.bytes)}`);
	const whose = split.count === "1" ? [] : [`Of these one GPU holds, with ${split.layout}, ${grouped(found.weights)} bytes: its pieces of the matrices that are cut, and those that every GPU has whole.`];
	return [formula(lines.join("\n+ "), `${grouped(dtype.bytes)} bytes`), ...whose];
}

function terms(lines, found) {
	if (lines.length === 1) return [...derived(lines[0].form, found, "bytes"), lines[0].says];
	const each = lines.flatMap((x) => [h("h3", x.what), ...derived(x.form, found, "bytes"), x.says]);
	const parts = lines.map((x) => value(x.form, found));
	return [...each, h("h3", "together"), formula(parts.map((x) => grouped(x)).join(" + "), `${grouped(parts.reduce((a, b) => a + b))} bytes`)];
}

function derivation(part, found, set) {
	const { plan } = set;
	const running = plan.mode === "run";
	const title = part === "weights" && running ? `weights, ${set.dtype.name}` : called(part);
	if (part === "total") return ["all", formula(plan.parts.map(called).join(" + "), plan.parts.map((x) => grouped(found[x])).join(" + "), `${grouped(found.total)} bytes`), both(found.total)];
	const lines = found.stage.lines[part];
	const whole = running ? derived(all(lines.map((x) => x.form)), found, "bytes") : terms(lines, found);
	return [title, ...(part === "weights" && running ? weights(set, found) : lines.length ? whole : ["Nothing is kept."]), both(found[part]), running ? texts.estimates[part] : ""];
}

// A table of the parts; its texts are replaced in place.
function partsTable(now, index) {
	const { parts, mode } = now()[index].set.plan;
	const rows = [...parts, "total"].map((part) => {
		const tell = () => derivation(part, now()[index].found, now()[index].set);
		const number = numeral("", tell, { "data-part": index ? null : part });
		const texts = ["", "", ""].map((x) => h("td", { class: "n" }));
		const head = h("th", { scope: "row", class: "whole" }, part !== "total" && h("span", { class: `key ${part}` }), part === "total" ? "all" : called(part));
		return { part, number, texts, element: row({ class: part === "total" ? "head" : null }, head, [number], ...texts) };
	});
	const caption = h("caption");
	const element = table(null, [h("th", { scope: "col" }, hidden("what")), ["bytes"], ["GB"], ["GiB"], ["share"]], rows.map((x) => x.element));
	element.prepend(caption);
	const draw = () => {
		const { set, found, name } = now()[index];
		const where = set.plan.gpus === "1" || mode === "train" ? "" : `, the fullest: ${found.stage.where}`;
		const padded = mode === "train" && found.T !== set.plan.variables.T ? `; sequences are filled up to ${grouped(found.T)} tokens, which tensor parallelism cuts evenly` : "";
		caption.textContent = `${now().length > 1 ? `${name}: ` : ""}on ${set.plan.said}${where}${padded}`;
		for (const { part, number, texts } of rows) {
			number.textContent = grouped(found[part]);
			const said = [gigabytes(found[part]), gibibytes(found[part]), part === "total" ? "" : percent(found[part], found.total)];
			texts.forEach((x, i) => (x.textContent = said[i]));
		}
	};
	return { element, draw };
}

function proof(card, at, { set, name }) {
	const memory = BigInt(card.memory);
	const line = (n) => `${grouped(held(set, n).fullest.total)} bytes with ${grouped(n)} tokens`;
	const lines = at === null ? [`${line(MOST)} ≤ ${grouped(memory)}`] : [at && `${line(at)} ≤ ${grouped(memory)}`, `${line(at + 1n)} > ${grouped(memory)}`].filter(Boolean);
	return [`${name} on ${card.title}: the longest context`, ...lines.map((x) => formula(x)), texts.longest];
}

function rest(card, { found, name }) {
	return [`${name} on ${card.title}`, formula(`${grouped(card.memory)} − ${grouped(found.total)}`, `${grouped(BigInt(card.memory) - found.total)} bytes`)];
}

const long = (at) => (at === null ? "any" : at ? `${grouped(at)} tokens` : "none");

function cardsTable(now, cards) {
	const rows = cards.map((card, i) => {
		const cells = now().map((_, j) => {
			const number = numeral("", () => proof(card, now()[j].crossings[i].at, now()[j]), { "data-card": j ? null : card.name });
			const left = numeral("", () => rest(card, now()[j]));
			return { number, left };
		});
		return { cells, element: row(card.title, [gibibytes(card.memory)], ...cells.flatMap((x) => [x.left, [x.number]])) };
	});
	const said = (x) => (now().length > 1 ? `${x.name}, ` : "");
	const columns = now().flatMap((x) => [`${said(x)}at these settings`, [`${said(x)}longest context`]]);
	const element = table("Cards, by what the fullest GPU holds", ["card", ["memory"], ...columns], rows.map((x) => x.element));
	const draw = () => {
		for (const [i, { cells }] of rows.entries()) {
			for (const [j, cell] of cells.entries()) {
				const left = BigInt(cards[i].memory) - now()[j].found.total;
				cell.left.textContent = left >= 0n ? `fits, ${gibibytes(left)} left` : `lacks ${gibibytes(-left)}`;
				cell.number.textContent = long(now()[j].crossings[i].at);
			}
		}
	};
	return { element, draw };
}

function looked(set, cards) {
	const total = about(set);
	const samples = sampled(total);
	const crossings = cards.map((card) => {
		const near = guess(samples, total, Number(card.memory));
		return { card, at: longest(set, BigInt(card.memory), near ?? Number(MOST)) };
	});
	return { samples, crossings };
}

export function memory(models, cards, state, change) {
	const element = h("div");
	let shown = {};
	let now = [];
	const build = (structure) => {
		const focus = element.contains(document.activeElement) ? document.activeElement.id : "";
		const tables = [...now.map((_, i) => partsTable(() => now, i)), cardsTable(() => now, cards)];
		const bar = h("figure", { class: "bars" });
		const plot = h("figure", { class: "plots" });
		const drawn = { bar: layered(), plot: layered() };
		const beside = h("div", { class: "pair" }, ...tables.slice(0, -1).map((x, i) => scrolled(`table of memory${i ? ", second model" : ""}`, x.element)));
		element.replaceChildren(controls(models, state, change), bar, beside, plot, scrolled("table of cards", tables.at(-1).element));
		shown = { structure, tables, bar, plot, drawn };
		if (focus) document.getElementById(focus)?.focus();
	};
	const draw = () => {
		const chosen = [...CHOSEN.map((x) => state[x]), room()].join(" ");
		const same = shown.chosen === chosen;
		now = models.map((one, i) => {
			const set = settings(one, state);
			const old = same ? now[i] : looked(set, cards);
			return { ...old, name: one.name, set, found: held(set).fullest };
		});
		const structure = [state.mode, state.gpus, state.trainers].join(" ");
		if (shown.structure !== structure) build(structure);
		const bar = bars(shown.drawn.bar, now.map((x) => ({ label: x.name, found: x.found })), now[0].set.plan.parts, cards, room());
		const plot = curve(shown.drawn.plot, now, cards, state, models.map((x) => x.sizes.own), room());
		if (!bar.isConnected) shown.bar.replaceChildren(bar);
		if (!plot.isConnected) shown.plot.replaceChildren(plot, ...[key(now)].filter(Boolean));
		for (const x of shown.tables) x.draw();
		shown.chosen = chosen;
	};
	draw();
	return { element, draw };
}
