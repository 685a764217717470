// The section on memory: sliders, a bar, its numbers, cards, and the curve over the context.
import { gibibytes, gigabytes, grouped, percent, texts, value } from "./forms.js";
import { formula, h, hidden, layered, numeral, renewed, row, scrolled, table } from "./dom.js";
import { about, held, longest, MOST, settings } from "./memory.js";
import { bars, called } from "./bar.js";
import { controls } from "./controls.js";
import { curve, guess, key, sampled } from "./curve.js";
import { added, all, derived, inBytes, share } from "./derived.js";

const CHOSEN = ["mode", "batch", "dtype", "kv", "gpus", "tp", "precision", "optimizer", "trainers", "zero", "recompute", "attention", "kernels"];

// How wide a picture may be, asked for once: every answer takes a layout.
let wide = 0;
export const room = () => (wide ||= Math.min(Math.max(document.documentElement.clientWidth - 32, 280), 990));
new ResizeObserver(() => (wide = 0)).observe(document.documentElement);

function weights({ dtype, split }, found) {
	const whose = split.count === "1" ? [] : [`${split.layout}: ${texts.pieces}`, formula("numbers of its pieces · bytes of each", found.stage.sums[dtype.name], `${grouped(found.weights)} bytes`)];
	return [formula(...dtype.of, `${grouped(dtype.bytes)} bytes`), ...whose];
}

function terms(lines, found) {
	if (lines.length === 1) return [...derived(lines[0].form, found, "bytes"), lines[0].says];
	const each = lines.flatMap((x) => [h("h3", x.what), ...derived(x.form, found, "bytes"), x.says]);
	return [...each, h("h3", "together"), added(lines.map((x) => [x.what, value(x.form, found)]), "bytes")];
}

const summed = ({ plan }, found) => added(plan.parts.map((x) => [called(x), found[x]]), "bytes");

function derivation(part, found, set) {
	const { plan } = set;
	const running = plan.mode === "run";
	const title = part === "weights" && running ? `weights, ${set.dtype.name}` : called(part);
	if (part === "total") return ["all", summed(set, found), inBytes(found.total)];
	const lines = found.stage.lines[part];
	const whole = running ? derived(all(lines.map((x) => x.form)), found, "bytes") : terms(lines, found);
	return [title, ...(part === "weights" && running ? weights(set, found) : lines.length ? whole : ["Nothing is stored.", formula(title, "0 bytes")]), inBytes(found[part]), share(called(part), found[part], found.total), running ? texts.estimates[part] : ""];
}

// A table of the parts; its texts are renewed in place.
function partsTable(now, index) {
	const live = [];
	const mine = () => now()[index];
	const { mode, parts } = mine().set.plan;
	const rows = [...parts, "total"].map((part) => {
		const own = part !== "total";
		const bytes = () => mine().found[part];
		const number = renewed(live, () => grouped(bytes()), () => derivation(part, mine().found, mine().set), { "data-part": index ? null : part });
		const texts = [() => gigabytes(bytes()), () => gibibytes(bytes()), () => (own ? percent(bytes(), mine().found.total) : "")];
		return row({ class: own ? null : "head" }, h("th.whole", { scope: "row" }, own && h(`span.key.${part}`), own ? called(part) : "all"), [number], ...texts.map((x) => [renewed(live, x)]));
	});
	const padded = mode === "train" && renewed(live, () => grouped(mine().found.T), () => ["tokens of a sequence", derived(mine().set.plan.tokens, mine().set.plan.variables, "tokens"), texts.cut]);
	const filled = padded && h("span", "; sequences are filled up to ", padded, " tokens");
	const said = () => [now().length > 1 && `${mine().name}: `, `on ${mine().set.plan.said}`, mine().found.stage.where && mine().set.split.count !== "1" && `, the fullest: ${mine().found.stage.where}`].filter(Boolean).join("");
	if (filled) live.push(() => (filled.hidden = mine().found.T === mine().set.plan.variables.T));
	const caption = [h("span.set", renewed(live, said)), filled];
	return { live, element: table(caption, [hidden("what"), ...texts.columns.memory], rows) };
}

function proof(card, at, { set, name }) {
	const all = (n) => `all(${grouped(n)}) = ${grouped(held(set, n).fullest.total)}`;
	const memory = grouped(card.memory);
	const most = at === null ? `${all(MOST)} ≤ ${memory}` : [at && `${all(at)} ≤ ${memory}`, `${all(at + 1n)} > ${memory}`].filter(Boolean).join("; ");
	return [`${name} on ${card.title}: the longest context`, formula(texts.largest, most, long(at)), `all(${grouped(at || 1n)}):`, summed(set, held(set, at || 1n).fullest), texts.longest];
}

function rest(card, { found, name }) {
	const left = BigInt(card.memory) - found.total;
	return [`${name} on ${card.title}`, formula("memory of the card − all", `${grouped(card.memory)} − ${grouped(found.total)}`, `${grouped(left)} bytes`), inBytes(left < 0n ? -left : left)];
}

const sold = (card) => [card.title, card.facts.map((x) => formula(...x)), inBytes(BigInt(card.memory)), card.source];

const long = (at) => (at === null ? "any" : at ? `${grouped(at)} tokens` : "none");

function cardsTable(now, cards) {
	const live = [];
	const cells = (card, i, j) => {
		const mine = () => now()[j];
		const left = () => BigInt(card.memory) - mine().found.total;
		const at = () => mine().crossings[i].at;
		return [
			renewed(live, () => (left() >= 0n ? `fits, ${gibibytes(left())} left` : `lacks ${gibibytes(-left())}`), () => rest(card, mine())),
			[renewed(live, () => long(at()), () => proof(card, at(), mine()), { "data-card": j ? null : card.name })],
		];
	};
	const rows = cards.map((card, i) => row(card.title, [numeral(gibibytes(card.memory), () => sold(card))], ...now().flatMap((_, j) => cells(card, i, j))));
	const said = (x) => (now().length > 1 ? `${x.name}, ` : "");
	const columns = now().flatMap((x) => [`${said(x)}at these settings`, [`${said(x)}longest context`]]);
	return { live, element: table(texts.cards, ["card", ["memory"], ...columns], rows) };
}

let made = 0;

function looked(set, cards) {
	const total = about(set);
	const samples = sampled(total);
	const crossings = cards.map((card) => {
		const near = guess(samples, total, Number(card.memory));
		return { card, at: longest(set, BigInt(card.memory), near ?? Number(MOST)) };
	});
	return { samples, crossings, made: (made += 1) };
}

export function memory(models, cards, state, change) {
	const element = h("div");
	let shown = {};
	let now = [];
	const build = (structure) => {
		const focus = element.contains(document.activeElement) ? document.activeElement.id : "";
		const tables = [...now.map((_, i) => partsTable(() => now, i)), cardsTable(() => now, cards)];
		const bar = h("figure.bars");
		const plot = h("figure.plots");
		const drawn = { bar: layered(), plot: layered() };
		const beside = h("div.pair", ...tables.slice(0, -1).map((x, i) => scrolled(`table of memory${i ? ", second model" : ""}`, x.element)));
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
			return { ...old, name: one.name, set, found: held(set).fullest, tell: (x) => proof(x.card, x.at, now[i]) };
		});
		const structure = [state.mode, state.gpus, state.trainers].join(" ");
		if (shown.structure !== structure) build(structure);
		const bar = bars(shown.drawn.bar, now.map((x) => ({ label: x.name, found: x.found })), now[0].set.plan.parts, cards, room());
		const plot = curve(shown.drawn.plot, now, cards, state, models.map((x) => x.sizes.own), room());
		if (!bar.isConnected) shown.bar.replaceChildren(bar);
		if (!plot.isConnected) shown.plot.replaceChildren(plot, ...[key(now)].filter(Boolean));
		for (const x of shown.tables) for (const renew of x.live) renew();
		shown.chosen = chosen;
	};
	draw();
	return { element, draw };
}
