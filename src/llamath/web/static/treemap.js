// Areas to scale: squarified (Bruls, Huizing, van Wijk 2000). Positions are floats, the numbers beside them are not.
import { gibibytes, grouped, percent, short, times } from "./forms.js";
import { button, h, rect, s, told, words } from "./dom.js";

// A path as short as it can be where one sees which layer is meant.
export const bare = (path) => path.replace("layers.{l}.", "").replace(/\.weight$/, "");

const WIDTH = 960;
const HEIGHT = 460;

function worst(row, side) {
	const whole = row.reduce((a, b) => a + b, 0);
	const [low, high] = [Math.min(...row), Math.max(...row)];
	return low > 0 ? Math.max((side * side * high) / whole ** 2, whole ** 2 / (side * side * low)) : Infinity;
}

function squarified(sizes, [x, y, width, height]) {
	const whole = sizes.reduce((a, b) => a + b, 0);
	let areas = sizes.map((n) => (whole ? (n * width * height) / whole : 0));
	const boxes = [];
	while (areas.length) {
		const side = Math.min(width, height);
		let n = 1;
		while (n < areas.length && worst(areas.slice(0, n + 1), side) <= worst(areas.slice(0, n), side)) n += 1;
		const thick = side ? areas.slice(0, n).reduce((a, b) => a + b, 0) / side : 0;
		let at = 0;
		for (const area of areas.slice(0, n)) {
			const length = thick ? area / thick : 0;
			boxes.push(width >= height ? [x, y + at, thick, length] : [x + at, y, length, thick]);
			at += length;
		}
		if (width >= height) [x, width] = [x + thick, Math.max(width - thick, 0)];
		else [y, height] = [y + thick, Math.max(height - thick, 0)];
		areas = areas.slice(n);
	}
	return boxes;
}

function label(box, lines) {
	const [x, y, width, height] = box;
	const texts = [];
	for (const [i, line] of lines.entries()) {
		if ((i + 1) * 16 + 4 > height || line.length * 7.6 + 10 > width) break;
		texts.push(words(x + 6, y + 16 + 16 * i, line, i ? "small" : null));
	}
	return texts;
}

// Arrows go from tile to tile; one of them is in the order of Tab.
export function roving(tiles) {
	return (event) => {
		const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
		const at = tiles.indexOf(event.currentTarget);
		if (step !== undefined && tiles[at + step]) {
			event.preventDefault();
			event.currentTarget.setAttribute("tabindex", "-1");
			tiles[at + step].setAttribute("tabindex", "0");
			tiles[at + step].focus();
		}
	};
}

export function pressed(open) {
	return (event) => {
		if (event.key !== "Enter" && event.key !== " ") return;
		event.preventDefault();
		open(event);
	};
}

// items: {name, group, place, detail, size: bigint, sign, tell}; those of one place lie together, without places those of one group.
export function treemap(title, items, unit, focus = () => undefined) {
	const whole = items.reduce((a, x) => a + x.size, 0n);
	const scale = (n) => (whole ? Number((n * 10n ** 12n) / whole) : 0);
	const groups = new Map();
	for (const x of items.filter((y) => y.size > 0n)) groups.set(x.place ?? x.group, [...(groups.get(x.place ?? x.group) ?? []), x]);
	const sums = [...groups].map(([name, list]) => [name, list.reduce((a, x) => a + x.size, 0n), list.toSorted((a, b) => (a.size < b.size ? 1 : a.size > b.size ? -1 : 0))]);
	sums.sort((a, b) => (a[1] < b[1] ? 1 : -1));
	const spoken = sums.map(([name, n]) => `${name} ${percent(n, whole)}`).join(", ");
	const tiles = [];
	const frames = [];
	const turn = roving(tiles);
	const outer = squarified(sums.map((x) => scale(x[1])), [0, 0, WIDTH, HEIGHT]);
	for (const [i, [, , list]] of sums.entries()) {
		const inner = squarified(list.map((x) => scale(x.size)), outer[i]);
		for (const [j, x] of list.entries()) tiles.push(tile(x, inner[j], whole, unit));
		const [x, y, width, height] = outer[i];
		if (list[0].place !== undefined) frames.push(rect(x + 1, y + 1, Math.max(width - 2, 0), Math.max(height - 2, 0), "frame thick"));
	}
	tiles[0]?.setAttribute("tabindex", "0");
	for (const x of tiles) x.addEventListener("keydown", turn);
	const picture = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": `${title}: ${spoken}` }, ...tiles, ...frames);
	const colours = new Map();
	for (const x of items) for (const [group, n] of x.inside ?? [[x.group, x.size]]) colours.set(group, (colours.get(group) ?? 0n) + n);
	const sorted = [...colours].filter(([, n]) => n > 0n).toSorted((a, b) => (a[1] < b[1] ? 1 : -1));
	const legend = sorted.map(([name, n]) => h("li", h("span", { class: `key ${name}` }), `${name === "other" ? "layers" : name} ${percent(n, whole)}`));
	const places = sums.filter(([, , list]) => list[0].place !== undefined).map(([name, n, list]) => h("li", looked(name, focus(list[0])), ` ${percent(n, whole)}`));
	return h("figure", { class: "map" }, picture, h("ul", { class: "legend" }, legend), places.length && h("ul", { class: "legend", "aria-label": "kinds of layers" }, places));
}

const looked = (name, open) => (open ? button(name, open, { class: "number", title: "look at one block" }) : name);

// What a tile is made of, as slices of it.
function slices(parts, [x, y, width, height]) {
	const whole = parts.reduce((a, [, n]) => a + n, 0n);
	let top = y;
	return parts.map(([group, n]) => {
		const high = (height * Number((n * 10n ** 9n) / whole)) / 10 ** 9;
		top += high;
		return rect(x, top - high, width, high, group);
	});
}

function tile(x, box, whole, unit) {
	const [left, top, width, height] = box;
	const inset = [left + 1, top + 1, Math.max(width - 2, 0.3), Math.max(height - 2, 0.3)];
	const said = `${x.said ?? x.name}: ${x.detail ? `${x.detail}, ` : ""}${grouped(x.size)} ${unit}, ${percent(x.size, whole)}`;
	const open = () => told(x.tell);
	const lines = [x.name, x.detail, unit === "bytes" ? gibibytes(x.size) : short(x.size)].filter(Boolean);
	return s(
		"g",
		{ role: "button", tabindex: "-1", "aria-label": said, class: "tile", onclick: open, onkeydown: pressed(open) },
		s("title", said),
		x.inside && slices(x.inside, inset),
		rect(...inset, x.inside ? "frame" : x.group),
		x.sign === "fewer" && rect(...inset, "hatched"),
		...label(inset, [`${x.sign === "fewer" ? "− " : x.sign === "more" ? "+ " : ""}${lines[0]}`, ...lines.slice(1)]),
	);
}

// The matrices of one block, each to the same scale: as wide as it reads, as high as it writes.
export function matrices(title, rows, tell) {
	const longest = Math.max(...rows.flatMap((x) => x.shape.map(Number)), 1);
	const side = (n) => Math.max((Number(n) * 200) / longest, 1.5);
	const figures = rows.map((x) => {
		const [out, into] = [x.shape[0], x.shape.length > 1 ? x.shape.slice(1).reduce((a, b) => String(BigInt(a) * BigInt(b))) : "1"];
		const [width, height] = [side(into), side(out)];
		const name = bare(x.path);
		const many = times(x.copies);
		const drawn = s("svg", { width, height, role: "img", "aria-label": `${name}, ${x.shape.join(" by ")}` }, rect(0, 0, width, height, x.group));
		return h("li", drawn, h("span", { class: "name" }, name), h("span", `${x.dims.join("×")} = ${x.shape.join("×")}${many}`), tell(x));
	});
	return h("ul", { class: "matrices", "aria-label": title }, figures);
}
