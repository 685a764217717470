// Export of a picture as a standalone SVG file with inlined styles and HTML labels.
import { s } from "./dom.js";

const STYLE_PROPERTIES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "fill-opacity", "stroke-opacity", "opacity", "paint-order", "rx", "font-size", "font-weight", "text-anchor", "dominant-baseline"];
const SHAPES = new Set(["rect", "line", "path", "circle", "ellipse", "polygon", "polyline", "text", "tspan", "use"]);
const OMITTED_ATTRIBUTES = /^(class|role|style|tabindex|aria-|data-|on)/;
const PICTURES = "figure, table.waterfall, ul.matrices, svg";
const MARGIN = 12;

// Replace characters that XML does not allow.
const xml = (text) => text.toWellFormed().replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");

function withInlineStyles(source) {
	const style = getComputedStyle(source);
	if (style.display === "none") return null;
	const element = document.createElementNS(source.namespaceURI, source.localName);
	for (const x of source.attributes) if (!OMITTED_ATTRIBUTES.test(x.name)) element.setAttribute(x.name, x.value);
	if (SHAPES.has(source.localName)) for (const name of STYLE_PROPERTIES) if (style.getPropertyValue(name) !== "auto") element.setAttribute(name, style.getPropertyValue(name));
	for (const x of source.childNodes) {
		const child = x.nodeType === Node.TEXT_NODE ? document.createTextNode(xml(x.data)) : x.nodeType === Node.ELEMENT_NODE ? withInlineStyles(x) : null;
		if (child) element.append(child);
	}
	return element;
}

// Convert an HTML text node to SVG text, one element per rendered line.
function textLines(node, [left, top]) {
	const style = getComputedStyle(node.parentElement);
	const range = document.createRange();
	const lines = [];
	for (const word of node.data.matchAll(/\S+/g)) {
		range.setStart(node, word.index);
		range.setEnd(node, word.index + word[0].length);
		const box = range.getClientRects()[0];
		if (!box || box.width < 1) continue;
		const last = lines.at(-1);
		if (last && Math.abs(last.box.top - box.top) < 2) last.text += ` ${word[0]}`;
		else lines.push({ box, text: word[0] });
	}
	return lines.map(({ box, text }) => s("text", { x: box.left - left, y: box.top - top + box.height * 0.79, fill: style.color, "font-size": style.fontSize, "font-weight": style.fontWeight }, xml(text)));
}

function svgElements(node, at) {
	if (node.nodeType === Node.TEXT_NODE) return textLines(node, at);
	if (node.nodeType !== Node.ELEMENT_NODE || node.classList.contains("hidden")) return [];
	const { left, top, width, height } = node.getBoundingClientRect();
	const bounds = { x: left - at[0], y: top - at[1], width, height };
	if (node.localName === "svg") {
		const element = withInlineStyles(node);
		if (!element) return [];
		for (const [name, n] of Object.entries(bounds)) element.setAttribute(name, n);
		return [element];
	}
	const background = node.classList.contains("key") ? [s("rect", { ...bounds, fill: getComputedStyle(node).backgroundColor })] : [];
	return [...background, ...[...node.childNodes].flatMap((x) => svgElements(x, at))];
}

const describe = (picture) => (picture.getAttribute("aria-label") ?? picture.querySelector("[aria-label]")?.getAttribute("aria-label") ?? picture.querySelector("caption")?.textContent ?? "picture");

// The pictures in an element, each with its name and description.
export function findPictures(part) {
	const all = [...part.querySelectorAll(PICTURES)].filter((x) => !x.parentElement.closest(PICTURES) && x.getClientRects().length && (x.localName === "svg" || x.querySelector("svg")));
	return all.map((element) => ({ element, says: describe(element), name: describe(element).split(":")[0] }));
}

export function svgDocument({ element, says, name }, heading) {
	const box = element.getBoundingClientRect();
	const [width, height] = [Math.ceil(box.width) + 2 * MARGIN, Math.ceil(box.height) + 2 * MARGIN];
	const page = getComputedStyle(document.body);
	const elements = svgElements(element, [box.left - MARGIN, box.top - MARGIN]);
	const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": "title desc", fill: page.color, "font-family": page.fontFamily }, s("title", { id: "title" }, xml(`${heading}: ${name}`)), s("desc", { id: "desc" }, xml(says)), s("rect", { width, height, fill: page.backgroundColor }), ...elements);
	return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(svg)}\n`;
}
