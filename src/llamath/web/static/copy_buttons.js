// Buttons that copy the page, its tables and its pictures, or save them.
import { openDialog, button, h } from "./dom.js";
import { svgDocument, findPictures } from "./svg_export.js";
import { asMarkdown, asText, copyText, saveFile, visibleTables, countJson } from "./clipboard.js";

const small = (text, label, act) => button(text, act, { class: "take", "aria-label": label });

// `given` has the text, Markdown and JSON of a model or a comparison.
export function copyPageButtons(given, name) {
	const forms = [["text", () => given.text], ["Markdown", () => given.markdown], given.json && ["JSON", () => (typeof given.json === "string" ? given.json : countJson(given.json))]].filter(Boolean);
	return h("span.choice", { role: "group", "aria-label": "Copy the page" }, "Copy: ", ...forms.map(([form, make]) => small(form, `Copy as ${form}`, () => copyText(make(), `${name} as ${form}`))));
}

function choose(found, save) {
	const rows = found.map((x) => h("li", button(x.name, () => [dialog.close(), save(x)])));
	const dialog = openDialog("Select a picture", h("ul.plainly", rows));
}

// Add copy buttons after each heading; they copy the contents at the time of the click.
export function addCopyButtons(main, name) {
	for (const part of main.querySelectorAll("section")) {
		const heading = part.querySelector("h2");
		if (!heading || heading.nextElementSibling?.classList.contains("takes")) continue;
		const what = heading.textContent;
		const words = (form, make) => small(form, `Copy ${what} as ${form}`, () => copyText(make(visibleTables(part)), `${what} as ${form}`));
		const save = (x) => saveFile(`${name}-${x.name}.svg`, svgDocument(x, `${name}, ${what}`), "image/svg+xml");
		const draw = () => {
			const found = findPictures(part).map((x) => ({ ...x, name: x.name === name ? what : x.name }));
			if (found.length === 1) save(found[0]);
			else choose(found, save);
		};
		const svg = part.querySelector("svg") && small("SVG", `Save a picture of ${what} as SVG`, draw);
		const buttons = [...(part.querySelector("table") ? [words("text", asText), words("Markdown", asMarkdown)] : []), svg].filter(Boolean);
		if (buttons.length) heading.after(h("div.takes", { role: "group", "aria-label": `Copy or save: ${what}` }, buttons));
	}
}
