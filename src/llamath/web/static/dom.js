// Elements by hand. All text goes in as text; nothing here parses markup.
const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((x) => x !== null && x !== undefined));
  return element;
}

export const h = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
export const s = (name, attributes = {}, ...children) => filled(document.createElementNS(SVG, name), attributes, children);

let dialog = null;

function shown(told) {
  if (!dialog) {
    const close = h("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Close");
    dialog = h("dialog", { "aria-labelledby": "derivation" }, h("h2", { id: "derivation" }), h("div", { class: "lines" }), close);
    document.body.append(dialog);
  }
  dialog.querySelector("h2").textContent = told.title;
  dialog.querySelector(".lines").replaceChildren(...told.lines.map((x) => (typeof x === "string" ? h("p", {}, x) : x)));
  dialog.showModal();
}

export const formula = (...lines) => h("pre", { tabindex: "0", "aria-label": "formula" }, lines.filter(Boolean).join("\n= "));

// A number that opens what it comes from.
export function numeral(text, tell, attributes = {}) {
  return h("button", { type: "button", class: "number", "aria-haspopup": "dialog", ...attributes, onclick: () => shown(tell()) }, text);
}

export const told = (tell) => shown(tell());

export function choice(label, name, options, chosen, change) {
  const id = `choice-${name}`;
  const select = h("select", { id, onchange: (event) => change(event.target.value) });
  select.append(...options.map(([key, text]) => h("option", { value: key, selected: key === chosen }, text)));
  return h("span", { class: "choice" }, h("label", { for: id }, label), " ", select);
}

export function section(id, title, ...children) {
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}
