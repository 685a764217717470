// Places the nodes of a layer: each branch composed of what is in series and in parallel, or, where
// it is not, in ranks; the branches along the residual stream, which runs straight.
import { composeBranch, END, type Specs } from "./compose";
import type { Branch, Contracted, Matrix, PlateNode } from "./contract";
import { notation } from "../../lib/expressions";
import {
	matrixText,
	measure,
	type LabelPlace,
	type MatrixText,
	type MeasureOptions,
	type Spec,
} from "./measure";
import { matrixShape } from "./plate_model";
import { rankBranch } from "./ranks";

export type Point = readonly [x: number, y: number];

export interface Placed extends Spec {
	x: number;
	y: number;
}

export interface Wire {
	from: string;
	to: string;
	/** A line through these points, smooth between them. */
	points: Point[];
	/** Of a layout that is drawn. */
	samples: Point[];
	/** Whether it leaves and enters downwards. */
	isDown: boolean;
	straight: boolean;
	hasArrow: boolean;
	/** Where it crosses an earlier wire. */
	bridges: Point[][];
	isStream?: boolean;
	label?: WireLabel;
}

export interface WireLabel {
	lines: string[];
	at: Point;
	anchor: "start" | "middle";
}

export interface StreamNode {
	name: string;
	x: number;
	y: number;
}

export interface LayerLayout {
	width: number;
	height: number;
	scale: number;
	nodes: Placed[];
	wires: Wire[];
	/** The residual stream: its line, and the points at which branches return to it. */
	stream: { line: Point[]; nodes: StreamNode[] } | null;
	isVertical: boolean;
}

type Mode = "across" | "rows" | "tight rows" | "narrow rows" | "columns" | "down";
/** Whether branches flow downwards. */
const isDownward = (mode: Mode) => mode === "columns" || mode === "down";
const SIZES = [280, 260, 240, 220, 200, 180, 165, 150, 135, 120, 105, 90, 75, 60, 48];
/**
 * The arrangements in order of preference, with the largest and smallest size of the largest matrix
 * in pixels, and how many groups of lanes may stand below each other.
 */
const MODES: typeof PHONE_MODES = [
	["across", 280, 75],
	["rows", 280, 60],
	["tight rows", 165, 48],
	["narrow rows", 165, 48],
	["columns", 135, 48],
	["down", 135, 48],
];
const PHONE_MODES: [Mode, number, number, stacks?: number][] = [
	["columns", 165, 48],
	["down", 165, 48],
	["down", 165, 48, 1],
	["down", 165, 48, 2],
	["down", 165, 48, 3],
];
/** Rows are made smaller down to this size until they are not higher than this. */
const [LEAST_ROW, ROWS_HEIGHT] = [48, 480];
/** The height of rows of layers beside each other, whose matrices are small otherwise. */
const COMPACT_HEIGHT = 640;
/** The height of branches beside each other. */
const ACROSS_HEIGHT = 480;
/** Gaps along rows grow up to this, where they do not fill the width. */
const WIDEST_GAP = 52;
const PAD = 12;
const STREAM_X = 16;
const STREAM_Y = 32;
/** The room beside a vertical stream, in which branches return to it. */
const SIDE = 24;

export interface BranchLayout {
	nodes: Placed[];
	wires: { from: string; to: string; points: Point[]; label?: WireLabel }[];
	ins: Map<string, Point>;
	outs: Map<string, Point>;
	width: number;
	height: number;
}

/** What passes beside other parts from one to another. */
function laneLabel(from: PlateNode, to: PlateNode, letters: boolean): string {
	if (from.kind === "experts" && to.kind === "sum") return "weights";
	if (from.kind !== "cache" || to.kind !== "heads") return "";
	const parts = notation(from.steps[0]!.shape.at(-1)!, {}, letters).split(" + ");
	return parts.length > 1 ? `${parts.at(-1)} of k, RoPE` : "";
}

/** The edges of what is drawn, without the room for labels. */
function leftOf(node: Placed): number {
	const box = node.boxes[0] ?? node.bar ?? node.panel ?? node.cells;
	return (
		node.x +
		(node.experts
			? node.experts.x
			: node.circle && !node.boxes.length
				? node.circle.x - 12
				: box
					? box.x
					: 0) -
		1
	);
}
export function rightOf(node: Placed): number {
	if (node.circle && !(node.boxes.length && node.circle.x < node.boxes.at(-1)!.x))
		return node.x + node.circle.x + 12;
	if (node.experts) return node.x + node.w - node.experts.x;
	const box = node.boxes.at(-1) ?? node.bar ?? node.panel ?? node.cells;
	return (
		node.x +
		(box
			? box.x + box.w + ("sheets" in box ? (box as { sheets: number }).sheets * 4 : 0)
			: node.w)
	);
}

export type LayerOptions = Omit<
	MeasureOptions,
	"scale" | "isNarrow" | "isTight" | "isDown" | "isRow" | "labels" | "textOf"
>;

/**
 * The largest picture that fits: beside each other along a horizontal stream, else below each other
 * along a vertical one.
 */
export const layoutLayer = (
	contracted: Contracted,
	options: LayerOptions,
	available: number,
	isPhone: boolean,
): LayerLayout => layoutLayers([[contracted, options]], available, isPhone)[0]!;

/**
 * The largest pictures of several layers in one scale and arrangement, each of which fits; empty if
 * `isCompact` and only a column of nodes would fit.
 */
export function layoutLayers(
	layers: readonly [Contracted, LayerOptions][],
	available: number,
	isPhone: boolean,
	isCompact = false,
): LayerLayout[] {
	const largest = Math.max(
		1,
		...layers.flatMap(([x]) =>
			x.branches.flatMap((b) =>
				b.nodes.flatMap((y) =>
					y.matrices.flatMap((m) => matrixShape(m.use.shape).map(Number)),
				),
			),
		),
	);
	const gapsOf = (mode: Mode, size: number): [number, number] =>
		isDownward(mode)
			? size < 90
				? [4, 26]
				: [12, 30]
			: mode === "narrow rows"
				? [6, 10]
				: mode === "tight rows"
					? [size > LEAST_ROW ? 8 : 4, 14]
					: mode === "rows"
						? [8, 16]
						: size < 180
							? [10, 14]
							: [14, 26];
	const texts = new Map<Matrix, MatrixText>();
	const textOf = (options: LayerOptions) => (matrix: Matrix) => {
		let found = texts.get(matrix);
		if (!found) texts.set(matrix, (found = matrixText(matrix, options)));
		return found;
	};
	const optionsAt = (options: LayerOptions, mode: Mode, size: number): MeasureOptions => ({
		...options,
		textOf: textOf(options),
		scale: size / largest,
		isNarrow: isPhone || mode === "narrow rows",
		isTight: mode === "tight rows" || mode === "narrow rows",
		isDown: isDownward(mode),
		isRow: mode === "rows",
		labels: "below",
	});
	const fits = (all: LayerLayout[], mode: Mode) =>
		all.every((x) => x.width <= available && (mode !== "across" || x.height <= ACROSS_HEIGHT));
	let best: LayerLayout[] = [];
	for (const [mode, most, least, stacks = 0] of isPhone ? PHONE_MODES : MODES) {
		if (isCompact && isDownward(mode)) return [];
		const lay = (size: number) =>
			layers.map(([contracted, options]) =>
				assemble(
					contracted,
					optionsAt(options, mode, size),
					mode,
					gapsOf(mode, size),
					available,
					stacks,
				),
			);
		const heightOf = (all: LayerLayout[]) => Math.max(...all.map((x) => x.height));
		const mayFit = (size: number) =>
			layers.every(
				([contracted, options]) =>
					leastWidth(
						contracted,
						optionsAt(options, mode, size),
						mode,
						gapsOf(mode, size)[1],
					) <= available,
			);
		const sizes = SIZES.filter((x) => x <= most && x >= least);
		// the layout takes long: it is tried first at the largest size at which the nodes
		// themselves fit
		if (mode === "columns" && layers.some(([x]) => !x.stream)) continue;
		if (mode !== "down" && !mayFit(sizes.at(-1)!)) continue;
		let [from, to] = [firstOf(sizes, mayFit), sizes.length - 1];
		best = lay(sizes[from]!);
		if (!fits(best, mode) && from < to) {
			best = lay(sizes[to]!);
			from += 1;
		} else to = from;
		if (!fits(best, mode)) {
			if (isCompact) best = [];
			continue;
		}
		firstOf(sizes.slice(from, to), (size) => {
			const found = lay(size);
			const isFitting = fits(found, mode);
			if (isFitting) best = found;
			return isFitting;
		});
		// smaller, where it is higher than a screen
		const highest = isCompact ? COMPACT_HEIGHT : ROWS_HEIGHT;
		if (/rows/.test(mode) && heightOf(best) > highest) {
			const smaller = SIZES.filter((x) => x < best[0]!.scale * largest && x >= LEAST_ROW);
			firstOf(smaller, (size) => {
				const found = lay(size);
				const isLow = heightOf(found) <= highest;
				if (fits(found, mode) && (isLow || heightOf(found) < heightOf(best))) best = found;
				return isLow;
			});
		}
		return best.map((x) => spread(withBridges(x), available));
	}
	return best.map(withBridges);
}

/** The place of the largest size that fits, by bisection; the last one where no other does. */
function firstOf(sizes: readonly number[], fits: (size: number) => boolean): number {
	let [from, to] = [0, sizes.length];
	while (from < to) {
		const middle = Math.floor((from + to) / 2);
		if (fits(sizes[middle]!)) to = middle;
		else from = middle + 1;
	}
	return Math.min(from, sizes.length - 1);
}

/** A width below which no layout is: that of the longest chains of nodes. */
function leastWidth(
	{ stream, branches }: Contracted,
	options: MeasureOptions,
	mode: Mode,
	gap: number,
): number {
	const chains = branches.map(({ nodes, edges }) => {
		const widths = new Map(nodes.map((x) => [x.id, measure(x, options).w]));
		if (isDownward(mode)) return Math.max(0, ...widths.values());
		const known = new Map<string, number>();
		const from = (id: string): number => {
			if (!widths.has(id)) return END;
			if (!known.has(id)) {
				known.set(id, 0);
				known.set(
					id,
					widths.get(id)! +
						Math.max(
							0,
							...edges.filter((x) => x[0] === id).map((x) => gap + from(x[1])),
						),
				);
			}
			return known.get(id)!;
		};
		return Math.max(
			...nodes.map(
				(x) =>
					from(x.id) +
					(edges.some(([a, b]) => b === x.id && !widths.has(a)) ? END + gap : 0),
			),
		);
	});
	return stream && (mode === "across" || mode === "columns")
		? chains.reduce((sum, x) => sum + PAD + x, 0)
		: Math.max(0, ...chains) + (stream ? STREAM_X : PAD);
}

/** Spends the width that is left on the stream. */
function spread(layout: LayerLayout, available: number): LayerLayout {
	if (layout.stream && !layout.isVertical) {
		const rest = available - layout.width;
		const shift = Math.floor(rest / 2);
		for (const node of layout.nodes) node.x += shift;
		for (const wire of layout.wires) {
			const move = (p: Point): Point => [p[0] + shift, p[1]];
			wire.points = wire.points.map(move);
			wire.samples = wire.samples.map(move);
			wire.bridges = wire.bridges.map((x) => x.map(move));
			if (wire.label) wire.label = { ...wire.label, at: move(wire.label.at) };
		}
		layout.stream.nodes = layout.stream.nodes.map((x) => ({ ...x, x: x.x + shift }));
		layout.stream.line = [
			[0, STREAM_Y],
			[available, STREAM_Y],
		];
	}
	return { ...layout, width: Math.max(layout.width, available) };
}

/** The branch with labels beside those matrices where that saves height and there is the width. */
function layBranch(
	branch: Branch,
	stream: Set<string>,
	mode: Mode,
	options: MeasureOptions,
	gaps: [number, number],
	room: number,
	stacks: number,
): BranchLayout {
	const { nodes } = branch;
	const isDown = isDownward(mode);
	const edgesOf = (x: Placed) => ({ left: leftOf(x), right: rightOf(x) });
	const composedWith = (gap: number) =>
		composeBranch(
			branch,
			stream,
			isDown,
			[gaps[0], gap],
			(from, to) => laneLabel(from, to, options.letters),
			mode === "narrow rows",
			edgesOf,
			[room, stacks],
		) ?? rankBranch(branch, stream, isDown, [gaps[0], gap], edgesOf);
	const composition = composedWith(gaps[1]);
	let specs: Specs = new Map(nodes.map((x) => [x.id, measure(x, options)]));
	if (!mode.endsWith("rows")) return composition.lay(specs);
	let best = composition.sizeOf(specs);
	const matrices = nodes.filter((x) => x.kind === "matrix");
	const measureIn = (place: LabelPlace) =>
		new Map(matrices.map((x) => [x.id, measure(x, { ...options, labels: place })]));
	const tryWith = (changed: Iterable<readonly [string, Spec]>) => {
		const tried = new Map([...specs, ...changed]);
		const size = composition.sizeOf(tried);
		const isCheap = size.width === best.width && size.height <= best.height;
		if (isCheap || (size.width <= room && size.height < best.height))
			[best, specs] = [size, tried];
	};
	const places = [measureIn("beside"), measureIn("in line"), measureIn("over")];
	for (const x of [places[0]!, places[2]!]) tryWith(x);
	for (const { id } of matrices) for (const x of places) tryWith([[id, x.get(id)!]]);
	let widest = composition;
	for (let gap = gaps[1] + 4; gap <= WIDEST_GAP; gap += 4) {
		const wider = composedWith(gap);
		if (wider.sizeOf(specs).width > room) break;
		widest = wider;
	}
	return widest.lay(specs);
}

function assemble(
	{ stream, branches }: Contracted,
	options: MeasureOptions,
	mode: Mode,
	gaps: [number, number],
	available: number,
	stacks: number,
): LayerLayout {
	const streamSet = new Set(stream ?? []);
	const [beside, after] = mode === "narrow rows" ? [18, 4] : [SIDE, 12];
	const room = available - STREAM_X - beside - after - 6;
	const laid = branches.map((x) => layBranch(x, streamSet, mode, options, gaps, room, stacks));
	const nodes: Placed[] = [];
	const wires: Wire[] = [];
	const add = (branch: BranchLayout, dx: number, dy: number) => {
		for (const x of branch.nodes) nodes.push({ ...x, x: x.x + dx, y: x.y + dy });
		for (const x of branch.wires)
			wires.push(
				wire(
					x.from,
					x.to,
					x.points.map(([a, b]): Point => [a + dx, b + dy]),
					isDownward(mode),
					false,
					!streamSet.has(x.to),
					x.label && { ...x.label, at: [x.label.at[0] + dx, x.label.at[1] + dy] },
				),
			);
	};
	if (!stream) {
		const [branch] = laid;
		add(branch!, PAD, PAD);
		return {
			width: branch!.width + 2 * PAD,
			height: branch!.height + 2 * PAD,
			scale: options.scale,
			nodes,
			wires,
			stream: null,
			isVertical: mode === "down",
		};
	}
	const at = new Map<string, number>();
	const streamNodes: StreamNode[] = [];
	if (mode === "across" || mode === "columns") {
		let x = 0;
		const top = STREAM_Y + (mode === "columns" ? 20 : 40);
		let bottom = 0;
		const exits: [string, string, Point][] = [];
		const under: [string, string, Point[]][] = [];
		for (const [i, branch] of laid.entries()) {
			const dx = Math.max(x + PAD, (at.get(stream[branches[i]!.entry]!) ?? 0) + PAD);
			add(branch, dx, top);
			for (const [name, [px, py]] of branch.ins)
				wires.push(
					wire(
						name,
						"",
						[
							[px + dx, STREAM_Y],
							[px + dx, py + top],
						],
						false,
						true,
					),
				);
			let right = dx + branch.width + (mode === "columns" ? 2 : 0);
			for (const [name, [px, py]] of branch.outs) {
				if (mode === "columns") {
					// from the lower end along the right side up to the stream
					right += 10;
					const down = top + branch.height + 4;
					under.push([
						name,
						branchEnd(branch, name),
						[
							[px + dx, py + top],
							[px + dx, down],
							[right, down],
						],
					]);
				} else exits.push([name, branchEnd(branch, name), [px + dx, py + top]]);
				at.set(name, Math.max(at.get(name) ?? 0, mode === "columns" ? right : px + dx));
			}
			x = right;
			bottom = Math.max(bottom, top + branch.height);
		}
		// a branch that reads an earlier point of the stream keeps later points to its right
		for (const [i, branch] of laid.entries()) {
			const right = Math.max(
				0,
				...[...branch.ins.values()].map((p) => p[0] + offsetOf(nodes, branch)),
			);
			for (const name of stream.slice(branches[i]!.entry + 1))
				if (at.has(name)) at.set(name, Math.max(at.get(name)!, right + 28));
		}
		let previous = 0;
		for (const name of stream.slice(1)) {
			previous = Math.max(at.get(name) ?? previous + 40, previous + 34);
			streamNodes.push({ name, x: previous, y: STREAM_Y });
			at.set(name, previous);
		}
		exits.forEach(([name, from, [px, py]], i) => {
			const target = at.get(name)!;
			const channel = STREAM_Y + 22 + (i % 2) * 8;
			const points: Point[] =
				target - px < 1
					? [
							[px, py],
							[px, STREAM_Y + 12],
						]
					: [
							[px, py],
							[px, channel],
							[target, channel],
							[target, STREAM_Y + 12],
						];
			wires.push(wire(from, name, points, false, true));
		});
		for (const [name, from, points] of under) {
			const target: Point = [at.get(name)!, STREAM_Y + 12];
			const corner: Point = [target[0], points.at(-1)![1]];
			wires.push(wire(from, name, [...points.slice(0, -1), corner, target], false, true));
		}
		const width = Math.max(x, previous) + PAD + 8;
		return {
			width,
			height: bottom + PAD,
			scale: options.scale,
			nodes,
			wires,
			stream: {
				line: [
					[0, STREAM_Y],
					[width, STREAM_Y],
				],
				nodes: streamNodes,
			},
			isVertical: false,
		};
	}
	const left = STREAM_X + (mode === "down" ? 22 : beside);
	let [y, width] = [mode === "down" ? 14 : 0, 0];
	const taps: [string, Point][] = [];
	const returns: [string, string, Point, number][] = [];
	const over = mode === "down" ? 20 : 8;
	for (const branch of laid) {
		add(branch, left, y + over);
		for (const [name, [px, py]] of branch.ins) {
			const tap = mode === "down" ? y + 4 : py + y + over;
			taps.push([name, [px + left, tap]]);
			wires.push(
				wire(
					name,
					"",
					mode === "down"
						? [
								[STREAM_X, tap],
								[px + left, tap],
								[px + left, py + y + over],
							]
						: [
								[STREAM_X, tap],
								[px + left, py + y + over],
							],
					false,
					true,
				),
			);
		}
		const bottom = y + over + branch.height;
		let k = 0;
		for (const [name, [px, py]] of branch.outs)
			returns.push([
				name,
				branchEnd(branch, name),
				[px + left, py + y + over],
				bottom + (mode === "down" ? 14 : 8) + 16 * k++,
			]);
		width = Math.max(width, left + branch.width + (mode === "down" ? 0 : after));
		y = bottom + (mode === "down" ? 34 : 22) + 16 * Math.max(0, k - 1);
	}
	let previous = 0;
	const lastTap = new Map<string, number>();
	for (const [name, [, tap]] of taps) lastTap.set(name, Math.max(lastTap.get(name) ?? 0, tap));
	for (const [i, name] of stream.slice(1).entries()) {
		const own = Math.max(0, ...returns.filter((x) => x[0] === name).map((x) => x[3]));
		const afterTaps =
			Math.max(0, ...stream.slice(0, i + 1).map((x) => lastTap.get(x) ?? 0)) + 24;
		previous = Math.max(own, previous + 34, own && own >= afterTaps ? 0 : afterTaps);
		streamNodes.push({ name, x: STREAM_X, y: previous });
		at.set(name, previous);
	}
	returns.forEach(([name, from, [px, py], own], i) => {
		const target = at.get(name)!;
		const side = left - 8 - (i % 2) * 5;
		const points: Point[] =
			Math.abs(target - own) < 1
				? [
						[px, py],
						[px, own],
						[STREAM_X + 12, own],
					]
				: [
						[px, py],
						[px, own],
						[side, own],
						[side, target],
						[STREAM_X + 12, target],
					];
		wires.push(wire(from, name, points, false, true));
	});
	const height = Math.max(y, previous + 24);
	return {
		width: width + 6,
		height,
		scale: options.scale,
		nodes,
		wires,
		stream: {
			line: [
				[STREAM_X, 0],
				[STREAM_X, height],
			],
			nodes: streamNodes,
		},
		isVertical: true,
	};
}

/** The node before the point at which a branch ends. */
const branchEnd = (branch: BranchLayout, name: string): string =>
	branch.wires.find((x) => x.to === name)?.from ?? "";
const offsetOf = (nodes: Placed[], branch: BranchLayout): number => {
	const first = branch.nodes[0];
	return first ? nodes.find((x) => x.node.id === first.node.id)!.x - first.x : 0;
};

function wire(
	from: string,
	to: string,
	points: Point[],
	isDown: boolean,
	straight = false,
	hasArrow = to !== "",
	label?: WireLabel,
): Wire {
	return { from, to, points, samples: [], isDown, straight, hasArrow, label, bridges: [] };
}

const samplesOf = ({ points, isDown, straight }: Wire): Point[] =>
	straight
		? resample(points)
		: points.slice(1).flatMap((b, i) => curve(points[i]!, b, isDown, i === 0));

function resample(points: Point[]): Point[] {
	return points.slice(1).flatMap((b, i) => {
		const a = points[i]!;
		const n = Math.max(1, Math.ceil(Math.hypot(b[0] - a[0], b[1] - a[1]) / 5));
		return Array.from({ length: n + (i === points.length - 2 ? 1 : 0) }, (_, j): Point => [
			a[0] + ((b[0] - a[0]) * j) / n,
			a[1] + ((b[1] - a[1]) * j) / n,
		]);
	});
}

/** Points of the smooth curve between two points, which leaves and enters along the flow. */
function curve(a: Point, b: Point, isDown: boolean, isFirst: boolean): Point[] {
	const n = Math.max(2, Math.min(40, Math.ceil(Math.hypot(b[0] - a[0], b[1] - a[1]) / 5)));
	const [c, d]: [Point, Point] = isDown
		? [
				[a[0], (a[1] + b[1]) / 2],
				[b[0], (a[1] + b[1]) / 2],
			]
		: [
				[(a[0] + b[0]) / 2, a[1]],
				[(a[0] + b[0]) / 2, b[1]],
			];
	const at = (t: number, k: 0 | 1) =>
		(1 - t) ** 3 * a[k] +
		3 * (1 - t) ** 2 * t * c[k] +
		3 * (1 - t) * t * t * d[k] +
		t ** 3 * b[k];
	return Array.from({ length: n + 1 }, (_, i): Point => [at(i / n, 0), at(i / n, 1)]).slice(
		isFirst ? 0 : 1,
	);
}

/** On which side of the line through p and q the point r is. */
const side = (p: Point, q: Point, r: Point): number =>
	(q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]);
const crosses = (a: Point, b: Point, c: Point, d: Point): boolean =>
	side(a, b, c) * side(a, b, d) < 0 && side(c, d, a) * side(c, d, b) < 0;

interface Extent {
	left: number;
	right: number;
	top: number;
	bottom: number;
}

function extentOf(points: readonly Point[]): Extent {
	const [xs, ys] = [points.map((p) => p[0]), points.map((p) => p[1])];
	return {
		left: Math.min(...xs),
		right: Math.max(...xs),
		top: Math.min(...ys),
		bottom: Math.max(...ys),
	};
}

const areApart = (a: Extent, b: Extent): boolean =>
	a.right < b.left || b.right < a.left || a.bottom < b.top || b.bottom < a.top;

/**
 * Lets each wire pass over the wires before it by a bridge; wires with a common end only part or
 * meet.
 */
function withBridges(layout: LayerLayout): LayerLayout {
	const wires = layout.wires.map((wire) => {
		wire.samples = samplesOf(wire);
		return { wire, extent: extentOf(wire.samples) };
	});
	for (const [i, { wire: over, extent }] of wires.entries())
		for (const { wire: under, extent: other } of wires.slice(0, i)) {
			if (over.from === under.from || over.to === under.to || areApart(extent, other))
				continue;
			for (let j = 1; j < over.samples.length; j++)
				for (let k = 1; k < under.samples.length; k++)
					if (
						crosses(
							over.samples[j - 1]!,
							over.samples[j]!,
							under.samples[k - 1]!,
							under.samples[k]!,
						)
					)
						over.bridges.push(over.samples.slice(Math.max(0, j - 3), j + 3));
		}
	return layout;
}

export const path = (points: readonly Point[]): string =>
	points.map((p, i) => `${i ? "L" : "M"}${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("");
