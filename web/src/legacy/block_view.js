// The block diagram section: choose the layer, the pass, and shapes in letters or numbers; each step opens its derivation.
import { grouped, sum, texts, value, notation } from "./expressions.js";
import { sumFormula, derivation, inShort, legend, productFormula, sideFormulas } from "./derivations.js";
import { choice, faint, formula, group, h, numberButton } from "./dom.js";
import { blockDiagram, shapeLabel } from "./block_diagram.js";
import { count, headRatio, headSharing } from "./head_sharing.js";

const passVariables = (state) => ({ T: BigInt(state.context), B: BigInt(state.batch) });
const passOf = (one, state) => (one.passes[state.pass] ? state.pass : "prompt");
const stagesOf = (one, state) => one.passes[passOf(one, state)];

// The index of the selected kind of layer, by default the most frequent kind.
function selectedStage(one, state) {
	const stages = stagesOf(one, state);
	const layers = stages.map((x, i) => [i, BigInt(x.times)]).filter(([i]) => stages[i].layers);
	const most = layers.reduce((a, x) => (a === null || x[1] > a[1] ? x : a), null);
	return stages[Number(state.stage || -1)] ? Number(state.stage) : (most?.[0] ?? 0);
}

function weightDerivation(x) {
	const result = x.tied ? `no parameters of its own: tied to ${x.tied}` : `${grouped(x.parameters)} parameters`;
	return [productFormula(x, [[grouped(x.copies), x.copies]], result, [`${x.path}: `, ""]), sideFormulas(x)];
}

// The derivation of one step.
function stepDerivation(step, variables, stage) {
	const { shape, each, flops, keeps } = step;
	const written = (letters) => `[${shape.map((x) => notation(x, variables, letters)).join(", ")}]`;
	const shapes = formula(...new Set([written(true), written(false), shapeLabel(shape, { variables })]));
	if (!step.takes) return [`x: ${step.says}`, shapes, legend(["+", ...shape])];
	const part = (text, form, unit) => form !== 0 && [text, derivation(form, variables, unit)[0]];
	return [
		step.name,
		step.does,
		step.takes.length ? `Inputs: ${step.takes.join(", ")}. Output:` : "Output:",
		shapes,
		step.uses.length ? [...step.uses.map(weightDerivation), step.uses.length > 1 && sumFormula(step.uses.map((x) => [x.path, x.parameters]), "parameters"), inShort("parameters", BigInt(step.parameters))].flat(2) : texts.step[3],
		step.kind === "scores" && stage.heads.filter((x) => x.kind === "heads").map((x) => formula(...headRatio(x), `${count(x.n) / count(x.k)} ${x.many} for each of ${x.few}`)),
		part(texts.step[0], each.length ? ["+", ...each] : 0, "FLOPs"),
		part(texts.step[1], flops, "FLOPs"),
		part(texts.step[2], keeps, "elements"),
		legend(["+", ...shape, flops, keeps]),
	];
}

function totalButton(stage, key, unit, variables) {
	const parts = stage.steps.filter((x) => String(x[key]) !== "0");
	const all = sum(parts.map((x) => value(x[key], variables)));
	const lines = parts.map((x) => `${x.name}: ${key === "parameters" ? grouped(x.parameters) : `${notation(x[key], variables, true)} = ${grouped(value(x[key], variables))}`}`);
	return numberButton(grouped(all), () => [`${stage.name}: ${unit}`, formula(lines.join("\n+ "), grouped(all)), legend(["+", ...parts.map((x) => x[key])])], { "data-block": key });
}

function summary(stage, state, pass) {
	const variables = passVariables(state);
	const tokens = `${pass === "next" ? "the last of " : ""}${grouped(variables.T)} tokens × ${grouped(variables.B)}`;
	return faint(
		stage.layers && stage.times !== "1" && "one layer: ",
		totalButton(stage, "parameters", "parameters", variables),
		" parameters; ",
		totalButton(stage, "flops", "FLOPs", variables),
		" FLOPs for ",
		h("span.set", tokens),
		"; ",
		totalButton(stage, "keeps", "elements written to the cache", variables),
		" elements written to the cache",
	);
}

export function blockView(one, state, change) {
	const place = h("div.block-place");
	const note = h("div");
	const controls = group();
	let [key, display, update, room] = ["", "", () => {}, 0];
	const width = () => Math.max(place.clientWidth || Math.min(document.documentElement.clientWidth, 1024) - 32, 260);
	const updateLabels = () => {
		const letters = state.shapes === "letters";
		const view = letters ? "letters" : `${state.context} ${state.batch}`;
		if (view !== display) update({ letters, variables: passVariables(state) });
		display = view;
	};
	const rebuild = (stage) => {
		const focused = document.activeElement?.dataset?.step;
		const hadFocus = place.contains(document.activeElement);
		const diagram = blockDiagram(stage, room, (step) => stepDerivation(step, passVariables(state), stage));
		[update, display] = [diagram.update, ""];
		place.replaceChildren(diagram.picture, ...headSharing(stage, room));
		updateLabels();
		if (hadFocus && focused) [...place.querySelectorAll("[data-step]")].find((x) => x.dataset.step === focused)?.focus();
	};
	const draw = (newRoom = room || width()) => {
		const at = selectedStage(one, state);
		const stage = stagesOf(one, state)[at];
		const view = `${at} ${state.pass} ${newRoom}`;
		for (const [name, x] of [["stage", String(at)], ["pass", passOf(one, state)], ["shapes", state.shapes]]) controls.querySelector(`#choice-${name}`).value = x;
		note.replaceChildren(summary(stage, state, passOf(one, state)));
		if (view === key) return updateLabels();
		[key, room] = [view, newRoom];
		return rebuild(stage);
	};
	const kinds = stagesOf(one, state).map((x, i) => [String(i), x.name]);
	const passes = Object.entries(texts.passes).filter(([x]) => one.passes[x]);
	controls.append(
		choice("Block", "stage", kinds, String(selectedStage(one, state)), change),
		choice("Pass", "pass", passes, passOf(one, state), change),
		choice("Shapes in", "shapes", texts.shapes, state.shapes, change),
	);
	draw();
	new ResizeObserver(() => place.isConnected && width() !== room && draw(width())).observe(place);
	return { element: h("div", controls, note, place), draw };
}
