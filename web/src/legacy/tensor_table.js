// The table of tensors: grouped by section, with a filter, sorting and four naming schemes.
import { grouped, matchWords, texts } from "./expressions.js";
import { button, choice, formula, group, h, head, hidden, labeled, numberButton, path, row, scrollRegion } from "./dom.js";
import { productFormula, shapeText, shareFormula, sideFormulas } from "./derivations.js";

const displayName = (row, kind) => (kind === "path" ? row.path : row.names[kind] || `– (${row.path})`);

// The derivations of the numbers in a row or a section.
function rowDerivations(row, section, whole) {
	const [title, total] = row ? [row.path, row.total] : [section.where, section.total];
	const entry = (what, i, details) => () => [`${title}: ${what}`, row ? details() : formula(...section.of[i])];
	const layers = section.of[1][0];
	const factors = row && [[grouped(row.copies), row.copies], [layers, row.times]];
	return [
		entry("each", 0, () => productFormula(row, [], grouped(row.each))),
		entry("copies", 1, () => formula((row.copies === "1" ? "" : `${grouped(row.copies)}·`) + layers, `${grouped(row.copies)}·${grouped(row.times)}`, grouped(BigInt(row.copies) * BigInt(row.times)))),
		entry("all", 2, () => (row.tied ? `Tied to ${row.tied}: it adds no parameters.` : productFormula(row, factors, grouped(row.total)))),
		() => [`${title}: share`, shareFormula(title, BigInt(total), whole), texts.percent],
	];
}

// The numbers of a row; Tab reaches one of them, arrow keys move between cells.
function numbers(texts, tells) {
	return texts.map((text, i) => h("td.n", numberButton(text, tells[i], { tabindex: i === 2 ? null : "-1", "data-column": i, onkeydown: moveFocus })));
}

function moveFocus(event) {
	const [columnStep, rowStep] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [];
	if (columnStep === undefined) return;
	const rowButtons = [...event.currentTarget.closest("tr").querySelectorAll(".number")];
	const columnButtons = [...event.currentTarget.closest("table").querySelectorAll(`[data-column="${event.currentTarget.dataset.column}"]`)];
	(columnStep ? rowButtons[rowButtons.indexOf(event.currentTarget) + columnStep] : columnButtons[columnButtons.indexOf(event.currentTarget) + rowStep])?.focus();
	event.preventDefault();
}

function sorted(rows, key) {
	if (!key) return rows;
	if (key === "path") return rows.toSorted((a, b) => (a.path < b.path ? -1 : 1));
	return rows.toSorted((a, b) => (BigInt(a[key]) < BigInt(b[key]) ? 1 : -1));
}

function weightRow(x, section, names, whole) {
	const texts = [grouped(x.each), grouped(BigInt(x.copies) * BigInt(x.times)), x.tied ? "tied" : grouped(x.total), x.share];
	const shape = numberButton(shapeText({ ...x, copies: 1 }), () => [`${x.path}: shape`, sideFormulas(x)], { tabindex: "-1", "data-column": "shape", onkeydown: moveFocus });
	return row(path(displayName(x, names)), shape, ...numbers(texts, rowDerivations(x, section, whole)));
}

function sectionBody(section, index, state, closed, redraw, whole) {
	const matches = matchWords(state.find);
	const rows = sorted(section.rows.filter((x) => matches(x.path, x.group, ...Object.values(x.names))), state.sort);
	if (!rows.length) return null;
	const open = !closed.has(index) || state.find.trim() !== "";
	const setOpen = (to) => {
		if (to) closed.delete(index);
		else closed.add(index);
		redraw(index);
	};
	const onKey = (event) => {
		if (event.key === "ArrowRight" && !open) setOpen(true);
		else if (event.key === "ArrowLeft" && open) setOpen(false);
		else if (event.key === "ArrowDown" || event.key === "ArrowUp") focusNeighbor(event.currentTarget, event.key === "ArrowDown" ? 1 : -1);
		else return;
		event.preventDefault();
	};
	const toggle = button(section.where, () => setOpen(!open), { class: "fold", "aria-expanded": String(open), "data-section": index, onkeydown: onKey });
	const sums = numbers([section.each, section.times, section.total].map(grouped).concat(section.share), rowDerivations(null, section, whole));
	return h("tbody", row({ class: "head" }, h("th", { scope: "rowgroup", colspan: "2" }, toggle), ...sums), ...(open ? rows.map((x) => weightRow(x, section, state.names, whole)) : []));
}

function focusNeighbor(button, step) {
	const all = [...button.closest("table").querySelectorAll("button.fold")];
	all[all.indexOf(button) + step]?.focus();
}

export function tensorTable(model, state, change) {
	const closed = new Set();
	const place = scrollRegion("table of tensors");
	const status = h("p.faint", { role: "status" });
	const draw = (focused) => {
		const bodies = model.sections.map((x, i) => sectionBody(x, i, state, closed, draw, BigInt(model.counts[0].value)));
		const sorts = texts.columns.tensors.map(([key, text]) => {
			const chosen = key && state.sort === key;
			const next = () => change({ sort: chosen ? "" : key });
			const content = key ? button(text, next, { class: "plain", "data-sort": key }) : text;
			const style = ["weight", "shape"].includes(text) ? null : "n";
			return h("th", { scope: "col", class: style, "aria-sort": chosen ? (key === "path" ? "ascending" : "descending") : null }, content);
		});
		place.replaceChildren(h("table", h("caption", hidden(`Tensors of ${model.name}`)), head(sorts), bodies));
		const shown = bodies.filter(Boolean).length;
		status.textContent = state.find ? `${shown} of ${model.sections.length} groups have “${state.find}”` : "";
		if (focused !== undefined) place.querySelector(`button[data-section="${focused}"]`)?.focus();
	};
	const find = h("input", { type: "search", id: "find", value: state.find, maxlength: "80", oninput: () => change({ find: find.value }) });
	const controls = group(labeled("Find ( / )", find), choice("Names", "names", texts.names, state.names, change));
	draw();
	return { element: h("div", controls, status, place), draw };
}
