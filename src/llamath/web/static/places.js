// Where the steps of a block stand, of web/places.py: side by side where there is room for their lanes, else one under another.
export const BOX = 58;
export const ROUND = 14;
const [LEFT, RIGHT, STUB] = [44, 36, 28];
const [NARROWEST, WIDEST] = [150, 250];

export const round = (x) => x.kind === undefined || x.kind === "add";

// {size, nodes: [{step, x, y, wide, label, room}], lines: [{points, tip, sideways}]}
export function placed(stage, room) {
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
	const nodes = all.map((step, i) => ({ step, x: across(step.lane), y: stage.beside.y[i], wide: lane - 22, label: across(step.lane) + 8, room: step.lane === last ? lane / 2 + RIGHT - 10 : lane - 20 }));
	const lines = stage.beside.lines.map((x) => ({ points: x.points.map(at), tip: at(x.tip), sideways: x.sideways }));
	return { size: [LEFT + stage.lanes * lane + RIGHT, stage.beside.height], nodes, lines };
}
