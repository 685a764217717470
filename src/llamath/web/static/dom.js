// Elements by hand. All text goes in as text; nothing here parses markup.
const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
	for (const [name, value] of Object.entries(attributes)) {
		if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
	}
	element.append(...children.flat(2).filter(Boolean));
	return element;
}

const plain = (x) => x?.constructor === Object;
const made = (element, parts) => (plain(parts[0]) ? filled(element, parts[0], parts.slice(1)) : filled(element, {}, parts));

// Attributes, where there are any, then what is inside: nothing of it that is empty, lists as if spread.
export const h = (name, ...parts) => made(document.createElement(name), parts);
export const s = (name, ...parts) => made(document.createElementNS(SVG, name), parts);

export const rect = (x, y, width, height, style, ...inside) => s("rect", { x, y, width, height, class: style }, ...inside);
export const line = (x1, y1, x2, y2, style) => s("line", { x1, x2, y1, y2, class: style });
export const words = (x, y, text, style = "small", anchor = null) => s("text", { x, y, "text-anchor": anchor, class: style }, text);

export const button = (text, onclick, attributes) => h("button", { type: "button", onclick, ...attributes }, text);
// Controls beside each other.
export const group = (...inside) => h("div", { class: "controls" }, ...inside);
export const faint = (...inside) => h("p", { class: "faint" }, ...inside);
export const labelled = (label, input, ...more) => h("span", { class: "choice" }, h("label", { for: input.id }, label), " ", input, ...more);

// A dialog that is gone when it is closed.
export function asked(title, ...inside) {
	const dialog = h("dialog", { "aria-labelledby": "asked", onclose: () => dialog.remove() }, h("h2", { id: "asked" }, title), ...inside, button("Close", () => dialog.close(), { class: "plain" }));
	document.body.append(dialog);
	dialog.showModal();
	return dialog;
}

// What is told of a thing: a title, then lines.
export function told(tell) {
	const [title, ...lines] = tell().flat(2).filter(Boolean);
	asked(title, h("div", { class: "lines" }, lines.map((x) => (typeof x === "string" ? h("p", x) : x))));
}

export const formula = (...lines) => h("pre", { tabindex: "0", "aria-label": "formula" }, lines.filter(Boolean).join("\n= "));

// A number that opens what it comes from.
export const numeral = (text, tell, attributes) => button(text, () => told(tell), { class: "number", "aria-haspopup": "dialog", ...attributes });

export function choice(label, name, options, chosen, change) {
	const select = h("select", { id: `choice-${name}`, onchange: () => change({ [name]: select.value }) }, options.map(([key, text]) => h("option", { value: key, selected: key === chosen }, text)));
	return labelled(label, select);
}

// What is wider than a phone moves by itself.
export const scrolled = (label, ...inside) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, ...inside);

export function section(id, title, ...children) {
	return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

// A table; in its head and its rows, what stands in a list is a number.
const cells = (list) => list.map((x) => (x instanceof Node && x.localName === "td" ? x : h("td", { class: Array.isArray(x) ? "n" : null }, x)));
export const row = (first, ...rest) => (plain(first) ? filled(row(...rest), first, []) : h("tr", first instanceof Node && first.localName === "th" ? first : h("th", { scope: "row" }, first), cells(rest)));
export const path = (text) => h("th", { scope: "row", class: "path" }, text);
export const head = (list) => h("thead", h("tr", list.map((x) => (x instanceof Node ? x : h("th", { scope: "col", class: Array.isArray(x) ? "n" : null }, x)))));
export const table = (caption, columns, ...rows) => h("table", caption && h("caption", caption), head(columns), h("tbody", ...rows));
export const hidden = (text) => h("span", { class: "hidden" }, text);

// A picture in layers [key, shapes]: one whose key is the same as before stays as it is.
export function layered() {
	const svg = s("svg", { role: "img" });
	const keys = [];
	return (attributes, layers) => {
		filled(svg, attributes, []);
		for (const [i, [key, make]] of layers.entries()) {
			if (!svg.children[i]) svg.append(s("g"));
			if (key === undefined || keys[i] !== key) svg.children[i].replaceChildren(...make().filter(Boolean));
			keys[i] = key;
		}
		return svg;
	};
}
