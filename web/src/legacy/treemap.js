// A squarified treemap (Bruls, Huizing, van Wijk 2000). Positions are floats, sizes are exact.
import { gibibytes, grouped, percent, shortCount, sum } from "./expressions.js";
import { button, formula, h, numberButton, clickable, rect, addRovingFocus, s, showDetails, svgText } from "./dom.js";
import { sumFormula, inBytes, inShort, shapeText, shareFormula, sideFormulas } from "./derivations.js";

// A path without its layer prefix and without .weight.
export const shortPath = (path) => path.replace("layers.{l}.", "").replace(/\.weight$/, "");

const WIDTH = 960;
const HEIGHT = 460;

function worstRatio(row, side) {
	const whole = row.reduce((a, b) => a + b, 0);
	const [low, high] = [Math.min(...row), Math.max(...row)];
	return low > 0 ? Math.max((side * side * high) / whole ** 2, whole ** 2 / (side * side * low)) : Infinity;
}

function squarify(sizes, [x, y, width, height]) {
	const total = sizes.reduce((a, b) => a + b, 0);
	let areas = sizes.map((n) => (total ? (n * width * height) / total : 0));
	const boxes = [];
	while (areas.length) {
		const side = Math.min(width, height);
		let n = 1;
		while (n < areas.length && worstRatio(areas.slice(0, n + 1), side) <= worstRatio(areas.slice(0, n), side)) n += 1;
		const thickness = side ? areas.slice(0, n).reduce((a, b) => a + b, 0) / side : 0;
		let offset = 0;
		for (const area of areas.slice(0, n)) {
			const length = thickness ? area / thickness : 0;
			boxes.push(width >= height ? [x, y + offset, thickness, length] : [x + offset, y, length, thickness]);
			offset += length;
		}
		if (width >= height) [x, width] = [x + thickness, Math.max(width - thickness, 0)];
		else [y, height] = [y + thickness, Math.max(height - thickness, 0)];
		areas = areas.slice(n);
	}
	return boxes;
}

function label(box, lines) {
	const [x, y, width, height] = box;
	const texts = [];
	for (const [i, line] of lines.entries()) {
		if ((i + 1) * 16 + 4 > height || line.length * 7.6 + 10 > width) break;
		texts.push(svgText(x + 6, y + 16 + 16 * i, line, i ? "small" : "name"));
	}
	return texts;
}

// A legend entry: its share opens the sum.
const shareButton = (name, list, total, unit) => {
	const n = sum(list.map((x) => x[1]));
	return numberButton(percent(n, total), () => [name, sumFormula(list, unit), shareFormula(name, n, total)]);
};

// items: {name, group, place, detail, size: bigint, sign, tell}; tiles are grouped by place, or by group without places.
export function treemap(title, items, unit, focus = () => undefined) {
	const whole = sum(items.map((x) => x.size));
	const scale = (n) => (whole ? Number((n * 10n ** 12n) / whole) : 0);
	const groups = Map.groupBy(items.filter((x) => x.size > 0n), (x) => x.place ?? x.group);
	const sums = [...groups].map(([name, list]) => [name, sum(list.map((x) => x.size)), list.toSorted((a, b) => (a.size < b.size ? 1 : a.size > b.size ? -1 : 0))]);
	sums.sort((a, b) => (a[1] < b[1] ? 1 : -1));
	const summary = sums.map(([name, n]) => `${name} ${percent(n, whole)}`).join(", ");
	const tiles = [];
	const frames = [];
	const outer = squarify(sums.map((x) => scale(x[1])), [0, 0, WIDTH, HEIGHT]);
	for (const [i, [, , list]] of sums.entries()) {
		const inner = squarify(list.map((x) => scale(x.size)), outer[i]);
		for (const [j, x] of list.entries()) tiles.push(tile(x, inner[j], whole, unit));
		const [x, y, width, height] = outer[i];
		if (list[0].place !== undefined) frames.push(rect(x + 1, y + 1, Math.max(width - 2, 0), Math.max(height - 2, 0), "frame thick"));
	}
	addRovingFocus(tiles);
	const picture = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": `${title}: ${summary}` }, ...tiles, ...frames);
	const labelOf = (x) => x.label ?? x.name;
	const parts = items.flatMap((x) => (x.inside ?? [[x.group, x.size]]).map(([group, n]) => [labelOf(x), n, group])).filter((x) => x[1]);
	const groupTotal = (x) => sum(x[1].map((y) => y[1]));
	const sorted = [...Map.groupBy(parts, (x) => x[2])].toSorted((a, b) => (groupTotal(a) < groupTotal(b) ? 1 : -1));
	const legend = sorted.map(([group, list]) => {
		const name = group === "other" ? "layers" : group;
		return h("li", h(`span.key.${group}`), `${name} `, shareButton(name, list, whole, unit));
	});
	const places = sums.filter(([, , list]) => list[0].place !== undefined).map(([name, , list]) => h("li", focusButton(name, focus(list[0])), " ", shareButton(name, list.map((x) => [labelOf(x), x.size]), whole, unit)));
	return h("figure.map", picture, h("ul.legend", legend), places.length && h("ul.legend", { "aria-label": "kinds of layers" }, places));
}

const focusButton = (name, open) => (open ? button(name, open, { class: "number name", title: "show one block" }) : h("span.name", name));

// The slices of a tile by kind of weight.
function slices(parts, [x, y, width, height]) {
	const whole = sum(parts.map((x) => x[1]));
	let top = y;
	return parts.map(([group, n]) => {
		const sliceHeight = (height * Number((n * 10n ** 9n) / whole)) / 10 ** 9;
		top += sliceHeight;
		return rect(x, top - sliceHeight, width, sliceHeight, group);
	});
}

function tile(x, box, whole, unit) {
	const [left, top, width, height] = box;
	const inset = [left + 1, top + 1, Math.max(width - 2, 0.3), Math.max(height - 2, 0.3)];
	const description = `${x.label ?? x.name}: ${x.detail ? `${x.detail}, ` : ""}${grouped(x.size)} ${unit}, ${percent(x.size, whole)}`;
	const open = () => showDetails(() => [...x.details(), unit === "bytes" ? inBytes(x.size) : inShort(unit, x.size), shareFormula(x.name, x.size, whole)]);
	const lines = [x.name, x.detail, unit === "bytes" ? gibibytes(x.size) : shortCount(x.size)].filter(Boolean);
	return clickable(
		open,
		{ "aria-label": description },
		s("title", description),
		x.inside && slices(x.inside, inset),
		rect(...inset, x.inside ? "frame" : x.group),
		x.sign === "fewer" && rect(...inset, "hatched"),
		...label(inset, [`${x.sign === "fewer" ? "− " : x.sign === "more" ? "+ " : ""}${lines[0]}`, ...lines.slice(1)]),
	);
}

// The matrices of one block to a common scale: width is inputs, height is outputs.
export function matrices(title, rows, details) {
	const longest = Math.max(...rows.flatMap((x) => x.shape.map(Number)), 1);
	const scaled = (n) => Math.max((Number(n) * 200) / longest, 1.5);
	const figures = rows.map((x) => {
		const [outputs, inputs] = [x.shape[0], x.shape.length > 1 ? x.shape.slice(1).reduce((a, b) => String(BigInt(a) * BigInt(b))) : "1"];
		const [width, height] = [scaled(inputs), scaled(outputs)];
		const name = shortPath(x.path);
		const picture = s("svg", { width, height, role: "img", "aria-label": `${name}, ${x.shape.join(" by ")}` }, rect(0, 0, width, height, x.group));
		return h("li", picture, h("span.name", name), numberButton(shapeText(x), () => [`${name}: shape`, sideFormulas(x), x.copies !== "1" && formula("copies in a block", grouped(x.copies))]), details(x));
	});
	return h("ul.matrices", { "aria-label": title }, figures);
}
