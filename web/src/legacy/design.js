// The Design view: sliders for the dimensions of a family, its constraints, and the config to copy.
import { grouped, percent, shortCount, signed, texts, value, notation } from "./expressions.js";
import { inShort, shareFormula } from "./derivations.js";
import { button, choice, faint, formula, group, h, labeled, numberButton, rect, s, section } from "./dom.js";
import { numberInput } from "./controls.js";
import { parseWhole } from "./url_state.js";
import { copyText, saveFile } from "./clipboard.js";

const COUNT = /^[ \t]*(\d{1,3}(?:[,_]\d{3})+|\d{1,30})(?:\.(\d{1,20}))?(?:[eE]\+?(\d{1,2}))?[ \t]*([kmbgtKMBGT]?)[ \t]*$/;
const POWERS = { "": 0, k: 3, m: 6, b: 9, g: 9, t: 12 };

// Parse a parameter count such as 405B; null if it is not one.
export function parseCount(text) {
	const match = COUNT.exec(text);
	if (!match) return null;
	const [, digits, fraction = "", exponent = "0", unit] = match;
	const n = BigInt(digits.replace(/[,_]/g, "") + fraction);
	const power = BigInt(Number(exponent) + POWERS[unit.toLowerCase()] - fraction.length);
	if (power >= 0n) return n && n * 10n ** power;
	return n && n % 10n ** -power === 0n ? n / 10n ** -power : null;
}

// The relative error in parts per million, rounded half to even to one decimal.
export function formatPpm(total, target) {
	const n = (total - target) * 10_000_000n;
	const [q, r] = [(n < 0n ? -n : n) / target, (n < 0n ? -n : n) % target];
	const tenths = q + (2n * r > target || (2n * r === target && q % 2n === 1n) ? 1n : 0n);
	const sign = tenths === 0n ? "" : n < 0n ? "−" : "+";
	return `${sign}${grouped(tenths / 10n)}.${tenths % 10n} ppm`;
}

export function decodeSizes(design, text) {
	const entries = new Map([...text.matchAll(/([A-Za-z]+)(\d+)/g)].map((x) => [x[1], x[2]]));
	const values = Object.fromEntries(design.letters.map((x) => [x.letter, parseWhole(entries.get(x.letter) ?? "") ?? BigInt(x.value)]));
	return { values, tied: design.tied === null ? null : entries.has("tied") ? entries.get("tied") === "1" : design.tied };
}

export const encodeSizes = ({ values, tied }) => [...Object.entries(values).map(([letter, n]) => `${letter}${n}`), ...(tied === null ? [] : [`tied${Number(tied)}`])].join(".");

export function evaluateDesign(design, { values, tied }) {
	const counts = design.totals.find((x) => x.tied === tied);
	const broken = design.rules.filter((x) => value(x.form, values) > value(x.most.form, values)).map((x) => x.says);
	const valueOf = (x) => (x.tied ? String(tied) : x.form === null ? x.text : String(value(x.form, values)));
	const config = `{\n${design.config.map((x) => `  ${JSON.stringify(x.key)}: ${valueOf(x)}`).join(",\n")}\n}\n`;
	const groups = counts.groups.map((x) => ({ ...x, n: value(x.form, values) }));
	return { form: counts.form, total: value(counts.form, values), active: counts.active.form, live: value(counts.active.form, values), groups, broken, config };
}

function dimension(x, current, move) {
	const id = `size-${x.letter}`;
	const parts = numberInput(id, x.says || x.key, { min: x.step, max: x.most, step: x.step }, current.values[x.letter], (n) => move(x.letter, n));
	return h("div.dimension", h("label", { for: id }, x.says || x.key, h("span.faint.block", x.says ? `${x.letter}, ${x.key}` : x.letter)), parts);
}

function bar(groups, total, details) {
	let offset = 0;
	const shapes = groups.map((x) => {
		const width = total ? Number((x.n * 960_000n) / total) / 1000 : 0;
		offset += width;
		return rect(offset - width, 0, width, 40, x.name, s("title", `${x.name} ${percent(x.n, total)}`));
	});
	const summary = groups.map((x) => `${x.name} ${percent(x.n, total)}`).join(", ");
	return h("figure", s("svg.bar", { viewBox: "0 0 960 40", role: "img", "aria-label": `Parameters by kind: ${summary}` }, ...shapes), h("ul.legend", groups.map((x) => h("li", h(`span.key.${x.name}`), `${x.name} `, numberButton(percent(x.n, total), () => [...details(x.name, x.form, x.n)(), shareFormula(x.name, x.n, total)])))));
}

function drawDesign(design, state, place) {
	const current = decodeSizes(design, state.sizes);
	const result = evaluateDesign(design, current);
	const formulaOf = (title, form, n) => () => [title, formula(notation(form, current.values, true), notation(form, current.values, false), grouped(n))];
	const target = parseCount(state.target);
	const difference = target ? result.total - target : 0n;
	const ppm = target && formatPpm(result.total, target);
	const targetDerivation = () => ["distance to the target", formula(state.target, grouped(target)), formula("total − target", `${grouped(result.total)} − ${grouped(target)}`, signed(difference)), formula("(total − target) / target", `${signed(difference)} / ${grouped(target)}`, ppm)];
	const targetLine = target && [h("span.set", state.target), " is ", numberButton(grouped(target), targetDerivation), ": ", difference ? [numberButton(signed(difference), targetDerivation), " parameters, ", numberButton(ppm, targetDerivation)] : "met exactly"].flat();
	const totalDetails = () => [...formulaOf("total", result.form, result.total)(), inShort("total", result.total)];
	const total = [numberButton(grouped(result.total), totalDetails, { "data-part": "designed" }), " parameters (", numberButton(shortCount(result.total), totalDetails), ")"];
	const activeLine = result.live === result.total ? null : h("p", "active per token: ", numberButton(grouped(result.live), formulaOf("active", result.active, result.live), { "data-part": "live" }));
	place.replaceChildren(...(result.broken.length ? [h("p.total", "No such model"), h("ul.broken", result.broken.map((x) => h("li", x)))] : [h("p.total", total), h("p", { "data-part": "away" }, targetLine), activeLine, bar(result.groups, result.total, formulaOf)].filter(Boolean)));
	return result;
}

export function designer(data, state, change) {
	const model = data.models[state.like === "b" ? 1 : 0];
	const { design } = model;
	const modelChoice = data.models.length > 1 ? choice("Like", "like", data.models.map((x, i) => ["ab"[i], x.name]), state.like, (x) => change({ ...x, sizes: "" })) : null;
	if (!design.letters.length) return { element: h("div", modelChoice, h("p", `${model.name}: ${design.why}`)), draw() {} };
	const place = h("div.made");
	const note = h("span", { id: "target-note", class: "faint", role: "status" });
	const config = h("pre", { tabindex: "0", "aria-label": "config.json" });
	const move = (letter, n) => {
		const current = decodeSizes(design, state.sizes);
		change({ sizes: encodeSizes(letter === "tied" ? { ...current, tied: n } : { ...current, values: { ...current.values, [letter]: n } }) });
	};
	const current = decodeSizes(design, state.sizes);
	const target = h("input", { id: "target", type: "text", maxlength: "24", value: state.target, "aria-describedby": "target-note", oninput: () => {
		const isInvalid = target.value.trim() !== "" && !parseCount(target.value);
		note.textContent = isInvalid ? texts.count : "";
		target.setAttribute("aria-invalid", String(isInvalid));
		if (!isInvalid) change({ target: target.value.trim() });
	} });
	const tied = current.tied === null ? null : labeled("head tied to the embedding", h("input", { id: "tied", type: "checkbox", checked: current.tied, onchange: (event) => move("tied", event.target.checked) }));
	const fixed = design.fixed.length > 0 && faint(`${design.fixed.join(", ")}: ${texts.fixed}`);
	let configText = "";
	const draw = () => {
		const result = drawDesign(design, state, place);
		configText = result.config;
		config.textContent = configText;
		copyButtons.hidden = result.broken.length > 0;
	};
	const copyButtons = group(button("Copy config.json", () => copyText(configText, "config.json")), button("Save config.json", () => saveFile("config.json", configText, "application/json")));
	const resetButton = button(`Reset to ${model.name}`, () => change({ sizes: "", view: "design" }));
	const controls = group(modelChoice, labeled("Target", target, " ", note), tied, resetButton);
	draw();
	return {
		element: h("div", section("dimensions", "Dimensions", controls, place, h("div.dimensions", design.letters.map((x) => dimension(x, current, move))), fixed), section("config", "Configuration", copyButtons, config)),
		draw,
	};
}
