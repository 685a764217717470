// Buttons that copy the page, its tables and its pictures, or save them.
import { openDialog, button, h } from "./dom.js";
import { svgDocument, findPictures } from "./svg_export.js";
import { asMarkdown, asText, copyText, saveFile, visibleTables, countJson } from "./clipboard.js";

const small = (text, label, act) => button(text, act, { class: "take", "aria-label": label });

// `given` has the text, Markdown and JSON of a model or a comparison.
export function copyPageButtons(texts, name) {
	const formats = [["text", () => texts.text], ["Markdown", () => texts.markdown], texts.json && ["JSON", () => (typeof texts.json === "string" ? texts.json : countJson(texts.json))]].filter(Boolean);
	return h("span.choice", { role: "group", "aria-label": "Copy the page" }, "Copy: ", ...formats.map(([form, getText]) => small(form, `Copy as ${form}`, () => copyText(getText(), `${name} as ${form}`))));
}

function choose(pictures, save) {
	const rows = pictures.map((x) => h("li", button(x.name, () => [dialog.close(), save(x)])));
	const dialog = openDialog("Select a picture", h("ul.plainly", rows));
}

// Add copy buttons after each heading; they copy the contents at the time of the click.
export function addCopyButtons(main, name) {
	for (const part of main.querySelectorAll("section")) {
		const heading = part.querySelector("h2");
		if (!heading || heading.nextElementSibling?.classList.contains("takes")) continue;
		const title = heading.textContent;
		const copyTables = (form, make) => small(form, `Copy ${title} as ${form}`, () => copyText(make(visibleTables(part)), `${title} as ${form}`));
		const save = (x) => saveFile(`${name}-${x.name}.svg`, svgDocument(x, `${name}, ${title}`), "image/svg+xml");
		const savePicture = () => {
			const pictures = findPictures(part).map((x) => ({ ...x, name: x.name === name ? title : x.name }));
			if (pictures.length === 1) save(pictures[0]);
			else choose(pictures, save);
		};
		const svg = part.querySelector("svg") && small("SVG", `Save a picture of ${title} as SVG`, savePicture);
		const buttons = [...(part.querySelector("table") ? [copyTables("text", asText), copyTables("Markdown", asMarkdown)] : []), svg].filter(Boolean);
		if (buttons.length) heading.after(h("div.takes", { role: "group", "aria-label": `Copy or save: ${title}` }, buttons));
	}
}
