// Helpers that build DOM elements. Text is always inserted as text; no markup is parsed.
const HTML = "http://www.w3.org/1999/xhtml";
const SVG = "http://www.w3.org/2000/svg";

function fillElement(element, attributes, children) {
	for (const [name, value] of Object.entries(attributes)) {
		if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
	}
	element.append(...children.flat(2).filter(Boolean));
	return element;
}

const isAttributes = (x) => x?.constructor === Object;

function createElement(space, name, parts) {
	const [tag, ...classes] = name.split(".");
	const element = document.createElementNS(space, tag);
	if (classes.length) element.setAttribute("class", classes.join(" "));
	return isAttributes(parts[0]) ? fillElement(element, parts[0], parts.slice(1)) : fillElement(element, {}, parts);
}

// Create an element from tag.class.class, optional attributes, and children. Falsy children are dropped, lists are flattened.
export const h = (name, ...parts) => createElement(HTML, name, parts);
export const s = (name, ...parts) => createElement(SVG, name, parts);

export const rect = (x, y, width, height, style, ...inside) => s("rect", { x, y, width, height, class: style }, ...inside);
export const line = (x1, y1, x2, y2, style) => s("line", { x1, x2, y1, y2, class: style });
export const svgText = (x, y, text, style = "small", anchor = null) => s("text", { x, y, "text-anchor": anchor, class: style }, text);

export const button = (text, onclick, attributes) => h("button", { type: "button", onclick, ...attributes }, text);
export const group = (...inside) => h("div.controls", ...inside);
export const faint = (...inside) => h("p.faint", ...inside);
export const labeled = (label, input, ...more) => h("span.choice", h("label", { for: input.id }, label), " ", input, ...more);

// Open a dialog that is removed when it is closed.
export function openDialog(title, ...inside) {
	const dialog = h("dialog", { "aria-labelledby": "asked", onclose: () => dialog.remove() }, h("h2", { id: "asked" }, title), ...inside, button("Close", () => dialog.close(), { class: "plain" }));
	document.body.append(dialog);
	dialog.showModal();
	return dialog;
}

// Print the open dialog at the end of the page.
addEventListener("beforeprint", () => {
	const open = document.querySelector("dialog");
	if (open) document.body.append(h("div.printed", ...open.cloneNode(true).childNodes));
});
addEventListener("afterprint", () => document.querySelector(".printed")?.remove());

// Open a dialog with the title and the lines that `tell` returns.
export function showDetails(details) {
	const [title, ...lines] = details().flat(2).filter(Boolean);
	openDialog(title, h("div.lines", lines.map((x) => (typeof x === "string" ? h("p", x) : x))));
}

export const formula = (...lines) => h("pre", { tabindex: "0", "aria-label": "formula" }, lines.filter(Boolean).join("\n= "));

// A number as a button that opens its derivation.
export const numberButton = (text, details, attributes) => button(text, () => showDetails(details), { class: "number", "aria-haspopup": "dialog", ...attributes });

// Text that the callbacks in `live` update in place; a button where it has a derivation.
export function liveText(updaters, text, details, attributes) {
	const node = details ? numberButton("", details, attributes) : h("span");
	updaters.push(() => {
		const content = text();
		if (node.textContent !== content) node.textContent = content;
	});
	return node;
}

export function choice(label, name, options, chosen, change) {
	const select = h("select", { id: `choice-${name}`, onchange: () => change({ [name]: select.value }) }, options.map(([key, text]) => h("option", { value: key, selected: key === chosen }, text)));
	return labeled(label, select);
}

// A region that scrolls horizontally on narrow screens.
export const scrollRegion = (label, ...inside) => h("div.scroll", { tabindex: "0", role: "region", "aria-label": label }, ...inside);

export function section(id, title, ...children) {
	return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

// Tables. In headers and rows, a cell in a list is a right-aligned number.
const cells = (list) => list.map((x) => (x instanceof Node && x.localName === "td" ? x : h("td", { class: Array.isArray(x) ? "n" : null }, x)));
export const row = (first, ...rest) => (isAttributes(first) ? fillElement(row(...rest), first, []) : h("tr", first instanceof Node && first.localName === "th" ? first : h("th", { scope: "row" }, first), cells(rest)));
export const path = (text) => h("th.path", { scope: "row" }, text);
export const head = (list) => h("thead", h("tr", list.map((x) => (x.localName === "th" ? x : h("th", { scope: "col", class: Array.isArray(x) ? "n" : null }, x)))));
export const table = (caption, columns, ...rows) => h("table", caption && h("caption", caption), head(columns), h("tbody", ...rows));
export const hidden = (text) => h("span.hidden", text);

// An SVG group that acts as a button.
export function clickable(open, attributes, ...inside) {
	const onkeydown = (event) => {
		if (event.key !== "Enter" && event.key !== " ") return;
		event.preventDefault();
		open();
	};
	return s("g", { role: "button", tabindex: "-1", class: "tile", onclick: open, onkeydown, ...attributes }, ...inside);
}

// Roving tabindex: arrow keys move between the shapes; one of them is reachable with Tab.
export function addRovingFocus(shapes) {
	for (const [i, x] of shapes.entries()) {
		x.addEventListener("keydown", (event) => {
			const next = shapes[i + { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key]];
			if (!next) return;
			event.preventDefault();
			x.setAttribute("tabindex", "-1");
			next.setAttribute("tabindex", "0");
			next.focus();
		});
	}
	shapes[0]?.setAttribute("tabindex", "0");
}

// An SVG of layers [key, shapes]; a layer is redrawn only when its key changes.
export function layeredSvg() {
	const svg = s("svg", { role: "img" });
	const keys = [];
	return (attributes, layers) => {
		fillElement(svg, attributes, []);
		for (const [i, [key, make]] of layers.entries()) {
			if (!svg.children[i]) svg.append(s("g"));
			if (key === undefined || keys[i] !== key) svg.children[i].replaceChildren(...make().filter(Boolean));
			keys[i] = key;
		}
		return svg;
	};
}
