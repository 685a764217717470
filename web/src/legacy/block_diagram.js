// The block diagram as SVG: steps as boxes with their weights, edges with shapes. Labels that depend on sliders are updated in place.
import { shortCount, value, notation } from "./expressions.js";
import { clickable, rect, addRovingFocus, s, showDetails, svgText } from "./dom.js";

const BOX = 58;
const ROUND = 14;
const [LEFT, RIGHT, STUB] = [44, 36, 28];
const [NARROWEST, WIDEST] = [150, 250];

const isRound = (x) => x.kind === undefined || x.kind === "add";

// Lay out the steps: parallel branches side by side where the width allows it, otherwise in one column. Returns
// {size, nodes: [{step, x, y, wide, label, room}], lines: [{points, tip, sideways}]}
function layOut(stage, room) {
	const steps = [...stage.inputs, ...stage.steps];
	const lane = Math.min(Math.floor((room - LEFT - RIGHT) / stage.lanes), WIDEST);
	if (lane < NARROWEST) {
		const { left, y, lines, height } = stage.under;
		const boxWidth = Math.min(room - left - 12, 420);
		const nodes = steps.map((step, i) => ({ step, x: left + (isRound(step) ? STUB : boxWidth / 2), y: y[i], width: boxWidth, label: left + STUB + 8, room: boxWidth - 40 }));
		return { size: [left + boxWidth + 12, height], nodes, lines };
	}
	const across = (i) => (i < 0 ? 12 : LEFT + (i + 0.5) * lane);
	const at = ([i, off, y]) => [across(i) + off, y];
	const last = stage.lanes - 1;
	const nodes = steps.map((step, i) => ({ step, x: across(step.lane), y: stage.columns.y[i], width: lane - 22, label: across(step.lane) + 8, room: step.lane === last ? lane / 2 + RIGHT - 10 : lane - 20 }));
	const lines = stage.columns.lines.map((x) => ({ points: x.points.map(at), tip: at(x.tip), sideways: x.sideways }));
	return { size: [LEFT + stage.lanes * lane + RIGHT, stage.columns.height], nodes, lines };
}

const [LARGE, SMALL] = [8.4, 6.8];

export const shapeLabel = (forms, display) => `[${forms.map((x) => (display.letters ? notation(x, display.variables, true) : String(value(x, display.variables)))).join(", ")}]`;

function truncate(text, room, charWidth) {
	const maxChars = Math.floor(room / charWidth);
	return text.length > maxChars ? `${text.slice(0, Math.max(maxChars - 1, 1))}…` : text;
}

function wrapText(text, room, maxLines) {
	const maxChars = Math.floor(room / SMALL);
	const lines = [""];
	for (const word of text.split(" ")) {
		const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
		if (longer.length <= maxChars || lines.length === maxLines) lines[lines.length - 1] = longer;
		else lines.push(word);
	}
	return lines.map((x) => truncate(x, room, SMALL));
}

function weightText(step, letters) {
	const parts = step.uses.map((x) => {
		const many = x.copies === "1" ? "" : `${x.copies} × `;
		return step.uses.length > 1 && x.path.endsWith("bias") ? "b" : `${many}[${(letters ? x.dims : x.shape).join(", ")}]`;
	});
	return parts.join(", ") + (step.uses.some((x) => x.tied) ? ", tied" : "");
}

// Set the text of a node; compress text that is wider than the space.
function setText(node, text, room, charWidth = SMALL) {
	if (node.textContent === text) return node;
	node.textContent = text;
	const isTooLong = text.length * charWidth > room;
	for (const [name, x] of [["textLength", room], ["lengthAdjust", "spacingAndGlyphs"]]) if (isTooLong) node.setAttribute(name, x);
		else node.removeAttribute(name);
	return node;
}

function box(node, updaters) {
	const { step, x, y, width } = node;
	const [left, top, room] = [x - width / 2, y - BOX / 2, width - 16];
	const plate = (by) => rect(left + by, top - by, width, BOX, `${step.color} edge`);
	const stack = step.name.includes("{e}") ? [plate(8), plate(4)] : [];
	const name = step.name.replace(".{e}", "") + (step.kind === "rope" ? " ↻" : "");
	const texts = [setText(svgText(left + 8, top + 18, "", "strong"), name, room, LARGE)];
	const lines = wrapText(step.does, room, step.uses.length ? 1 : 2);
	if (step.uses.length) {
		const label = svgText(left + 8, top + 34, "");
		updaters.push((display) => setText(label, `${weightText(step, display.letters)}: ${shortCount(BigInt(step.parameters))}`, room));
		texts.push(label);
	}
	for (const [i, line] of lines.entries()) texts.push(svgText(left + 8, top + (step.uses.length ? 49 : 34) + 15 * i, line, "small does"));
	return [...stack, plate(0), ...texts];
}

function circle(node, text) {
	const { step, x, y, width } = node;
	const lines = wrapText(step.does ?? step.says, width / 2 + 2, 2);
	const texts = lines.map((line, i) => svgText(x + ROUND + 7, y + 4 + 14 * i - 7 * (lines.length - 1), line, "small does"));
	return [s("circle.ring", { cx: x, cy: y, r: ROUND }), svgText(x, y + 5, text, "middle strong"), ...texts];
}

const KIND_NAMES = { rope: "rotary", norm: "norm", add: "sum" };

function describeStep(step, display) {
	const kind = KIND_NAMES[step.kind] ? `${KIND_NAMES[step.kind]}, ` : "";
	return `${step.name}: ${kind}${step.does}; gives ${shapeLabel(step.shape, display)}${step.uses.length ? `; weights ${weightText(step, display.letters)}` : "; no weights"}`;
}

function node(placed, updaters, details, stream) {
	const { step, y } = placed;
	const input = step.kind === undefined;
	const label = svgText(placed.label, y + (isRound(step) ? ROUND : BOX / 2) + 15, "", "small faint shape");
	const forms = input ? (step.name === "x" ? stream : null) : step.shape;
	if (forms) updaters.push((display) => setText(label, shapeLabel(forms, display), placed.room));
	const shapes = isRound(step) ? circle(placed, input ? (step.name === "x" ? "x" : "e") : "+") : box(placed, updaters);
	if (input && !forms) return s("g", ...shapes, label);
	const title = s("title");
	const group = clickable(() => showDetails(() => details(input ? { ...step, shape: forms } : step)), { "data-step": input ? null : step.name }, title, ...shapes, label);
	updaters.push((display) => {
		const label = input ? `x: ${step.says}, ${shapeLabel(forms, display)}` : describeStep(step, display);
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

export function blockDiagram(stage, room, details) {
	const plan = layOut(stage, room);
	const updaters = [];
	const nodes = plan.nodes.map((x) => node(x, updaters, details, stage.stream));
	const tiles = nodes.filter((x) => x.hasAttribute("role"));
	addRovingFocus(tiles);
	const [width, height] = plan.size;
	const label = `${stage.name}, ${stage.steps.length} steps from ${stage.steps[0]?.name} to ${stage.steps.at(-1)?.name}`;
	const picture = s("svg.diagram", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label }, ...plan.lines.flatMap(line), ...nodes);
	const update = (display) => updaters.forEach((x) => x(display));
	return { picture, update };
}
