// Copying text to the clipboard, saving files, and the formats of copied tables.
import { texts } from "./forms.js";
import { openDialog, h } from "./dom.js";

export const statusLine = h("p.status-line", { role: "status" });
let silence = 0;

export function announce(text) {
	clearTimeout(silence);
	statusLine.textContent = text;
	silence = setTimeout(() => statusLine.replaceChildren(), 6000);
}

// Show the text, selected, where there is no clipboard.
function offered(text, what) {
	const area = h("textarea", { readonly: true, rows: "12", "aria-label": what });
	area.value = text;
	openDialog(what, h("p", texts.clipboard), area);
	area.select();
}

export function copyText(text, what) {
	const done = () => announce(`Copied: ${what}, ${text.length.toLocaleString("en")} characters`);
	(navigator.clipboard?.writeText(text) ?? Promise.reject()).then(done, () => offered(text, what));
}

export function saveFile(name, text, type) {
	const plain = name.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|[-.]+$/g, "").slice(-80) || "llamath";
	const address = URL.createObjectURL(new Blob([text], { type }));
	h("a", { href: address, download: plain }).click();
	setTimeout(() => URL.revokeObjectURL(address), 20_000);
	announce(`Saved: ${plain}`);
}

// Quote a string as Python's json.dumps does.
const quoted = (text) => JSON.stringify(text).replace(/[\u0080-\uffff]/g, (x) => `\\u${x.charCodeAt(0).toString(16).padStart(4, "0")}`);

function* walked(items, at) {
	for (const x of items) {
		if (typeof x === "number") yield [x, at];
		else {
			let i = 0;
			for (const [blocks, times] of x) for (let n = 0; n < times; n += 1) for (const block of blocks) yield* walked(block, [...at, i++]);
		}
	}
}

// Expand the output of `count --json`: each weight is sent once, and `order` says where it repeats.
export function countJson({ before, after, weights, order }) {
	const filled = (text, at) => ["{l}", "{e}"].reduce((x, letter, i) => (i < at.length ? x.replaceAll(letter, String(at[i])) : x), text);
	const lines = [];
	for (const [i, at] of walked(order, [])) {
		const { path, rest, names } = weights[i];
		const called = names.map(([kind, name]) => `${quoted(kind)}: ${name === null ? "null" : quoted(filled(name, at))}`);
		lines.push(`{"path": ${quoted(filled(path, at))}, ${rest.slice(1, -1)}, "names": {${called.join(", ")}}}`);
	}
	return `${before.slice(0, -1)}, "weights": [${lines.join(", ")}], ${after.slice(1)}`;
}

// The visible tables of an element as rows of text, without empty columns.
export function visibleTables(part) {
	return [...part.querySelectorAll("table")].filter((x) => x.getClientRects().length).map((table) => {
		const rows = [...table.rows].map((row) => [...row.cells].flatMap((x) => [{ text: x.textContent.replace(/\s+/g, " ").trim(), right: x.classList.contains("n") }, ...Array(x.colSpan - 1).fill({ text: "" })]));
		const kept = [...Array(Math.max(0, ...rows.map((x) => x.length))).keys()].filter((i) => rows.some((x) => x[i]?.text));
		return { title: table.caption?.textContent ?? "", rows: rows.map((x) => kept.map((i) => x[i] ?? { text: "" })) };
	});
}

export function asText(found) {
	return found.map(({ title, rows }) => {
		const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((x) => x[i].text.length)));
		const lines = rows.map((x) => x.map((cell, i) => (cell.right ? cell.text.padStart(widths[i]) : cell.text.padEnd(widths[i]))).join("  ").trimEnd());
		return [title, ...lines].filter(Boolean).join("\n");
	}).join("\n\n");
}

export function asMarkdown(found) {
	const cells = (row) => `| ${row.map((x) => x.text.replace(/[\\`*|[\]]|<(?=[A-Za-z/!?])|&(?=[#A-Za-z])/g, (y) => `&#${y.charCodeAt(0)};`)).join(" | ")} |`;
	return found.map(({ title, rows: [head = [], ...rest] }) => [...(title ? [title, ""] : []), cells(head), `|${head.map((x) => (x.right ? " ---: " : " --- ")).join("|")}|`, ...rest.map(cells)].join("\n")).join("\n\n");
}
