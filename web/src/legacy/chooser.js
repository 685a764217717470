// The start page of the server: find a model, open it, or choose a second one to compare with.
import { data, grouped, matchWords } from "./expressions.js";
import { button, group, h } from "./dom.js";
import { pageUrl } from "./page_links.js";

const HUB = /^[a-z\d][\w.-]{0,95}[/:][a-z\d][\w.-]{0,95}$/i;
const input = (id, attributes) => h("input", { id, autocomplete: "off", spellcheck: "false", ...attributes });
const status = h("p.faint", { role: "status" });
const comparing = h("p.comparing");
const find = input("find", { type: "search", maxlength: "80", oninput: filter });
const rows = [];
let first = firstModel();

// The first model of a comparison, from the URL. The URL is untrusted, so only known ids are accepted.
function firstModel() {
	const id = new URLSearchParams(location.hash.slice(1, 300)).get("with") ?? "";
	const model = [...data.own, ...data.presets].find((x) => x.id === id) ?? (data.hub && id.startsWith("hub:") && HUB.test(id.slice(4)) && { id, name: id.slice(4).replace(":", "/") });
	return model || null;
}

function choose(id) {
	history.replaceState(null, "", id ? `#${new URLSearchParams({ with: id })}` : "#");
	label();
	find.focus();
}

const ids = (id) => [...(first ? [first.id] : []), id];

function label() {
	first = firstModel();
	comparing.hidden = !first;
	if (first) comparing.replaceChildren("Compare ", h("strong", first.name), " with: choose a second model. ", button("One model only", () => choose("")));
	for (const x of rows) {
		x.link.href = pageUrl("", ids(x.id));
		x.other.hidden = Boolean(first);
	}
}

function row({ id, name, parameters, everyday, also }) {
	const link = h("a", name);
	const other = button("compare", () => choose(id), { "aria-label": `Compare ${name} with another` });
	const element = h("li", link, h("code.faint", id.startsWith("~") ? "" : id), h("span.n", { title: grouped(parameters) }, everyday), other);
	rows.push({ id, link, other, element, words: [id, name, everyday, ...also] });
	return element;
}

const list = (title, id, models) => (models.length ? h("section", { "aria-labelledby": id }, h("h2", { id }, title), h("ul.models", models.map(row))) : null);
const shown = () => rows.filter((x) => !x.element.hidden).map((x) => x.link);

function filter() {
	const matches = matchWords(find.value);
	for (const x of rows) x.element.hidden = !matches(...x.words);
	const n = shown().length;
	status.textContent = find.value ? `${n} of ${rows.length}${n ? "; Enter opens the first" : ""}` : `${n} models`;
}

function hub() {
	const note = h("span", { id: "hub-note", class: "faint", role: "status" }, "reads the config, never the weights");
	const id = input("hub", { type: "text", maxlength: "193", placeholder: "owner/name", "aria-describedby": "hub-note", onkeydown: (event) => event.key === "Enter" && open() });
	const open = () => {
		const text = id.value.trim().replace("/", ":");
		const isValid = HUB.test(text) && !id.value.includes(":");
		id.setAttribute("aria-invalid", String(!isValid));
		note.textContent = isValid ? "asking the hub…" : "expected owner/name";
		if (isValid) location.assign(pageUrl("", ids(`hub:${text}`)));
	};
	return group(h("label", { for: "hub" }, "From the hub"), id, button("Open", open), note);
}

function key(event) {
	const focusable = [find, ...shown()];
	const next = focusable.indexOf(document.activeElement) + { ArrowDown: 1, ArrowUp: -1 }[event.key];
	if (event.key === "Enter" && event.target === find) focusable[1]?.click();
	else if (event.key === "/" && !event.target.closest("input")) find.focus();
	else if (next >= 0 && focusable.includes(document.activeElement)) focusable[next]?.focus();
	else return;
	event.preventDefault();
}

const search = group(h("label", { for: "find" }, "Find ( / )"), find);
document.getElementById("page").replaceChildren(...[h("header", h("h1", "Choose a model")), comparing, search, data.hub && hub(), status, list("Models of this server", "own", data.own), list("Presets", "presets", data.presets)].filter(Boolean));
document.addEventListener("keydown", key);
addEventListener("hashchange", label);
label();
filter();
