// The controls for inference and training settings of one model or two.
import { texts } from "./forms.js";
import { button, choice, group, h } from "./dom.js";
import { settings } from "./gpu_memory.js";
import { parseWhole } from "./url_state.js";

// A text input and a slider for a whole number; `at` maps the number to a slider position, `from` maps it back.
export function numberInput(id, name, scale, value, move, at = String, from = BigInt) {
	const note = h("span", { id: `${id}-note`, class: "faint", role: "status" });
	const number = h("input", { id, type: "text", inputmode: "numeric", maxlength: "13", value: String(value), "aria-describedby": note.id });
	const range = h("input", { type: "range", ...scale, value: at(value), "aria-label": `${name}, slider` });
	const moved = (n) => {
		note.textContent = n ? "" : texts.whole;
		number.setAttribute("aria-invalid", String(!n));
		if (n) move(n);
		return n;
	};
	number.addEventListener("input", () => {
		const n = moved(parseWhole(number.value.replaceAll(/[ ,_]/g, "")));
		if (n) range.value = at(n);
	});
	range.addEventListener("input", () => (number.value = String(moved(from(range.value)))));
	return [range, number, note];
}

function slider(label, name, state, change) {
	const scale = { min: "0", max: name === "context" ? "84" : "48" };
	const parts = numberInput(name, label, scale, state[name], (n) => change({ [name]: String(n) }), (n) => Math.round(Math.log2(Number(n)) * 4), (place) => BigInt(Math.round(2 ** (Number(place) / 4))));
	return h("span.slider", h("label", { for: name }, label), parts);
}

const plain = (names) => names.map((x) => [x, x]);

// Names that all models share, in the order of the first model.
function common(models, names) {
	const [first, ...rest] = models.map((x) => names(x.sizes));
	return first.filter((x) => rest.every((y) => y.includes(x)));
}

function running(models, state, change) {
	const [now] = models.map((x) => settings(x, state));
	const several = models.length > 1;
	const kept = (key, own) => [...(several ? [["", "each its own"]] : []), ...plain(common(models, (x) => x[`${key}s`].map((y) => y.name)))];
	const counts = common(models, (x) => [...new Set(x.gpus.map((y) => y.count))]);
	const layouts = now.sizes.gpus.filter((x) => x.count === now.split.count).map((x) => [x.tp, x.layout]);
	const made = [
		choice("Weights", "dtype", kept("dtype"), several ? state.dtype : now.dtype.name, change),
		choice("Cache", "kv", kept("kv"), several ? state.kv : now.kv.name, change),
		choice("GPUs", "gpus", plain(counts), now.split.count, (x) => change({ ...x, tp: "" })),
	];
	if (layouts.length > 1 && !several) made.push(choice("Layout", "tp", layouts, now.split.tp, change));
	return made;
}

function stepping(models, state, change) {
	const now = models.map((x) => settings(x, state).plan);
	const ranks = now[0].ranks.filter((x) => now.every((y) => y.ranks.includes(x)));
	return [
		choice("GPUs", "trainers", plain(models[0].sizes.training.gpus), now[0].gpus, change),
		choice("Tensor parallel", "tp", plain(ranks), now[0].tp, change),
		...models[0].sizes.training.choices.map((x) => choice(x.label, x.name, x.options, now[0].chosen[x.name], change)),
	];
}

// Switch between inference and training; an unchanged default context becomes the default of the new mode.
function turned(models, state, mode) {
	const firsts = { run: models[0].sizes.own, train: models[0].sizes.training.context };
	return state.context === firsts[state.mode] ? { mode, context: firsts[mode] } : { mode };
}

export function controls(models, state, change) {
	const buttons = texts.modes.map(([mode, text]) => button(text, () => change(turned(models, state, mode)), { id: `mode-${mode}`, "aria-pressed": String(state.mode === mode) }));
	const [tokens, sequences] = texts.sliders[state.mode];
	return group(
		h("span.choice", { role: "group", "aria-label": "what for" }, buttons),
		slider(tokens, "context", state, change),
		slider(sequences, "batch", state, change),
		...(state.mode === "train" ? stepping : running)(models, state, change),
	);
}
