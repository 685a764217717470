// Buttons that copy and save: what `count` and `diff` print, and of each part its tables and pictures as shown.
import { asked, button, h } from "./dom.js";
import { drawing, pictures } from "./picture.js";
import { asMarkdown, asText, copied, saved, tables, whole } from "./share.js";

const small = (text, label, act) => button(text, act, { class: "take", "aria-label": label });

// `given`: what Python sent of a model or a difference.
export function copies(given, name) {
	const forms = [["text", () => given.text], ["Markdown", () => given.markdown], given.json && ["JSON", () => (typeof given.json === "string" ? given.json : whole(given.json))]].filter(Boolean);
	return h("span.choice", { role: "group", "aria-label": "Copy the page" }, "Copy: ", ...forms.map(([form, make]) => small(form, `Copy as ${form}`, () => copied(make(), `${name} as ${form}`))));
}

function choose(found, save) {
	const rows = found.map((x) => h("li", button(x.name, () => [dialog.close(), save(x)])));
	const dialog = asked("Select a picture", h("ul.plainly", rows));
}

// Beside each heading its buttons; they take what is there when they are pressed.
export function takeaways(main, name) {
	for (const part of main.querySelectorAll("section")) {
		const heading = part.querySelector("h2");
		if (!heading || heading.nextElementSibling?.classList.contains("takes")) continue;
		const what = heading.textContent;
		const words = (form, make) => small(form, `Copy ${what} as ${form}`, () => copied(make(tables(part)), `${what} as ${form}`));
		const save = (x) => saved(`${name}-${x.name}.svg`, drawing(x, `${name}, ${what}`), "image/svg+xml");
		const draw = () => {
			const found = pictures(part).map((x) => ({ ...x, name: x.name === name ? what : x.name }));
			if (found.length === 1) save(found[0]);
			else choose(found, save);
		};
		const svg = part.querySelector("svg") && small("SVG", `Save a picture of ${what} as SVG`, draw);
		const buttons = [...(part.querySelector("table") ? [words("text", asText), words("Markdown", asMarkdown)] : []), svg].filter(Boolean);
		if (buttons.length) heading.after(h("div.takes", { role: "group", "aria-label": `Copy or save: ${what}` }, buttons));
	}
}
