// The table of tensors: folded by section, filtered, sorted, under any of their names.
import { grouped } from "./forms.js";
import { button, choice, formula, group, h, head, hidden, labelled, numeral, path, row, scrolled } from "./dom.js";

const NAMES = [["path", "canonical"], ["hf", "Hugging Face"], ["meta", "Meta"], ["gguf", "GGUF"]];

const called = (row, kind) => (kind === "path" ? row.path : row.names[kind] || `– (${row.path})`);

export function derivation(row, section) {
	if (row.tied) return [row.path, `Its numbers are those of ${row.tied}: it adds none.`];
	const factors = [row.copies, row.times].filter((x) => x !== "1");
	const letters = [row.dims.join("·"), ...(row.copies === "1" ? [] : [grouped(row.copies)]), ...(row.times === "1" ? [] : [section.letter])];
	const numbers = [...row.shape, ...factors].map(grouped);
	return [row.path, formula(letters.join("·"), numbers.join("·"), grouped(row.total))];
}

// What the numbers of a row come from; the sum of a group has its own formula.
function sources(row, section, whole) {
	const times = section.letter === "1" ? [] : [section.letter];
	const each = row ? [row.dims.join("·"), row.shape.map(grouped).join("·"), grouped(row.each)] : [section.symbols, section.numbers, grouped(section.each)];
	const [title, total] = row ? [row.path, row.total] : [section.where, section.total];
	const copies = row ? [row.copies, row.times] : [section.times];
	const many = copies.reduce((a, x) => a * BigInt(x), 1n);
	const letters = [...(row && row.copies !== "1" ? [grouped(row.copies)] : []), ...times].join("·") || "1";
	return [
		() => [`${title}: each`, formula(...each)],
		() => [`${title}: copies`, formula(letters, copies.map(grouped).join("·"), grouped(many)), row ? "how many of its layers, and how many in each" : "how many layers"],
		() => (row ? derivation(row, section) : [title, formula(`${times.map((x) => `${x}·`).join("")}(${section.symbols})`, `${section.times}·(${section.numbers})`, grouped(total))]),
		() => [`${title}: share`, formula(`${grouped(total)} / ${grouped(whole)}`, row?.share ?? section.share), "of the total, rounded to a hundredth of a percent"],
	];
}

// Numbers of a row; one of them is in the order of Tab, arrows go to the others and to those of the rows around.
function numbers(texts, tells) {
	return texts.map((text, i) => h("td", { class: "n" }, numeral(text, tells[i], { tabindex: i === 2 ? null : "-1", "data-column": i, onkeydown: across })));
}

function across(event) {
	const [over, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [];
	if (over === undefined) return;
	const own = [...event.currentTarget.closest("tr").querySelectorAll(".number")];
	const column = [...event.currentTarget.closest("table").querySelectorAll(`[data-column="${event.currentTarget.dataset.column}"]`)];
	(over ? own[own.indexOf(event.currentTarget) + over] : column[column.indexOf(event.currentTarget) + down])?.focus();
	event.preventDefault();
}

function sorted(rows, key) {
	if (!key) return rows;
	if (key === "path") return rows.toSorted((a, b) => (a.path < b.path ? -1 : 1));
	return rows.toSorted((a, b) => (BigInt(a[key]) < BigInt(b[key]) ? 1 : -1));
}

function line(x, section, names, whole) {
	const texts = [grouped(x.each), grouped(BigInt(x.copies) * BigInt(x.times)), x.tied ? "tied" : grouped(x.total), x.share];
	return row(path(called(x, names)), `${x.dims.join("×")} = ${x.shape.join("×")}`, ...numbers(texts, sources(x, section, whole)));
}

function body(section, index, state, closed, again, whole) {
	const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
	const matches = (x) => words.every((word) => [x.path, x.group, ...Object.values(x.names)].some((y) => y.toLowerCase().includes(word)));
	const rows = sorted(section.rows.filter(matches), state.sort);
	if (!rows.length) return null;
	const open = !closed.has(index) || words.length > 0;
	const turn = (to) => {
		if (to) closed.delete(index);
		else closed.add(index);
		again(index);
	};
	const key = (event) => {
		if (event.key === "ArrowRight" && !open) turn(true);
		else if (event.key === "ArrowLeft" && open) turn(false);
		else if (event.key === "ArrowDown" || event.key === "ArrowUp") neighbour(event.currentTarget, event.key === "ArrowDown" ? 1 : -1);
		else return;
		event.preventDefault();
	};
	const toggle = button(section.where, () => turn(!open), { class: "fold", "aria-expanded": String(open), "data-section": index, onkeydown: key });
	const sums = numbers([section.each, section.times, section.total].map(grouped).concat(section.share), sources(null, section, whole));
	return h("tbody", row({ class: "head" }, h("th", { scope: "rowgroup", colspan: "2" }, toggle), ...sums), ...(open ? rows.map((x) => line(x, section, state.names, whole)) : []));
}

function neighbour(button, step) {
	const all = [...button.closest("table").querySelectorAll("button.fold")];
	all[all.indexOf(button) + step]?.focus();
}

export function tensors(model, state, change) {
	const closed = new Set();
	const place = scrolled("table of tensors");
	const found = h("p", { class: "faint", role: "status" });
	const draw = (focused) => {
		const bodies = model.sections.map((x, i) => body(x, i, state, closed, draw, BigInt(model.counts[0].value)));
		const columns = [["path", "weight"], ["", "shape"], ["each", "each"], ["", "copies"], ["total", "all"], ["", "share"]];
		const sorts = columns.map(([key, text]) => {
			const chosen = key && state.sort === key;
			const next = () => change({ sort: chosen ? "" : key });
			const said = key ? button(text, next, { class: "plain", "data-sort": key }) : text;
			const style = ["weight", "shape"].includes(text) ? null : "n";
			return h("th", { scope: "col", class: style, "aria-sort": chosen ? (key === "path" ? "ascending" : "descending") : null }, said);
		});
		place.replaceChildren(h("table", h("caption", hidden(`Tensors of ${model.name}`)), head(sorts), bodies));
		const shown = bodies.filter(Boolean).length;
		found.textContent = state.find ? `${shown ? `${shown} of ${model.sections.length} groups have` : "nothing has"} “${state.find}”` : "";
		if (focused !== undefined) place.querySelector(`button[data-section="${focused}"]`)?.focus();
	};
	const find = h("input", { type: "search", id: "find", value: state.find, maxlength: "80", oninput: () => change({ find: find.value }) });
	const controls = group(labelled("Find ( / )", find), choice("Names", "names", NAMES, state.names, change));
	draw();
	return { element: h("div", controls, found, place), draw };
}
