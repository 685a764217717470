// The memory section: controls, bar, table of parts, table of GPUs, and the curve over the context.
import { gibibytes, gigabytes, grouped, percent, texts, value } from "./forms.js";
import { formula, h, hidden, layeredSvg, numberButton, liveText, row, scrollRegion, table } from "./dom.js";
import { approximateMemory, memoryPerGpu, longestContext, MOST, settings } from "./gpu_memory.js";
import { memoryBars } from "./memory_bars.js";
import { controls } from "./controls.js";
import { memoryCurve, guessContext, curveLegend, sampleCurve } from "./memory_curve.js";
import { sumFormula, sumOf, derivation, inBytes, shareFormula } from "./derivations.js";

const CHOSEN = ["mode", "batch", "dtype", "kv", "gpus", "tp", "precision", "optimizer", "trainers", "zero", "recompute", "attention", "kernels"];

// The width of figures, cached because measuring forces a layout.
let wide = 0;
export const figureWidth = () => (wide ||= Math.min(Math.max(document.documentElement.clientWidth - 32, 280), 990));
new ResizeObserver(() => (wide = 0)).observe(document.documentElement);

function weights({ dtype, split }, found) {
	const whose = split.count === "1" ? [] : [`${split.layout}: ${texts.pieces}`, formula("elements of its shards · bytes per element", found.stage.sums[dtype.name], `${grouped(found.weights)} bytes`)];
	return [formula(...dtype.of, `${grouped(dtype.bytes)} bytes`), ...whose];
}

function terms(lines, found) {
	if (lines.length === 1) return [...derivation(lines[0].form, found, "bytes"), lines[0].says];
	const each = lines.flatMap((x) => [h("h3", x.what), ...derivation(x.form, found, "bytes"), x.says]);
	return [...each, h("h3", "total"), sumFormula(lines.map((x) => [x.what, value(x.form, found)]), "bytes")];
}

const summed = ({ plan }, found) => sumFormula(plan.parts.map((x) => [x, found[x]]), "bytes");

function partDerivation(part, found, set) {
	const { plan } = set;
	const running = plan.mode === "run";
	const title = part === "weights" && running ? `weights, ${set.dtype.name}` : part;
	if (part === "total") return ["all", summed(set, found), inBytes(found.total)];
	const lines = found.stage.lines[part];
	const whole = running ? derivation(sumOf(lines.map((x) => x.form)), found, "bytes") : terms(lines, found);
	return [title, ...(part === "weights" && running ? weights(set, found) : lines.length ? whole : ["Nothing is stored.", formula(title, "0 bytes")]), inBytes(found[part]), shareFormula(part, found[part], found.total), running ? texts.estimates[part] : ""];
}

// The table of memory parts; its cells are updated in place.
function partsTable(now, index) {
	const live = [];
	const mine = () => now()[index];
	const { mode, parts } = mine().set.plan;
	const rows = [...parts, "total"].map((part) => {
		const own = part !== "total";
		const bytes = () => mine().found[part];
		const number = liveText(live, () => grouped(bytes()), () => partDerivation(part, mine().found, mine().set), { "data-part": index ? null : part });
		const texts = [() => gigabytes(bytes()), () => gibibytes(bytes()), () => (own ? percent(bytes(), mine().found.total) : "")];
		return row({ class: own ? null : "head" }, h("th.whole", { scope: "row" }, own && h(`span.key.${part}`), own ? part : "all"), [number], ...texts.map((x) => [liveText(live, x)]));
	});
	const padded = mode === "train" && liveText(live, () => grouped(mine().found.T), () => ["tokens of a sequence", derivation(mine().set.plan.tokens, mine().set.plan.variables, "tokens"), texts.cut]);
	const filled = padded && h("span", "; sequences are padded to ", padded, " tokens");
	const location = () => [now().length > 1 && `${mine().name}: `, `on ${mine().set.plan.label}`, mine().found.stage.where && mine().set.split.count !== "1" && `, most loaded: ${mine().found.stage.where}`].filter(Boolean).join("");
	if (filled) live.push(() => (filled.hidden = mine().found.T === mine().set.plan.variables.T));
	const caption = [h("span.set", liveText(live, location)), filled];
	return { live, element: table(caption, [hidden("what"), ...texts.columns.memory], rows) };
}

function proof(card, at, { set, name }) {
	const totalAt = (n) => `all(${grouped(n)}) = ${grouped(memoryPerGpu(set, n).mostLoaded.total)}`;
	const memoryView = grouped(card.memory);
	const most = at === null ? `${totalAt(MOST)} ≤ ${memoryView}` : [at && `${totalAt(at)} ≤ ${memoryView}`, `${totalAt(at + 1n)} > ${memoryView}`].filter(Boolean).join("; ");
	return [`${name} on ${card.title}: the longest context`, formula(texts.largest, most, contextText(at)), `all(${grouped(at || 1n)}):`, summed(set, memoryPerGpu(set, at || 1n).mostLoaded), texts.longest];
}

function rest(card, { found, name }) {
	const left = BigInt(card.memory) - found.total;
	return [`${name} on ${card.title}`, formula("memory of the GPU − all", `${grouped(card.memory)} − ${grouped(found.total)}`, `${grouped(left)} bytes`), inBytes(left < 0n ? -left : left)];
}

const gpuFacts = (card) => [card.title, card.facts.map((x) => formula(...x)), inBytes(BigInt(card.memory)), card.source];

const contextText = (at) => (at === null ? "any" : at ? `${grouped(at)} tokens` : "none");

function cardsTable(now, cards) {
	const live = [];
	const cells = (card, i, j) => {
		const mine = () => now()[j];
		const left = () => BigInt(card.memory) - mine().found.total;
		const at = () => mine().crossings[i].at;
		return [
			liveText(live, () => (left() >= 0n ? `fits, ${gibibytes(left())} left` : `lacks ${gibibytes(-left())}`), () => rest(card, mine())),
			[liveText(live, () => contextText(at()), () => proof(card, at(), mine()), { "data-card": j ? null : card.name })],
		];
	};
	const rows = cards.map((card, i) => row(card.title, [numberButton(gibibytes(card.memory), () => gpuFacts(card))], ...now().flatMap((_, j) => cells(card, i, j))));
	const prefix = (x) => (now().length > 1 ? `${x.name}, ` : "");
	const columns = now().flatMap((x) => [`${prefix(x)}at these settings`, [`${prefix(x)}longest context`]]);
	return { live, element: table(texts.cards, ["GPU", ["memory"], ...columns], rows) };
}

let made = 0;

function findCrossings(set, cards) {
	const total = approximateMemory(set);
	const samples = sampleCurve(total);
	const crossings = cards.map((card) => {
		const near = guessContext(samples, total, Number(card.memory));
		return { card, at: longestContext(set, BigInt(card.memory), near ?? Number(MOST)) };
	});
	return { samples, crossings, made: (made += 1) };
}

export function memoryView(models, cards, state, change) {
	const element = h("div");
	let shown = {};
	let now = [];
	const build = (structure) => {
		const focus = element.contains(document.activeElement) ? document.activeElement.id : "";
		const tables = [...now.map((_, i) => partsTable(() => now, i)), cardsTable(() => now, cards)];
		const bar = h("figure.bars");
		const plot = h("figure.plots");
		const drawn = { bar: layeredSvg(), plot: layeredSvg() };
		const partTables = h("div.pair", ...tables.slice(0, -1).map((x, i) => scrollRegion(`table of memory${i ? ", second model" : ""}`, x.element)));
		element.replaceChildren(controls(models, state, change), bar, partTables, plot, scrollRegion("table of GPUs", tables.at(-1).element));
		shown = { structure, tables, bar, plot, drawn };
		if (focus) document.getElementById(focus)?.focus();
	};
	const draw = () => {
		const chosen = [...CHOSEN.map((x) => state[x]), figureWidth()].join(" ");
		const same = shown.chosen === chosen;
		now = models.map((one, i) => {
			const set = settings(one, state);
			const old = same ? now[i] : findCrossings(set, cards);
			return { ...old, name: one.name, set, found: memoryPerGpu(set).mostLoaded, tell: (x) => proof(x.card, x.at, now[i]) };
		});
		const structure = [state.mode, state.gpus, state.trainers].join(" ");
		if (shown.structure !== structure) build(structure);
		const bar = memoryBars(shown.drawn.bar, now.map((x) => ({ label: x.name, found: x.found })), now[0].set.plan.parts, cards, figureWidth());
		const plot = memoryCurve(shown.drawn.plot, now, cards, state, models.map((x) => x.sizes.own), figureWidth());
		if (!bar.isConnected) shown.bar.replaceChildren(bar);
		if (!plot.isConnected) shown.plot.replaceChildren(plot, ...[curveLegend(now)].filter(Boolean));
		for (const x of shown.tables) for (const renew of x.live) renew();
		shown.chosen = chosen;
	};
	draw();
	return { element, draw };
}
