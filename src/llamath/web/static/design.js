// The Design view: sliders for the dimensions of a family, its constraints, and the config to copy.
import { grouped, percent, short, signed, texts, value, written } from "./forms.js";
import { inShort, shareFormula } from "./derivations.js";
import { button, choice, faint, formula, group, h, labeled, numberButton, rect, s, section } from "./dom.js";
import { numberInput } from "./controls.js";
import { parseWhole } from "./url_state.js";
import { copyText, saveFile } from "./clipboard.js";

const COUNT = /^[ \t]*(\d{1,3}(?:[,_]\d{3})+|\d{1,30})(?:\.(\d{1,20}))?(?:[eE]\+?(\d{1,2}))?[ \t]*([kmbgtKMBGT]?)[ \t]*$/;
const POWERS = { "": 0, k: 3, m: 6, b: 9, g: 9, t: 12 };

// Parse a parameter count such as 405B; null if it is not one.
export function parseCount(text) {
	const found = COUNT.exec(text);
	if (!found) return null;
	const [, digits, part = "", ten = "0", unit] = found;
	const n = BigInt(digits.replace(/[,_]/g, "") + part);
	const power = BigInt(Number(ten) + POWERS[unit.toLowerCase()] - part.length);
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
	const given = new Map([...text.matchAll(/([A-Za-z]+)(\d+)/g)].map((x) => [x[1], x[2]]));
	const values = Object.fromEntries(design.letters.map((x) => [x.letter, parseWhole(given.get(x.letter) ?? "") ?? BigInt(x.value)]));
	return { values, tied: design.tied === null ? null : given.has("tied") ? given.get("tied") === "1" : design.tied };
}

export const encodeSizes = ({ values, tied }) => [...Object.entries(values).map(([letter, n]) => `${letter}${n}`), ...(tied === null ? [] : [`tied${Number(tied)}`])].join(".");

export function evaluateDesign(design, { values, tied }) {
	const found = design.totals.find((x) => x.tied === tied);
	const broken = design.rules.filter((x) => value(x.form, values) > value(x.most.form, values)).map((x) => x.says);
	const valueOf = (x) => (x.tied ? String(tied) : x.form === null ? x.text : String(value(x.form, values)));
	const config = `{\n${design.config.map((x) => `  ${JSON.stringify(x.key)}: ${valueOf(x)}`).join(",\n")}\n}\n`;
	const groups = found.groups.map((x) => ({ ...x, n: value(x.form, values) }));
	return { form: found.form, total: value(found.form, values), active: found.active.form, live: value(found.active.form, values), groups, broken, config };
}

function dimension(x, now, move) {
	const id = `size-${x.letter}`;
	const parts = numberInput(id, x.says || x.key, { min: x.step, max: x.most, step: x.step }, now.values[x.letter], (n) => move(x.letter, n));
	return h("div.dimension", h("label", { for: id }, x.says || x.key, h("span.faint.block", x.says ? `${x.letter}, ${x.key}` : x.letter)), parts);
}

function bar(groups, total, tell) {
	let at = 0;
	const shapes = groups.map((x) => {
		const width = total ? Number((x.n * 960_000n) / total) / 1000 : 0;
		at += width;
		return rect(at - width, 0, width, 40, x.name, s("title", `${x.name} ${percent(x.n, total)}`));
	});
	const spoken = groups.map((x) => `${x.name} ${percent(x.n, total)}`).join(", ");
	return h("figure", s("svg.bar", { viewBox: "0 0 960 40", role: "img", "aria-label": `Where its parameters are: ${spoken}` }, ...shapes), h("ul.legend", groups.map((x) => h("li", h(`span.key.${x.name}`), `${x.name} `, numberButton(percent(x.n, total), () => [...tell(x.name, x.form, x.n)(), shareFormula(x.name, x.n, total)])))));
}

function shown(design, state, place) {
	const now = decodeSizes(design, state.sizes);
	const found = evaluateDesign(design, now);
	const worked = (title, form, n) => () => [title, formula(written(form, now.values, true), written(form, now.values, false), grouped(n))];
	const target = parseCount(state.target);
	const away = target ? found.total - target : 0n;
	const ppm = target && formatPpm(found.total, target);
	const off = () => ["from the target", formula(state.target, grouped(target)), formula("total − target", `${grouped(found.total)} − ${grouped(target)}`, signed(away)), formula("(total − target) / target", `${signed(away)} / ${grouped(target)}`, ppm)];
	const fit = target && [h("span.set", state.target), " is ", numberButton(grouped(target), off), ": ", away ? [numberButton(signed(away), off), " parameters, ", numberButton(ppm, off)] : "met exactly"].flat();
	const totalDetails = () => [...worked("total", found.form, found.total)(), inShort("total", found.total)];
	const total = [numberButton(grouped(found.total), totalDetails, { "data-part": "designed" }), " parameters (", numberButton(short(found.total), totalDetails), ")"];
	const live = found.live === found.total ? null : h("p", "active per token: ", numberButton(grouped(found.live), worked("active", found.active, found.live), { "data-part": "live" }));
	place.replaceChildren(...(found.broken.length ? [h("p.total", "No such model"), h("ul.broken", found.broken.map((x) => h("li", x)))] : [h("p.total", total), h("p", { "data-part": "away" }, fit), live, bar(found.groups, found.total, worked)].filter(Boolean)));
	return found;
}

export function designer(data, state, change) {
	const model = data.models[state.like === "b" ? 1 : 0];
	const { design } = model;
	const like = data.models.length > 1 ? choice("Like", "like", data.models.map((x, i) => ["ab"[i], x.name]), state.like, (x) => change({ ...x, sizes: "" })) : null;
	if (!design.letters.length) return { element: h("div", like, h("p", `${model.name}: ${design.why}`)), draw() {} };
	const place = h("div.made");
	const wrong = h("span", { id: "target-note", class: "faint", role: "status" });
	const config = h("pre", { tabindex: "0", "aria-label": "config.json" });
	const move = (letter, n) => {
		const now = decodeSizes(design, state.sizes);
		change({ sizes: encodeSizes(letter === "tied" ? { ...now, tied: n } : { ...now, values: { ...now.values, [letter]: n } }) });
	};
	const now = decodeSizes(design, state.sizes);
	const target = h("input", { id: "target", type: "text", maxlength: "24", value: state.target, "aria-describedby": "target-note", oninput: () => {
		const bad = target.value.trim() !== "" && !parseCount(target.value);
		wrong.textContent = bad ? texts.count : "";
		target.setAttribute("aria-invalid", String(bad));
		if (!bad) change({ target: target.value.trim() });
	} });
	const tied = now.tied === null ? null : labeled("head tied to the embedding", h("input", { id: "tied", type: "checkbox", checked: now.tied, onchange: (event) => move("tied", event.target.checked) }));
	const fixed = design.fixed.length > 0 && faint(`${design.fixed.join(", ")}: ${texts.fixed}`);
	let text = "";
	const draw = () => {
		const found = shown(design, state, place);
		text = found.config;
		config.textContent = text;
		take.hidden = found.broken.length > 0;
	};
	const take = group(button("Copy config.json", () => copyText(text, "config.json")), button("Save config.json", () => saveFile("config.json", text, "application/json")));
	const again = button(`As ${model.name}`, () => change({ sizes: "", view: "design" }));
	const controls = group(like, labeled("Target", target, " ", wrong), tied, again);
	draw();
	return {
		element: h("div", section("dimensions", "Dimensions", controls, place, h("div.dimensions", design.letters.map((x) => dimension(x, now, move))), fixed), section("config", "Configuration", take, config)),
		draw,
	};
}
