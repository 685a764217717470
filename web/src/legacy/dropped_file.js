// Opening a local file: its header is read in the page and never uploaded.
import { gibibytes, gigabytes, grouped, percent, shortCount, matchWords, sum, texts, times, value } from "./expressions.js";
import { button, faint, formula, group, h, hidden, labeled, numberButton, path, row, scrollRegion, section, table } from "./dom.js";
import { sumFormula, inBytes, inShort, shareFormula } from "./derivations.js";
import { treemap } from "./treemap.js";
import { readHeader, indexFormats, refuseOther } from "./file_headers.js";
import { parseStrictJson, refuseIf, FileError } from "./strict_json.js";
import { encodeSizes } from "./design.js";
import { announce } from "./clipboard.js";
import { addCopyButtons } from "./copy_buttons.js";

const MAX_CONFIG_BYTES = 32 * 2 ** 20;
const MAX_CONFIG_VALUES = 2 ** 19;
const MAX_ROWS = 500;
const TIED = "tie_word_embeddings";

const sumOf = (list, key) => sum(list.map((x) => x[key]));

// Group tensors whose names differ only in layer or expert numbers.
function foldLayers(tensors) {
	const rows = new Map();
	for (const x of tensors) {
		let numbers = 0;
		const pattern = x.name.replace(/(^|\.)\d+(?=\.|$)/g, (_, dot) => `${dot}{${"lemn"[numbers++] ?? "n"}}`);
		const key = `${pattern} ${x.dtype} ${x.shape.join("×")}`;
		const row = rows.get(key) ?? { ...x, name: pattern, each: x.elements, copies: 0n, elements: 0n, bytes: 0n };
		rows.set(key, { ...row, copies: row.copies + 1n, elements: row.elements + x.elements, bytes: row.bytes + x.bytes });
	}
	return [...rows.values()];
}

// The derivation of a row: shape, number of copies, and block size of the dtype.
function rowDerivation(x, formats) {
	const [block, size] = formats.types.get(x.dtype);
	const shape = x.shape.map((n) => grouped(n)).join("·") || "1";
	return [
		x.name,
		formula("shape", shape, `${grouped(x.each)} elements each`),
		formula("elements · copies", `${grouped(x.each)}·${grouped(x.copies)}`, `${grouped(x.elements)} elements`),
		formula(`${x.dtype}: blocks · bytes per block`, `${grouped(x.bytes / BigInt(size))}·${size}`, `${grouped(x.bytes)} bytes`),
		`${block} ${block === 1 ? "element" : "elements"} per block`,
	];
}

const scrollTable = (caption, columns, ...rows) => scrollRegion(caption, table(hidden(caption), columns, ...rows));

function tensorList(rows, formats) {
	const place = h("div");
	const status = h("p.faint", { role: "status" });
	const draw = (text) => {
		const matches = matchWords(text);
		const matching = rows.filter((x) => matches(x.name, x.dtype));
		const lines = matching.slice(0, MAX_ROWS).map((x) => row(path(x.name), x.dtype, x.shape.join("×") || "–", [grouped(x.each)], [grouped(x.copies)], [numberButton(grouped(x.elements), () => rowDerivation(x, formats))], [grouped(x.bytes)]));
		status.textContent = matching.length > MAX_ROWS ? `the first ${MAX_ROWS} of ${matching.length} rows` : text.trim() ? `${matching.length} of ${rows.length} rows` : "";
		place.replaceChildren(scrollTable("tensors of the file", texts.columns.file, lines));
	};
	const find = h("input", { type: "search", id: "find-file", maxlength: "80", oninput: () => draw(find.value) });
	draw("");
	return h("div", group(labeled("Find in the file", find)), status, place);
}

function fileContents(file, header, formats, close) {
	const { tensors } = header;
	const rows = foldLayers(tensors);
	const [elements, bytes] = [sumOf(tensors, "elements"), sumOf(tensors, "bytes")];
	const types = [...Map.groupBy(tensors, (x) => x.dtype)].map(([dtype, list]) => ({ dtype, count: BigInt(list.length), elements: sumOf(list, "elements"), bytes: sumOf(list, "bytes") }));
	const sumDerivation = (key) => () => [key, sumFormula(rows.map((x) => [x.name, x[key]])), key === "bytes" && inBytes(bytes)];
	const typeDerivation = (x) => () => [x.dtype, ...["copies", "elements", "bytes"].map((key) => sumFormula(rows.filter((y) => y.dtype === x.dtype).map((y) => [`${key} of ${y.name}`, y[key]]))), shareFormula(x.dtype, x.bytes, bytes)];
	const lines = types.map((x) => row(x.dtype, [grouped(x.count)], [numberButton(grouped(x.elements), typeDerivation(x))], [grouped(x.bytes)], [percent(x.bytes, bytes)]));
	const details = () => ["elements", sumFormula(types.map((x) => [x.dtype, x.elements])), inShort("elements", elements)];
	const shortPath = (text) => text.replace(/^(model\.|transformer\.)?((layers|h|blk)\.\{l\}\.)?|\.weight$/g, "");
	const items = rows.map((x) => ({ name: shortPath(x.name), group: formats.groups.find(([, words]) => new RegExp(words).test(x.name))?.[0] ?? "other", detail: `${x.shape.join("×")}${times(x.copies)}`, size: x.elements, details: () => rowDerivation(x, formats) }));
	const facts = header.metadata.filter(([key]) => !/token|merges|scores|chat_template/.test(key)).slice(0, 60).map(([key, text]) => h("li", `${key}: ${String(text).slice(0, 200)}`));
	return section(
		"file",
		file.name,
		close,
		h("p.total", numberButton(grouped(elements), details, { "data-part": "values" }), " elements in ", numberButton(grouped(tensors.length), sumDerivation("copies")), " tensors (", numberButton(shortCount(elements), details), ")"),
		h("p", { "data-part": "stored" }, [grouped(bytes), " bytes of tensors: ", gigabytes(bytes), ", ", gibibytes(bytes)].map((x, i) => (i % 2 ? x : numberButton(x, sumDerivation("bytes")))), h("span.note", `; ${header.format}, a file of ${grouped(file.size)} ${texts.header}`)),
		types.some((x) => formats.packed.includes(x.dtype)) && faint(texts.packed),
		scrollTable("types in the file", texts.columns.types, lines),
		elements && treemap(file.name, items, "elements"),
		tensorList(rows, formats),
		facts.length && h("details", h("summary", texts.itself), h("ul", facts)),
	);
}

const canonicalJson = (x) => (x instanceof Map ? `{${[...x].sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, y]) => `${JSON.stringify(key)}:${canonicalJson(y)}`).join(",")}}` : Array.isArray(x) ? `[${x.map(canonicalJson).join(",")}]` : typeof x === "string" ? JSON.stringify(x) : String(typeof x === "bigint" ? Number(x) : x));

const isCausalArchitecture = (x, headed) => x === undefined || (Array.isArray(x) && typeof x[0] === "string" && headed.some((end) => x[0].endsWith(end)));

// Read the dimensions of a config; any other difference that changes weights is an error.
function readDimensions(config, design, { nothing, headed }) {
	const keys = new Set(design.letters.map((x) => x.key));
	const neutral = new Set([...nothing, ...design.neutral]);
	const values = {};
	for (const x of design.letters) {
		const n = config.get(x.key);
		if (typeof n === "bigint" && n > 0n && n < 2n ** 32n) values[x.letter] = n;
		refuseIf(values[x.letter] === undefined && (n ?? null) !== null, "whole", x.key);
		refuseIf(n === null || (n === undefined && !x.absent.form), "given", x.key);
	}
	const tied = config.get(TIED);
	refuseIf(design.tied !== null && typeof tied !== "boolean", "given", TIED);
	const ownValues = new Map([...design.defaults, ...design.config.filter((x) => x.form === null && !x.tied)].map((x) => [x.key, parseStrictJson(new TextEncoder().encode(x.text), MAX_CONFIG_VALUES)]));
	const defaultKeys = new Set(design.defaults.map((x) => x.key));
	for (const key of new Set([...config.keys(), ...ownValues.keys()])) {
		if (key === "architectures" && [config, ownValues].every((x) => isCausalArchitecture(x.get(key), headed))) continue;
		if (keys.has(key) || (key === TIED && design.tied !== null) || neutral.has(key) || key.startsWith("_")) continue;
		const isEqual = config.has(key) ? ownValues.has(key) && canonicalJson(config.get(key)) === canonicalJson(ownValues.get(key)) : defaultKeys.has(key);
		refuseIf(!isEqual, "other", key.slice(0, 80));
	}
	return { values, tied: design.tied === null ? null : tied };
}

export async function readConfig(file, data) {
	refuseIf(file.size > MAX_CONFIG_BYTES, "config");
	await refuseOther(file, data.files, "JSON");
	const config = parseStrictJson(new Uint8Array(await file.arrayBuffer()), MAX_CONFIG_VALUES);
	refuseIf(!(config instanceof Map), "object");
	const type = config.get("model_type");
	const index = data.models.findIndex((x) => x.design.letters.length && x.design.type === type);
	try {
		refuseIf(index < 0, "forms", typeof type === "string" ? JSON.stringify(type.slice(0, 60)) : "none");
		const { design } = data.models[index];
		return { view: "design", like: "ab"[index], sizes: encodeSizes(addDefaults(readDimensions(config, design, data.files), design)) };
	} catch (error) {
		throw error instanceof FileError ? new FileError(`${error.message}: \`llamath export ${file.name} -o page.html\` makes its page`) : error;
	}
}

// Compute the dimensions that the config omits from those that it has.
function addDefaults({ values, tied }, design) {
	const all = { ...values };
	for (const x of design.letters) all[x.letter] ??= value(x.absent.form, values);
	return { values: all, tied };
}

export const isConfig = (file) => /\.json$/i.test(file.name) && !/\.index\.json$/i.test(file.name);

// The button and drop target for files; `change` updates the page.
export function fileOpener(data, change) {
	const place = h("div");
	const formats = indexFormats(data.files);
	const close = () => button("Close the file", () => [place.replaceChildren(), open.focus()], { class: "take" });
	const read = async (file) => {
		try {
			if (isConfig(file)) {
				const state = await readConfig(file, data);
				place.replaceChildren();
				change(state);
				return announce(`${file.name}: dimensions loaded`);
			}
			place.replaceChildren(fileContents(file, await readHeader(file, formats), formats, close()));
			addCopyButtons(place, file.name);
			const title = place.querySelector("h2");
			title.setAttribute("tabindex", "-1");
			title.focus();
			announce(`${file.name}: header read`);
		} catch (error) {
			const message = error instanceof FileError ? error.message : `it cannot be read (${error.name})`;
			place.replaceChildren(h("p.wrong", { role: "alert" }, `${file.name}: ${message} `, close()));
		}
	};
	const input = h("input", { type: "file", id: "file-input", accept: ".json,.safetensors,.gguf", hidden: true, "aria-label": "a file to read", onchange: () => input.files[0] && read(input.files[0]).then(() => (input.value = "")) });
	const open = button("Open a file", () => input.click());
	addEventListener("dragover", (event) => event.preventDefault());
	addEventListener("drop", (event) => {
		event.preventDefault();
		if (event.dataTransfer?.files[0]) read(event.dataTransfer.files[0]);
	});
	return { button: h("span.choice", open, input), place };
}
