// Copying text to the clipboard, saving files, and the formats of copied tables.
import { texts } from "./expressions.js";
import { openDialog, h } from "./dom.js";

export const statusLine = h("p.status-line", { role: "status" });
let clearTimer = 0;

export function announce(text) {
	clearTimeout(clearTimer);
	statusLine.textContent = text;
	clearTimer = setTimeout(() => statusLine.replaceChildren(), 6000);
}

// Show the text, selected, where there is no clipboard.
function showSelected(text, title) {
	const area = h("textarea", { readonly: true, rows: "12", "aria-label": title });
	area.value = text;
	openDialog(title, h("p", texts.clipboard), area);
	area.select();
}

export function copyText(text, title) {
	const done = () => announce(`Copied: ${title}, ${text.length.toLocaleString("en")} characters`);
	(navigator.clipboard?.writeText(text) ?? Promise.reject()).then(done, () => showSelected(text, title));
}

export function saveFile(name, text, type) {
	const safeName = name.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|[-.]+$/g, "").slice(-80) || "llamath";
	const address = URL.createObjectURL(new Blob([text], { type }));
	h("a", { href: address, download: safeName }).click();
	setTimeout(() => URL.revokeObjectURL(address), 20_000);
	announce(`Saved: ${safeName}`);
}

// Quote a string as Python's json.dumps does.
const quoted = (text) => JSON.stringify(text).replace(/[\u0080-\uffff]/g, (x) => `\\u${x.charCodeAt(0).toString(16).padStart(4, "0")}`);

function* expandOrder(items, indices) {
	for (const x of items) {
		if (typeof x === "number") yield [x, indices];
		else {
			let i = 0;
			for (const [blocks, times] of x) for (let n = 0; n < times; n += 1) for (const block of blocks) yield* expandOrder(block, [...indices, i++]);
		}
	}
}

// Expand the output of `count --json`: each weight is sent once, and `order` says where it repeats.
export function countJson({ before, after, weights, order }) {
	const fillIndices = (text, indices) => ["{l}", "{e}"].reduce((x, letter, i) => (i < indices.length ? x.replaceAll(letter, String(indices[i])) : x), text);
	const lines = [];
	for (const [i, indices] of expandOrder(order, [])) {
		const { path, rest, names } = weights[i];
		const nameEntries = names.map(([kind, name]) => `${quoted(kind)}: ${name === null ? "null" : quoted(fillIndices(name, indices))}`);
		lines.push(`{"path": ${quoted(fillIndices(path, indices))}, ${rest.slice(1, -1)}, "names": {${nameEntries.join(", ")}}}`);
	}
	return `${before.slice(0, -1)}, "weights": [${lines.join(", ")}], ${after.slice(1)}`;
}

// The visible tables of an element as rows of text, without empty columns.
export function visibleTables(part) {
	return [...part.querySelectorAll("table")].filter((x) => x.getClientRects().length).map((table) => {
		const rows = [...table.rows].map((row) => [...row.cells].flatMap((x) => [{ text: x.textContent.replace(/\s+/g, " ").trim(), right: x.classList.contains("n") }, ...Array(x.colSpan - 1).fill({ text: "" })]));
		const columns = [...Array(Math.max(0, ...rows.map((x) => x.length))).keys()].filter((i) => rows.some((x) => x[i]?.text));
		return { title: table.caption?.textContent ?? "", rows: rows.map((x) => columns.map((i) => x[i] ?? { text: "" })) };
	});
}

export function asText(tables) {
	return tables.map(({ title, rows }) => {
		const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((x) => x[i].text.length)));
		const lines = rows.map((x) => x.map((cell, i) => (cell.right ? cell.text.padStart(widths[i]) : cell.text.padEnd(widths[i]))).join("  ").trimEnd());
		return [title, ...lines].filter(Boolean).join("\n");
	}).join("\n\n");
}

export function asMarkdown(tables) {
	const cells = (row) => `| ${row.map((x) => x.text.replace(/[\\`*|[\]]|<(?=[A-Za-z/!?])|&(?=[#A-Za-z])/g, (y) => `&#${y.charCodeAt(0)};`)).join(" | ")} |`;
	return tables.map(({ title, rows: [head = [], ...rest] }) => [...(title ? [title, ""] : []), cells(head), `|${head.map((x) => (x.right ? " ---: " : " --- ")).join("|")}|`, ...rest.map(cells)].join("\n")).join("\n\n");
}
