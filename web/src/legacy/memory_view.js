// The memory section: controls, bar, table of parts, table of GPUs, and the curve over the context.
import { gibibytes, gigabytes, grouped, percent, texts, value } from "./expressions.js";
import { formula, h, hidden, layeredSvg, numberButton, liveText, row, scrollRegion, table } from "./dom.js";
import { approximateMemory, memoryPerGpu, longestContext, MAX_CONTEXT, settings } from "./gpu_memory.js";
import { memoryBars } from "./memory_bars.js";
import { controls } from "./controls.js";
import { memoryCurve, guessContext, curveLegend, sampleCurve } from "./memory_curve.js";
import { sumFormula, sumOf, derivation, inBytes, shareFormula } from "./derivations.js";

const CURVE_SETTINGS = ["mode", "batch", "dtype", "kv", "gpus", "tp", "precision", "optimizer", "trainers", "zero", "recompute", "attention", "kernels"];

// The width of figures, cached because measuring forces a layout.
let cachedWidth = 0;
export const figureWidth = () => (cachedWidth ||= Math.min(Math.max(document.documentElement.clientWidth - 32, 280), 990));
new ResizeObserver(() => (cachedWidth = 0)).observe(document.documentElement);

function weightFormulas({ dtype, split }, memory) {
	const shardFormulas = split.count === "1" ? [] : [`${split.layout}: ${texts.pieces}`, formula("elements of its shards · bytes per element", memory.stage.sums[dtype.name], `${grouped(memory.weights)} bytes`)];
	return [formula(...dtype.of, `${grouped(dtype.bytes)} bytes`), ...shardFormulas];
}

function partFormulas(lines, memory) {
	if (lines.length === 1) return [...derivation(lines[0].form, memory, "bytes"), lines[0].says];
	const each = lines.flatMap((x) => [h("h3", x.what), ...derivation(x.form, memory, "bytes"), x.says]);
	return [...each, h("h3", "total"), sumFormula(lines.map((x) => [x.what, value(x.form, memory)]), "bytes")];
}

const totalFormula = ({ plan }, memory) => sumFormula(plan.parts.map((x) => [x, memory[x]]), "bytes");

function partDerivation(part, memory, set) {
	const { plan } = set;
	const isInference = plan.mode === "run";
	const title = part === "weights" && isInference ? `weights, ${set.dtype.name}` : part;
	if (part === "total") return ["all", totalFormula(set, memory), inBytes(memory.total)];
	const lines = memory.stage.lines[part];
	const formulas = isInference ? derivation(sumOf(lines.map((x) => x.form)), memory, "bytes") : partFormulas(lines, memory);
	return [title, ...(part === "weights" && isInference ? weightFormulas(set, memory) : lines.length ? formulas : ["Nothing is stored.", formula(title, "0 bytes")]), inBytes(memory[part]), shareFormula(part, memory[part], memory.total), isInference ? texts.estimates[part] : ""];
}

// The table of memory parts; its cells are updated in place.
function partsTable(now, index) {
	const updaters = [];
	const current = () => now()[index];
	const { mode, parts } = current().set.plan;
	const rows = [...parts, "total"].map((part) => {
		const isPart = part !== "total";
		const bytes = () => current().memory[part];
		const number = liveText(updaters, () => grouped(bytes()), () => partDerivation(part, current().memory, current().set), { "data-part": index ? null : part });
		const texts = [() => gigabytes(bytes()), () => gibibytes(bytes()), () => (isPart ? percent(bytes(), current().memory.total) : "")];
		return row({ class: isPart ? null : "head" }, h("th.whole", { scope: "row" }, isPart && h(`span.key.${part}`), isPart ? part : "all"), [number], ...texts.map((x) => [liveText(updaters, x)]));
	});
	const paddedTokens = mode === "train" && liveText(updaters, () => grouped(current().memory.T), () => ["tokens of a sequence", derivation(current().set.plan.tokens, current().set.plan.variables, "tokens"), texts.cut]);
	const paddingNote = paddedTokens && h("span", "; sequences are padded to ", paddedTokens, " tokens");
	const location = () => [now().length > 1 && `${current().name}: `, `on ${current().set.plan.label}`, current().memory.stage.where && current().set.split.count !== "1" && `, most loaded: ${current().memory.stage.where}`].filter(Boolean).join("");
	if (paddingNote) updaters.push(() => (paddingNote.hidden = current().memory.T === current().set.plan.variables.T));
	const caption = [h("span.set", liveText(updaters, location)), paddingNote];
	return { updaters, element: table(caption, [hidden("component"), ...texts.columns.memory], rows) };
}

function contextDerivation(card, at, { set, name }) {
	const totalAt = (n) => `all(${grouped(n)}) = ${grouped(memoryPerGpu(set, n).mostLoaded.total)}`;
	const capacity = grouped(card.memory);
	const comparison = at === null ? `${totalAt(MAX_CONTEXT)} ≤ ${capacity}` : [at && `${totalAt(at)} ≤ ${capacity}`, `${totalAt(at + 1n)} > ${capacity}`].filter(Boolean).join("; ");
	return [`${name} on ${card.title}: the longest context`, formula(texts.largest, comparison, contextText(at)), `all(${grouped(at || 1n)}):`, totalFormula(set, memoryPerGpu(set, at || 1n).mostLoaded), texts.longest];
}

function remainderDerivation(card, { memory, name }) {
	const remaining = BigInt(card.memory) - memory.total;
	return [`${name} on ${card.title}`, formula("memory of the GPU − all", `${grouped(card.memory)} − ${grouped(memory.total)}`, `${grouped(remaining)} bytes`), inBytes(remaining < 0n ? -remaining : remaining)];
}

const gpuFacts = (card) => [card.title, card.facts.map((x) => formula(...x)), inBytes(BigInt(card.memory)), card.source];

const contextText = (at) => (at === null ? "any" : at ? `${grouped(at)} tokens` : "none");

function gpuTable(now, cards) {
	const updaters = [];
	const cells = (card, i, j) => {
		const current = () => now()[j];
		const remaining = () => BigInt(card.memory) - current().memory.total;
		const context = () => current().crossings[i].at;
		return [
			liveText(updaters, () => (remaining() >= 0n ? `fits, ${gibibytes(remaining())} left` : `lacks ${gibibytes(-remaining())}`), () => remainderDerivation(card, current())),
			[liveText(updaters, () => contextText(context()), () => contextDerivation(card, context(), current()), { "data-card": j ? null : card.name })],
		];
	};
	const rows = cards.map((card, i) => row(card.title, [numberButton(gibibytes(card.memory), () => gpuFacts(card))], ...now().flatMap((_, j) => cells(card, i, j))));
	const prefix = (x) => (now().length > 1 ? `${x.name}, ` : "");
	const columns = now().flatMap((x) => [`${prefix(x)}at these settings`, [`${prefix(x)}longest context`]]);
	return { updaters, element: table(texts.cards, ["GPU", ["memory"], ...columns], rows) };
}

let version = 0;

function findCrossings(set, cards) {
	const total = approximateMemory(set);
	const samples = sampleCurve(total);
	const crossings = cards.map((card) => {
		const guess = guessContext(samples, total, Number(card.memory));
		return { card, at: longestContext(set, BigInt(card.memory), guess ?? Number(MAX_CONTEXT)) };
	});
	return { samples, crossings, version: (version += 1) };
}

export function memoryView(models, cards, state, change) {
	const element = h("div");
	let shown = {};
	let current = [];
	const build = (structure) => {
		const focus = element.contains(document.activeElement) ? document.activeElement.id : "";
		const tables = [...current.map((_, i) => partsTable(() => current, i)), gpuTable(() => current, cards)];
		const bar = h("figure.bars");
		const plot = h("figure.plots");
		const drawn = { bar: layeredSvg(), plot: layeredSvg() };
		const partTables = h("div.pair", ...tables.slice(0, -1).map((x, i) => scrollRegion(`table of memory${i ? ", second model" : ""}`, x.element)));
		element.replaceChildren(controls(models, state, change), bar, partTables, plot, scrollRegion("table of GPUs", tables.at(-1).element));
		shown = { structure, tables, bar, plot, drawn };
		if (focus) document.getElementById(focus)?.focus();
	};
	const draw = () => {
		const curveSettings = [...CURVE_SETTINGS.map((x) => state[x]), figureWidth()].join(" ");
		const isUnchanged = shown.curveSettings === curveSettings;
		current = models.map((model, i) => {
			const set = settings(model, state);
			const curve = isUnchanged ? current[i] : findCrossings(set, cards);
			return { ...curve, name: model.name, set, memory: memoryPerGpu(set).mostLoaded, details: (x) => contextDerivation(x.card, x.at, current[i]) };
		});
		const structure = [state.mode, state.gpus, state.trainers].join(" ");
		if (shown.structure !== structure) build(structure);
		const bar = memoryBars(shown.drawn.bar, current.map((x) => ({ label: x.name, memory: x.memory })), current[0].set.plan.parts, cards, figureWidth());
		const plot = memoryCurve(shown.drawn.plot, current, cards, state, models.map((x) => x.sizes.own), figureWidth());
		if (!bar.isConnected) shown.bar.replaceChildren(bar);
		if (!plot.isConnected) shown.plot.replaceChildren(plot, ...[curveLegend(current)].filter(Boolean));
		for (const x of shown.tables) for (const update of x.updaters) update();
		shown.curveSettings = curveSettings;
	};
	draw();
	return { element, draw };
}
