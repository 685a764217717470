// The controls for inference and training settings of one model or two.
import { texts } from "./expressions.js";
import { button, choice, group, h } from "./dom.js";
import { settings } from "./gpu_memory.js";
import { parseWhole } from "./url_state.js";

// A text input and a slider for a whole number; `at` maps the number to a slider position, `from` maps it back.
export function numberInput(id, name, scale, value, move, toPosition = String, toNumber = BigInt) {
	const note = h("span", { id: `${id}-note`, class: "faint", role: "status" });
	const number = h("input", { id, type: "text", inputmode: "numeric", maxlength: "13", value: String(value), "aria-describedby": note.id });
	const range = h("input", { type: "range", ...scale, value: toPosition(value), "aria-label": `${name}, slider` });
	const update = (n) => {
		note.textContent = n ? "" : texts.whole;
		number.setAttribute("aria-invalid", String(!n));
		if (n) move(n);
		return n;
	};
	number.addEventListener("input", () => {
		const n = update(parseWhole(number.value.replaceAll(/[ ,_]/g, "")));
		if (n) range.value = toPosition(n);
	});
	range.addEventListener("input", () => (number.value = String(update(toNumber(range.value)))));
	return [range, number, note];
}

function slider(label, name, state, change) {
	const scale = { min: "0", max: name === "context" ? "84" : "48" };
	const parts = numberInput(name, label, scale, state[name], (n) => change({ [name]: String(n) }), (n) => Math.round(Math.log2(Number(n)) * 4), (place) => BigInt(Math.round(2 ** (Number(place) / 4))));
	return h("span.slider", h("label", { for: name }, label), parts);
}

const asOptions = (names) => names.map((x) => [x, x]);

// Names that all models share, in the order of the first model.
function commonNames(models, names) {
	const [first, ...rest] = models.map((x) => names(x.sizes));
	return first.filter((x) => rest.every((y) => y.includes(x)));
}

function inferenceControls(models, state, change) {
	const [current] = models.map((x) => settings(x, state));
	const several = models.length > 1;
	const dtypeOptions = (key) => [...(several ? [["", "each model's own"]] : []), ...asOptions(commonNames(models, (x) => x[`${key}s`].map((y) => y.name)))];
	const counts = commonNames(models, (x) => [...new Set(x.gpus.map((y) => y.count))]);
	const layouts = current.sizes.gpus.filter((x) => x.count === current.split.count).map((x) => [x.tp, x.layout]);
	const controls = [
		choice("Weights", "dtype", dtypeOptions("dtype"), several ? state.dtype : current.dtype.name, change),
		choice("Cache", "kv", dtypeOptions("kv"), several ? state.kv : current.kv.name, change),
		choice("GPUs", "gpus", asOptions(counts), current.split.count, (x) => change({ ...x, tp: "" })),
	];
	if (layouts.length > 1 && !several) controls.push(choice("Layout", "tp", layouts, current.split.tp, change));
	return controls;
}

function trainingControls(models, state, change) {
	const plans = models.map((x) => settings(x, state).plan);
	const ranks = plans[0].ranks.filter((x) => plans.every((y) => y.ranks.includes(x)));
	return [
		choice("GPUs", "trainers", asOptions(models[0].sizes.training.gpus), plans[0].gpus, change),
		choice("Tensor parallel", "tp", asOptions(ranks), plans[0].tp, change),
		...models[0].sizes.training.choices.map((x) => choice(x.label, x.name, x.options, plans[0].chosen[x.name], change)),
	];
}

export function controls(models, state, change) {
	const buttons = texts.modes.map(([mode, text]) => button(text, () => change({ mode }), { id: `mode-${mode}`, "aria-pressed": String(state.mode === mode) }));
	const [tokens, sequences] = texts.sliders[state.mode];
	return group(
		h("span.choice", { role: "group", "aria-label": "mode" }, buttons),
		slider(tokens, "context", state, change),
		slider(sequences, "batch", state, change),
		...(state.mode === "train" ? trainingControls : inferenceControls)(models, state, change),
	);
}
