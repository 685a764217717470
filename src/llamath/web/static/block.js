// A block as a diagram: which kind of layer, which pass, shapes in letters or numbers; each step opens what it comes from.
import { texts } from "./data.js";
import { grouped, value, written } from "./forms.js";
import { derived, legend } from "./derived.js";
import { choice, faint, formula, h, numeral } from "./dom.js";
import { drawn, shape } from "./drawn.js";
import { sharing } from "./heads.js";

const sizes = (state) => ({ T: BigInt(state.context), B: BigInt(state.batch) });
const passOf = (one, state) => (one.passes[state.pass] ? state.pass : "prompt");
const stagesOf = (one, state) => one.passes[passOf(one, state)];

// The kind that is chosen, else the one that most layers are of.
function chosen(one, state) {
	const stages = stagesOf(one, state);
	const layers = stages.map((x, i) => [i, BigInt(x.times)]).filter(([i]) => stages[i].layers);
	const most = layers.reduce((a, x) => (a === null || x[1] > a[1] ? x : a), null);
	return stages[Number(state.stage || -1)] ? Number(state.stage) : (most?.[0] ?? 0);
}

function used(x) {
	const many = x.copies === "1" ? [] : [grouped(x.copies)];
	const held = x.tied ? [`no parameters of its own: its numbers are those of ${x.tied}`] : [`${grouped(x.parameters)} parameters`];
	return formula(`${x.path}: ${[...many, ...x.dims].join("·")}`, [...many, ...x.shape.map((y) => grouped(y))].join("·"), ...held);
}

// What a step comes from.
function told(step, variables) {
	const { shape: sizes, each, flops, keeps } = step;
	const part = (text, form, unit) => form !== "0" && [text, derived(form, variables, unit)[0]];
	return [
		step.name,
		step.does,
		step.takes.length ? `It reads ${step.takes.join(", ")}, and gives:` : "It gives:",
		formula(shape(sizes, { letters: true, variables }), shape(sizes, { letters: false, variables })),
		step.uses.length ? step.uses.map(used) : "It has no weights.",
		part("FLOPs for each token, of its matrices:", each.length ? ["+", ...each] : "0", "FLOPs"),
		part("FLOPs of this pass:", flops, "FLOPs"),
		part("Remembered from here on, of all sequences:", keeps, "numbers"),
		legend(["+", ...sizes, flops, keeps]),
	];
}

function summed(stage, key, unit, variables) {
	const parts = stage.steps.filter((x) => x[key] !== "0");
	const all = parts.reduce((a, x) => a + value(x[key], variables), 0n);
	const lines = parts.map((x) => `${x.name}: ${key === "parameters" ? grouped(x.parameters) : `${written(x[key], variables, true)} = ${grouped(value(x[key], variables))}`}`);
	return numeral(grouped(all), () => [`${stage.name}: ${unit}`, formula(lines.join("\n+ "), grouped(all)), legend(["+", ...parts.map((x) => x[key])])], { "data-block": key });
}

function summary(stage, state, pass) {
	const variables = sizes(state);
	const tokens = pass === "next" ? `the token after ${grouped(variables.T - 1n)} others` : `${grouped(variables.T)} tokens`;
	return faint(
		stage.layers && stage.times !== "1" && "one of them: ",
		summed(stage, "parameters", "parameters", variables),
		" parameters; ",
		summed(stage, "flops", "FLOPs", variables),
		` FLOPs for ${tokens} × ${grouped(variables.B)}; `,
		summed(stage, "keeps", "numbers remembered", variables),
		" numbers remembered",
	);
}

export function block(one, state, change) {
	const place = h("div", { class: "block-place" });
	const note = h("div");
	const controls = h("div", { class: "controls" });
	let [key, look, renew, room] = ["", "", () => {}, 0];
	const width = () => Math.max(place.clientWidth || Math.min(document.documentElement.clientWidth, 1024) - 32, 260);
	const renewed = () => {
		const letters = state.shapes === "letters";
		const wanted = letters ? "letters" : `${state.context} ${state.batch}`;
		if (wanted !== look) renew({ letters, variables: sizes(state) });
		look = wanted;
	};
	const rebuild = (stage) => {
		const held = document.activeElement?.dataset?.step;
		const inside = place.contains(document.activeElement);
		const made = drawn(stage, room, (step) => told(step, sizes(state)));
		[renew, look] = [made.renew, ""];
		place.replaceChildren(made.picture, ...sharing(stage, room));
		renewed();
		if (inside && held) [...place.querySelectorAll("[data-step]")].find((x) => x.dataset.step === held)?.focus();
	};
	const draw = (now = room || width()) => {
		const at = chosen(one, state);
		const stage = stagesOf(one, state)[at];
		const wanted = `${at} ${state.pass} ${now}`;
		for (const [name, x] of [["stage", String(at)], ["pass", passOf(one, state)], ["shapes", state.shapes]]) controls.querySelector(`#choice-${name}`).value = x;
		note.replaceChildren(summary(stage, state, passOf(one, state)));
		if (wanted === key) return renewed();
		[key, room] = [wanted, now];
		return rebuild(stage);
	};
	const kinds = stagesOf(one, state).map((x, i) => [String(i), x.name]);
	const passes = Object.entries(texts.passes).filter(([x]) => one.passes[x]);
	controls.append(
		choice("Block", "stage", kinds, String(chosen(one, state)), change),
		choice("Pass", "pass", passes, passOf(one, state), change),
		choice("Shapes in", "shapes", [["letters", "letters"], ["numbers", "numbers"]], state.shapes, change),
	);
	draw();
	new ResizeObserver(() => place.isConnected && width() !== room && draw(width())).observe(place);
	return { element: h("div", controls, note, place), draw };
}
