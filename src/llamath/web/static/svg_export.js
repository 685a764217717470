// Export of a picture as a standalone SVG file with inlined styles and HTML labels.
import { s } from "./dom.js";

const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "fill-opacity", "stroke-opacity", "opacity", "paint-order", "rx", "font-size", "font-weight", "text-anchor", "dominant-baseline"];
const DRAWN = new Set(["rect", "line", "path", "circle", "ellipse", "polygon", "polyline", "text", "tspan", "use"]);
const LEFT = /^(class|role|style|tabindex|aria-|data-|on)/;
const PICTURES = "figure, table.waterfall, ul.matrices, svg";
const MARGIN = 12;

// Replace characters that XML does not allow.
const xml = (text) => text.toWellFormed().replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");

function dressed(from) {
	const looks = getComputedStyle(from);
	if (looks.display === "none") return null;
	const made = document.createElementNS(from.namespaceURI, from.localName);
	for (const x of from.attributes) if (!LEFT.test(x.name)) made.setAttribute(x.name, x.value);
	if (DRAWN.has(from.localName)) for (const name of LOOKS) if (looks.getPropertyValue(name) !== "auto") made.setAttribute(name, looks.getPropertyValue(name));
	for (const x of from.childNodes) {
		const inside = x.nodeType === Node.TEXT_NODE ? document.createTextNode(xml(x.data)) : x.nodeType === Node.ELEMENT_NODE ? dressed(x) : null;
		if (inside) made.append(inside);
	}
	return made;
}

// Convert an HTML text node to SVG text, one element per rendered line.
function lines(node, [left, top]) {
	const looks = getComputedStyle(node.parentElement);
	const range = document.createRange();
	const found = [];
	for (const word of node.data.matchAll(/\S+/g)) {
		range.setStart(node, word.index);
		range.setEnd(node, word.index + word[0].length);
		const box = range.getClientRects()[0];
		if (!box || box.width < 1) continue;
		const last = found.at(-1);
		if (last && Math.abs(last.box.top - box.top) < 2) last.text += ` ${word[0]}`;
		else found.push({ box, text: word[0] });
	}
	return found.map(({ box, text }) => s("text", { x: box.left - left, y: box.top - top + box.height * 0.79, fill: looks.color, "font-size": looks.fontSize, "font-weight": looks.fontWeight }, xml(text)));
}

function parts(node, at) {
	if (node.nodeType === Node.TEXT_NODE) return lines(node, at);
	if (node.nodeType !== Node.ELEMENT_NODE || node.classList.contains("hidden")) return [];
	const { left, top, width, height } = node.getBoundingClientRect();
	const there = { x: left - at[0], y: top - at[1], width, height };
	if (node.localName === "svg") {
		const made = dressed(node);
		if (!made) return [];
		for (const [name, n] of Object.entries(there)) made.setAttribute(name, n);
		return [made];
	}
	const ground = node.classList.contains("key") ? [s("rect", { ...there, fill: getComputedStyle(node).backgroundColor })] : [];
	return [...ground, ...[...node.childNodes].flatMap((x) => parts(x, at))];
}

const spoken = (picture) => (picture.getAttribute("aria-label") ?? picture.querySelector("[aria-label]")?.getAttribute("aria-label") ?? picture.querySelector("caption")?.textContent ?? "picture");

// The pictures in an element, each with its name and description.
export function findPictures(part) {
	const all = [...part.querySelectorAll(PICTURES)].filter((x) => !x.parentElement.closest(PICTURES) && x.getClientRects().length && (x.localName === "svg" || x.querySelector("svg")));
	return all.map((element) => ({ element, says: spoken(element), name: spoken(element).split(":")[0] }));
}

export function svgDocument({ element, says, name }, heading) {
	const box = element.getBoundingClientRect();
	const [width, height] = [Math.ceil(box.width) + 2 * MARGIN, Math.ceil(box.height) + 2 * MARGIN];
	const page = getComputedStyle(document.body);
	const inside = parts(element, [box.left - MARGIN, box.top - MARGIN]);
	const made = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": "title desc", fill: page.color, "font-family": page.fontFamily }, s("title", { id: "title" }, xml(`${heading}: ${name}`)), s("desc", { id: "desc" }, xml(says)), s("rect", { width, height, fill: page.backgroundColor }), ...inside);
	return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(made)}\n`;
}
