// A picture of the page as an SVG file of its own: styles as attributes, HTML labels as text, with
// a visible title.
import { textWidth } from "../../lib/measure_text";

const SVG = "http://www.w3.org/2000/svg";
/** Inherited or presentational properties with the values that need no attribute. */
const STYLES: Record<string, string> = {
	fill: "",
	stroke: "none",
	"stroke-width": "1px",
	"stroke-dasharray": "none",
	"stroke-linecap": "butt",
	"stroke-linejoin": "miter",
	"fill-opacity": "1",
	"stroke-opacity": "1",
	opacity: "1",
	"paint-order": "normal",
	rx: "auto",
	"font-size": "",
	"font-weight": "400",
	"text-anchor": "start",
	"dominant-baseline": "auto",
	visibility: "visible",
	"clip-path": "none",
	mask: "none",
};
const SHAPES = new Set([
	"rect",
	"line",
	"path",
	"circle",
	"ellipse",
	"polygon",
	"polyline",
	"text",
	"tspan",
	"use",
]);
const OMITTED_ATTRIBUTES = /^(class|role|style|tabindex|aria-|data-|on)/i;
const PICTURES = "figure, .poster, table.waterfall, svg:not([aria-hidden])";
const MARGIN = 16;
const MIN_SIDE = 40;

export interface Picture {
	element: Element;
	name: string;
	description: string;
}

/** Replaces characters that XML does not allow. */
const xml = (text: string) =>
	text.toWellFormed().replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");

function svg(
	name: string,
	attributes: Record<string, string | number>,
	...children: (Node | string)[]
): SVGElement {
	const element = document.createElementNS(SVG, name) as SVGElement;
	for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
	element.append(...children);
	return element;
}

const known = new Map<string, [hex: string, alpha: number]>();

/** Any colour of CSS as hexadecimal digits, which every program reads, and its opacity. */
function plainColor(color: string): [hex: string, alpha: number] {
	let found = known.get(color);
	if (!found) {
		const canvas = document.createElement("canvas");
		canvas.width = canvas.height = 1;
		const context = canvas.getContext("2d")!;
		context.fillStyle = color;
		context.fillRect(0, 0, 1, 1);
		const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data as unknown as [
			number,
			number,
			number,
			number,
		];
		known.set(
			color,
			(found = [
				`#${[r, g, b].map((x) => x.toString(16).padStart(2, "0")).join("")}`,
				a / 255,
			]),
		);
	}
	return found;
}

function setStyle(element: Element, name: string, value: string): void {
	if (value === STYLES[name] || (name === "rx" && value === "0px")) return;
	if ((name !== "fill" && name !== "stroke") || value === "none" || value.startsWith("url("))
		return element.setAttribute(name, value.replaceAll('"', ""));
	const [hex, alpha] = plainColor(value);
	element.setAttribute(name, alpha ? hex : "none");
	if (alpha && alpha < 1)
		element.setAttribute(`${name}-opacity`, String(Number(alpha.toFixed(3))));
}

function withInlineStyles(source: Element): Element | null {
	const style = getComputedStyle(source);
	if (style.display === "none" && source.localName !== "title" && !source.closest("defs"))
		return null;
	const element = document.createElementNS(source.namespaceURI, source.localName);
	for (const x of source.attributes)
		if (!OMITTED_ATTRIBUTES.test(x.name) && !x.value.includes("var("))
			element.setAttribute(x.name, xml(x.value));
	if (SHAPES.has(source.localName))
		for (const name of Object.keys(STYLES))
			setStyle(element, name, style.getPropertyValue(name));
	for (const x of source.childNodes) {
		const child =
			x.nodeType === Node.TEXT_NODE
				? document.createTextNode(xml((x as Text).data))
				: x.nodeType === Node.ELEMENT_NODE
					? withInlineStyles(x as Element)
					: null;
		if (child) element.append(child);
	}
	return element;
}

type Corner = [left: number, top: number];

/** An HTML text node as SVG text, an element for each line as it is drawn. */
function textLines(node: Text, [left, top]: Corner): SVGElement[] {
	const style = getComputedStyle(node.parentElement!);
	const range = document.createRange();
	const lines: { box: DOMRect; text: string }[] = [];
	for (const word of node.data.matchAll(/\S+/g)) {
		range.setStart(node, word.index);
		range.setEnd(node, word.index + word[0].length);
		const box = range.getClientRects()[0];
		if (!box || box.width < 1) continue;
		const last = lines.at(-1);
		if (last && Math.abs(last.box.top - box.top) < 2) last.text += ` ${word[0]}`;
		else lines.push({ box, text: word[0] });
	}
	const size = parseFloat(style.fontSize);
	return lines.map(({ box, text }) =>
		svg(
			"text",
			{
				x: (box.left - left).toFixed(1),
				y: (box.top - top + (box.height - size) / 2 + size * 0.84).toFixed(1),
				fill: plainColor(style.color)[0],
				"font-size": style.fontSize,
				"font-weight": style.fontWeight,
			},
			xml(text),
		),
	);
}

function elementsOf(node: Node, corner: Corner): Element[] {
	if (node.nodeType === Node.TEXT_NODE) return textLines(node as Text, corner);
	if (
		!(node instanceof Element) ||
		node.classList.contains("hidden") ||
		node.classList.contains("no-export")
	)
		return [];
	const { left, top, width, height } = node.getBoundingClientRect();
	const bounds = { x: left - corner[0], y: top - corner[1], width, height };
	if (node.localName === "svg") {
		const element = withInlineStyles(node);
		if (!element) return [];
		for (const [name, n] of Object.entries(bounds)) element.setAttribute(name, String(n));
		element.setAttribute("overflow", "visible");
		return [element];
	}
	const swatch =
		node.classList.contains("swatch") && width
			? [
					svg("rect", {
						...bounds,
						rx: 2,
						fill: plainColor(getComputedStyle(node).backgroundColor)[0],
					}),
				]
			: [];
	return [...swatch, ...[...node.childNodes].flatMap((x) => elementsOf(x, corner))];
}

const describe = (element: Element): string =>
	element.getAttribute("aria-label") ??
	element.querySelector("svg[aria-label]")?.getAttribute("aria-label") ??
	element.querySelector("caption")?.textContent ??
	"picture";

/** The pictures in a part of the page, the outermost elements of each. */
export function picturesIn(part: Element): Picture[] {
	const isPicture = (x: Element) => {
		const { width, height } = x.getBoundingClientRect();
		return (
			width >= MIN_SIDE &&
			height >= MIN_SIDE &&
			(x.localName === "svg" || x.querySelector("svg") !== null)
		);
	};
	const isInside = (x: Element) =>
		x.parentElement!.closest(PICTURES) !== null ||
		x.closest(".export-menu, .section-head") !== null;
	return [...part.querySelectorAll(PICTURES)]
		.filter((x) => !isInside(x) && isPicture(x))
		.map((element) => ({
			element,
			description: describe(element),
			name: describe(element).split(":")[0]!,
		}));
}

function wrapped(text: string, room: number, size: number, weight: number): string[] {
	const lines: string[] = [];
	for (const word of text.split(/\s+/)) {
		const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
		if (lines.length && textWidth(longer, size, weight) <= room)
			lines[lines.length - 1] = longer;
		else lines.push(word);
	}
	return lines;
}

/** The document of a picture; `title` and `settings` are written above it. */
export function svgDocument(
	{ element, description }: Picture,
	title: string,
	settings: string,
): { text: string; width: number; height: number } {
	const box = element.getBoundingClientRect();
	const width = Math.ceil(Math.max(box.width, 280)) + 2 * MARGIN;
	const page = getComputedStyle(document.body);
	const [titles, notes] = [
		wrapped(title, width - 2 * MARGIN, 17, 700),
		wrapped(settings, width - 2 * MARGIN, 12, 400),
	];
	const top = MARGIN + titles.length * 22 + notes.length * 17 + 10;
	const height = Math.ceil(box.height) + top + MARGIN;
	const ink = plainColor(page.color)[0];
	const heading = [
		...titles.map((text, i) =>
			svg(
				"text",
				{
					x: MARGIN,
					y: MARGIN + 15 + i * 22,
					"font-size": "17px",
					"font-weight": 700,
					fill: ink,
				},
				xml(text),
			),
		),
		...notes.map((text, i) =>
			svg(
				"text",
				{
					x: MARGIN,
					y: MARGIN + titles.length * 22 + 12 + i * 17,
					"font-size": "12px",
					fill: ink,
				},
				xml(text),
			),
		),
	];
	const root = svg(
		"svg",
		{
			xmlns: SVG,
			width,
			height,
			viewBox: `0 0 ${width} ${height}`,
			role: "img",
			"aria-labelledby": "title desc",
			fill: ink,
			"font-family": page.fontFamily,
		},
		svg("title", { id: "title" }, xml(`${title}: ${settings}`)),
		svg("desc", { id: "desc" }, xml(description)),
		svg("rect", { width, height, fill: plainColor(page.backgroundColor)[0] }),
		...heading,
		...elementsOf(element, [box.left - MARGIN, box.top - top]),
	);
	return {
		text:
			`<?xml version="1.0" ` +
			`encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(root)}\n`,
		width,
		height,
	};
}

const PNG_SCALE = 2;

/** The picture as PNG, two pixels of it for each of the page unless `scale` says otherwise. */
export async function pngOf(
	{ text, width, height }: { text: string; width: number; height: number },
	scale = PNG_SCALE,
): Promise<Blob> {
	const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
	try {
		const image = new Image();
		image.src = url;
		await image.decode();
		const canvas = document.createElement("canvas");
		[canvas.width, canvas.height] = [width * scale, height * scale];
		canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
		return await new Promise((done, fail) =>
			canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("no PNG"))), "image/png"),
		);
	} finally {
		URL.revokeObjectURL(url);
	}
}
