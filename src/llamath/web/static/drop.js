// A file that is dropped on the page, or chosen: its header is read here, in the browser, and goes nowhere.
import { texts } from "./data.js";
import { gibibytes, gigabytes, grouped, percent, short, times, value } from "./forms.js";
import { button, faint, formula, group, h, hidden, labelled, numeral, path, row, scrolled, section, table } from "./dom.js";
import { treemap } from "./treemap.js";
import { headerOf, knowing } from "./headers.js";
import { parsed, Refused } from "./strict.js";
import { noted } from "./design.js";
import { say } from "./share.js";
import { takeaways } from "./taking.js";

const CONFIG = 32 * 2 ** 20;
const VALUES = 2 ** 19;
const SHOWN = 500;
const TIED = "tie_word_embeddings";

const sum = (list, key) => list.reduce((a, x) => a + x[key], 0n);

// Tensors that differ in their numbers alone, together.
function folded(tensors) {
	const found = new Map();
	for (const x of tensors) {
		let numbers = 0;
		const pattern = x.name.replace(/(^|\.)\d+(?=\.|$)/g, (_, dot) => `${dot}{${"lemn"[numbers++] ?? "n"}}`);
		const key = `${pattern} ${x.dtype} ${x.shape.join("×")}`;
		const old = found.get(key) ?? { ...x, name: pattern, each: x.elements, copies: 0n, elements: 0n, bytes: 0n };
		found.set(key, { ...old, copies: old.copies + 1n, elements: old.elements + x.elements, bytes: old.bytes + x.bytes });
	}
	return [...found.values()];
}

function comes(x) {
	const factors = [...x.shape, ...(x.copies === 1n ? [] : [x.copies])].map((n) => grouped(n));
	return [x.name, formula(factors.join("·") || "1", `${grouped(x.elements)} values`), `${x.dtype}: ${grouped(x.bytes)} bytes, ${gibibytes(x.bytes)}`];
}

const listed = (caption, columns, ...rows) => scrolled(caption, table(hidden(caption), columns, ...rows));

function listing(rows) {
	const place = h("div");
	const status = h("p", { class: "faint", role: "status" });
	const draw = (text) => {
		const words = text.toLowerCase().split(/\s+/).filter(Boolean);
		const found = rows.filter((x) => words.every((word) => x.name.toLowerCase().includes(word) || x.dtype.toLowerCase() === word));
		const lines = found.slice(0, SHOWN).map((x) => row(path(x.name), x.dtype, x.shape.join("×") || "–", [grouped(x.each)], [grouped(x.copies)], [numeral(grouped(x.elements), () => comes(x))], [grouped(x.bytes)]));
		status.textContent = found.length > SHOWN ? `the first ${SHOWN} of ${found.length} rows` : words.length ? `${found.length} of ${rows.length} rows` : "";
		place.replaceChildren(listed("tensors of the file", ["tensor", "type", "shape", ["each"], ["copies"], ["values"], ["bytes"]], lines));
	};
	const find = h("input", { type: "search", id: "find-file", maxlength: "80", oninput: () => draw(find.value) });
	draw("");
	return h("div", group(labelled("Find in the file", find)), status, place);
}

function contents(file, found, known, close) {
	const { tensors } = found;
	const rows = folded(tensors);
	const [elements, bytes] = [sum(tensors, "elements"), sum(tensors, "bytes")];
	const types = [...Map.groupBy(tensors, (x) => x.dtype)].map(([dtype, list]) => ({ dtype, count: BigInt(list.length), elements: sum(list, "elements"), bytes: sum(list, "bytes") }));
	const lines = types.map((x) => row(x.dtype, [grouped(x.count)], [grouped(x.elements)], [grouped(x.bytes)], [percent(x.bytes, bytes)]));
	const tell = () => ["values", formula(types.map((x) => x.dtype).join(" + "), types.map((x) => grouped(x.elements)).join(" + "), grouped(elements))];
	const bare = (text) => text.replace(/^(model\.|transformer\.)?((layers|h|blk)\.\{l\}\.)?|\.weight$/g, "");
	const items = rows.map((x) => ({ name: bare(x.name), group: known.groups.find(([, words]) => new RegExp(words).test(x.name))?.[0] ?? "other", detail: `${x.shape.join("×")}${times(x.copies)}`, size: x.elements, tell: () => comes(x) }));
	const facts = found.metadata.filter(([key]) => !/token|merges|scores|chat_template/.test(key)).slice(0, 60).map(([key, text]) => h("li", `${key}: ${String(text).slice(0, 200)}`));
	return section(
		"file",
		file.name,
		close,
		h("p", { class: "total" }, numeral(grouped(elements), tell, { "data-part": "values" }), ` values in ${grouped(tensors.length)} tensors (${short(elements)})`),
		h("p", { "data-part": "stored" }, `${grouped(bytes)} bytes of tensors: ${gigabytes(bytes)}, ${gibibytes(bytes)}; ${found.format}, a file of ${grouped(file.size)} bytes of which the header alone was read, here`),
		types.some((x) => known.packed.includes(x.dtype)) && faint(texts.packed),
		listed("types in the file", ["type", ["tensors"], ["values"], ["bytes"], ["share"]], lines),
		elements && treemap(file.name, items, "values"),
		listing(rows),
		facts.length && h("details", h("summary", "What it says of itself"), h("ul", facts)),
	);
}

const plainly = (x) => (x instanceof Map ? `{${[...x].sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, y]) => `${JSON.stringify(key)}:${plainly(y)}`).join(",")}}` : Array.isArray(x) ? `[${x.map(plainly).join(",")}]` : typeof x === "string" ? JSON.stringify(x) : String(typeof x === "bigint" ? Number(x) : x));

const causal = (x, headed) => x === undefined || (Array.isArray(x) && typeof x[0] === "string" && headed.some((end) => x[0].endsWith(end)));

// The dimensions of a configuration, where it differs from a design's only in them and in what moves no weight; else why not.
function fitting(config, design, { nothing, headed }) {
	const keys = new Set(design.letters.map((x) => x.key));
	const neutral = new Set([...nothing, ...design.neutral]);
	const values = {};
	for (const x of design.letters) {
		const n = config.get(x.key);
		if (typeof n === "bigint" && n > 0n && n < 2n ** 32n) values[x.letter] = n;
		else if (n !== undefined && n !== null) throw new Refused(`${x.key} is no whole number`);
		else if (n === null || !x.absent.form) throw new Refused(`${x.key} is not given`);
	}
	const tied = config.get(TIED);
	if (design.tied !== null && typeof tied !== "boolean") throw new Refused(`${TIED} is not given`);
	const own = new Map([...design.defaults, ...design.config.filter((x) => x.form === null && !x.tied)].map((x) => [x.key, parsed(new TextEncoder().encode(x.text), VALUES)]));
	const silent = new Set(design.defaults.map((x) => x.key));
	for (const key of new Set([...config.keys(), ...own.keys()])) {
		if (key === "architectures" && [config, own].every((x) => causal(x.get(key), headed))) continue;
		if (keys.has(key) || (key === TIED && design.tied !== null) || neutral.has(key) || key.startsWith("_")) continue;
		const same = config.has(key) ? own.has(key) && plainly(config.get(key)) === plainly(own.get(key)) : silent.has(key);
		if (!same) throw new Refused(`${key.slice(0, 80)} is other than in this page's model`);
	}
	return { values, tied: design.tied === null ? null : tied };
}

async function configured(file, data) {
	if (file.size > CONFIG) throw new Refused("it is longer than a configuration");
	const config = parsed(new Uint8Array(await file.arrayBuffer()), VALUES);
	if (!(config instanceof Map)) throw new Refused("it holds no object");
	const type = config.get("model_type");
	const at = data.models.findIndex((x) => x.design.letters.length && x.design.type === type);
	try {
		if (at < 0) throw new Refused(`this page has no forms for a model_type of ${typeof type === "string" ? JSON.stringify(type.slice(0, 60)) : "none"}`);
		const { design } = data.models[at];
		return { view: "design", like: "ab"[at], sizes: noted(complete(fitting(config, design, data.files), design)) };
	} catch (error) {
		throw error instanceof Refused ? new Refused(`${error.message}: \`llamath export ${file.name} -o page.html\` makes its page`) : error;
	}
}

// What a configuration leaves out follows from what it says.
function complete({ values, tied }, design) {
	const all = { ...values };
	for (const x of design.letters) all[x.letter] ??= value(x.absent.form, values);
	return { values: all, tied };
}

const isConfig = (file) => /\.json$/i.test(file.name) && !/\.index\.json$/i.test(file.name);

// For tests: what is read of a file, or why it is refused.
export const reading = (file, data) =>
	(isConfig(file) ? configured(file, data) : headerOf(file, knowing(data.files)).then((x) => ({ tensors: x.tensors.map((y) => [y.name, y.dtype, ...[y.elements, y.bytes, ...y.shape].map(String)]) }))).catch((error) => ({ wrong: error instanceof Refused ? error.message : `?${error}` }));

// Where files are taken; `change` moves the page.
export function opener(data, change) {
	const place = h("div");
	const known = knowing(data.files);
	const close = () => button("Close the file", () => [place.replaceChildren(), open.focus()], { class: "take" });
	const read = async (file) => {
		try {
			if (isConfig(file)) {
				const found = await configured(file, data);
				place.replaceChildren();
				change(found);
				return say(`${file.name}: its dimensions`);
			}
			place.replaceChildren(contents(file, await headerOf(file, known), known, close()));
			takeaways(place, file.name);
			const title = place.querySelector("h2");
			title.setAttribute("tabindex", "-1");
			title.focus();
			say(`${file.name} is read`);
		} catch (error) {
			const why = error instanceof Refused ? error.message : `it cannot be read (${error.name})`;
			place.replaceChildren(h("p", { role: "alert", class: "wrong" }, `${file.name}: ${why} `, close()));
		}
	};
	const input = h("input", { type: "file", id: "file-input", accept: ".json,.safetensors,.gguf", hidden: true, "aria-label": "a file to read", onchange: () => input.files[0] && read(input.files[0]).then(() => (input.value = "")) });
	const open = button("Open a file", () => input.click());
	addEventListener("dragover", (event) => event.preventDefault());
	addEventListener("drop", (event) => {
		event.preventDefault();
		if (event.dataTransfer?.files[0]) read(event.dataTransfer.files[0]);
	});
	return { button: h("span", { class: "choice" }, open, input), place };
}
