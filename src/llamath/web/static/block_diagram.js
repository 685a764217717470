// The block diagram as SVG: steps as boxes with their weights, edges with shapes. Labels that depend on sliders are updated in place.
import { short, value, written } from "./forms.js";
import { clickable, rect, addRovingFocus, s, showDetails, svgText } from "./dom.js";

const BOX = 58;
const ROUND = 14;
const [LEFT, RIGHT, STUB] = [44, 36, 28];
const [NARROWEST, WIDEST] = [150, 250];

const round = (x) => x.kind === undefined || x.kind === "add";

// Lay out the steps: parallel branches side by side where the width allows it, otherwise in one column. Returns
// {size, nodes: [{step, x, y, wide, label, room}], lines: [{points, tip, sideways}]}
function placed(stage, room) {
	const all = [...stage.inputs, ...stage.steps];
	const lane = Math.min(Math.floor((room - LEFT - RIGHT) / stage.lanes), WIDEST);
	if (lane < NARROWEST) {
		const { left, y, lines, height } = stage.under;
		const wide = Math.min(room - left - 12, 420);
		const nodes = all.map((step, i) => ({ step, x: left + (round(step) ? STUB : wide / 2), y: y[i], wide, label: left + STUB + 8, room: wide - 40 }));
		return { size: [left + wide + 12, height], nodes, lines };
	}
	const across = (i) => (i < 0 ? 12 : LEFT + (i + 0.5) * lane);
	const at = ([i, off, y]) => [across(i) + off, y];
	const last = stage.lanes - 1;
	const nodes = all.map((step, i) => ({ step, x: across(step.lane), y: stage.columns.y[i], wide: lane - 22, label: across(step.lane) + 8, room: step.lane === last ? lane / 2 + RIGHT - 10 : lane - 20 }));
	const lines = stage.columns.lines.map((x) => ({ points: x.points.map(at), tip: at(x.tip), sideways: x.sideways }));
	return { size: [LEFT + stage.lanes * lane + RIGHT, stage.columns.height], nodes, lines };
}

const [LARGE, SMALL] = [8.4, 6.8];

export const shapeLabel = (forms, look) => `[${forms.map((x) => (look.letters ? written(x, look.variables, true) : String(value(x, look.variables)))).join(", ")}]`;

function cut(text, room, each) {
	const most = Math.floor(room / each);
	return text.length > most ? `${text.slice(0, Math.max(most - 1, 1))}…` : text;
}

function wrapped(text, room, rows) {
	const most = Math.floor(room / SMALL);
	const lines = [""];
	for (const word of text.split(" ")) {
		const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
		if (longer.length <= most || lines.length === rows) lines[lines.length - 1] = longer;
		else lines.push(word);
	}
	return lines.map((x) => cut(x, room, SMALL));
}

function weights(step, letters) {
	const parts = step.uses.map((x) => {
		const many = x.copies === "1" ? "" : `${x.copies} × `;
		return step.uses.length > 1 && x.path.endsWith("bias") ? "b" : `${many}[${(letters ? x.dims : x.shape).join(", ")}]`;
	});
	return parts.join(", ") + (step.uses.some((x) => x.tied) ? ", tied" : "");
}

// Set the text of a node; compress text that is wider than the space.
function fitted(node, text, room, each = SMALL) {
	if (node.textContent === text) return node;
	node.textContent = text;
	const long = text.length * each > room;
	for (const [name, x] of [["textLength", room], ["lengthAdjust", "spacingAndGlyphs"]]) if (long) node.setAttribute(name, x);
		else node.removeAttribute(name);
	return node;
}

function box(node, live) {
	const { step, x, y, wide } = node;
	const [left, top, room] = [x - wide / 2, y - BOX / 2, wide - 16];
	const plate = (by) => rect(left + by, top - by, wide, BOX, `${step.color} edge`);
	const stack = step.name.includes("{e}") ? [plate(8), plate(4)] : [];
	const name = step.name.replace(".{e}", "") + (step.kind === "rope" ? " ↻" : "");
	const texts = [fitted(svgText(left + 8, top + 18, "", "strong"), name, room, LARGE)];
	const lines = wrapped(step.does, room, step.uses.length ? 1 : 2);
	if (step.uses.length) {
		const label = svgText(left + 8, top + 34, "");
		live.push((look) => fitted(label, `${weights(step, look.letters)}: ${short(BigInt(step.parameters))}`, room));
		texts.push(label);
	}
	for (const [i, line] of lines.entries()) texts.push(svgText(left + 8, top + (step.uses.length ? 49 : 34) + 15 * i, line, "small does"));
	return [...stack, plate(0), ...texts];
}

function ring(node, text) {
	const { step, x, y, wide } = node;
	const lines = wrapped(step.does ?? step.says, wide / 2 + 2, 2);
	const texts = lines.map((line, i) => svgText(x + ROUND + 7, y + 4 + 14 * i - 7 * (lines.length - 1), line, "small does"));
	return [s("circle.ring", { cx: x, cy: y, r: ROUND }), svgText(x, y + 5, text, "middle strong"), ...texts];
}

const SPOKEN = { rope: "rotary", norm: "norm", add: "sum" };

function spoken(step, look) {
	const kind = SPOKEN[step.kind] ? `${SPOKEN[step.kind]}, ` : "";
	return `${step.name}: ${kind}${step.does}; gives ${shapeLabel(step.shape, look)}${step.uses.length ? `; weights ${weights(step, look.letters)}` : "; no weights"}`;
}

function node(one, live, tell, stream) {
	const { step, y } = one;
	const input = step.kind === undefined;
	const label = svgText(one.label, y + (round(step) ? ROUND : BOX / 2) + 15, "", "small faint shape");
	const forms = input ? (step.name === "x" ? stream : null) : step.shape;
	if (forms) live.push((look) => fitted(label, shapeLabel(forms, look), one.room));
	const inside = round(step) ? ring(one, input ? (step.name === "x" ? "x" : "e") : "+") : box(one, live);
	if (input && !forms) return s("g", ...inside, label);
	const title = s("title");
	const group = clickable(() => showDetails(() => tell(input ? { ...step, shape: forms } : step)), { "data-step": input ? null : step.name }, title, ...inside, label);
	live.push((look) => {
		const label = input ? `x: ${step.says}, ${shapeLabel(forms, look)}` : spoken(step, look);
		group.setAttribute("aria-label", label);
		title.textContent = label;
	});
	return group;
}

function line({ points, tip: [x, y], sideways }) {
	const ends = sideways ? [[x, y], [x - 7, y - 4], [x - 7, y + 4]] : [[x, y], [x - 4, y - 7], [x + 4, y - 7]];
	const text = (list) => list.map((p) => p.join(",")).join(" ");
	return [s("polyline.wire", { points: text(points) }), s("polygon.tip", { points: text(ends) })];
}

export function blockDiagram(stage, room, tell) {
	const plan = placed(stage, room);
	const live = [];
	const nodes = plan.nodes.map((x) => node(x, live, tell, stage.stream));
	const tiles = nodes.filter((x) => x.hasAttribute("role"));
	addRovingFocus(tiles);
	const [width, height] = plan.size;
	const label = `${stage.name}, ${stage.steps.length} steps from ${stage.steps[0]?.name} to ${stage.steps.at(-1)?.name}`;
	const picture = s("svg.diagram", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label }, ...plan.lines.flatMap(line), ...nodes);
	const renew = (look) => live.forEach((x) => x(look));
	return { picture, renew };
}
