// Taking things along: texts to the clipboard, files as downloads, and what `count` prints.
import { texts } from "./forms.js";
import { asked, h } from "./dom.js";

export const saying = h("p.saying", { role: "status" });
let silence = 0;

export function say(text) {
	clearTimeout(silence);
	saying.textContent = text;
	silence = setTimeout(() => saying.replaceChildren(), 6000);
}

// Without a clipboard the text is shown, selected.
function offered(text, what) {
	const area = h("textarea", { readonly: true, rows: "12", "aria-label": what });
	area.value = text;
	asked(what, h("p", texts.clipboard), area);
	area.select();
}

export function copied(text, what) {
	const done = () => say(`Copied: ${what}, ${text.length.toLocaleString("en")} characters`);
	(navigator.clipboard?.writeText(text) ?? Promise.reject()).then(done, () => offered(text, what));
}

export function saved(name, text, type) {
	const plain = name.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|[-.]+$/g, "").slice(-80) || "llamath";
	const address = URL.createObjectURL(new Blob([text], { type }));
	h("a", { href: address, download: plain }).click();
	setTimeout(() => URL.revokeObjectURL(address), 20_000);
	say(`Saved: ${plain}`);
}

// A text as Python's json.dumps writes it.
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

// What `count --json` prints: each weight is here once, and comes as often as the order says.
export function whole({ before, after, weights, order }) {
	const filled = (text, at) => ["{l}", "{e}"].reduce((x, letter, i) => (i < at.length ? x.replaceAll(letter, String(at[i])) : x), text);
	const lines = [];
	for (const [i, at] of walked(order, [])) {
		const { path, rest, names } = weights[i];
		const called = names.map(([kind, name]) => `${quoted(kind)}: ${name === null ? "null" : quoted(filled(name, at))}`);
		lines.push(`{"path": ${quoted(filled(path, at))}, ${rest.slice(1, -1)}, "names": {${called.join(", ")}}}`);
	}
	return `${before.slice(0, -1)}, "weights": [${lines.join(", ")}], ${after.slice(1)}`;
}

// The tables of a part of the page, as they are shown: rows of texts, columns without any left out.
export function tables(part) {
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
