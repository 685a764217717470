// Composes a branch of parts in series and in parallel, as all known kinds of attention and of
// feed-forward networks are: parts in series stand on one line, parallel ones in lanes beside it.
import { textWidth } from "../../lib/measure_text";
import type { Branch, PlateNode } from "./contract";
import type { BranchLayout, Placed, Point } from "./layout";
import type { Spec } from "./measure";

/** The size of the points at which a branch leaves and meets the stream. */
export const END = 2;
const LANE = 9;
/** The distance of wires that pass parts. */
const PASS = 12;
const LINE = 15;
/** The gap between the stream and the first or last part. */
export const END_GAP = 12;

type Tree =
	| { kind: "part"; id: string }
	| { kind: "wire"; from: string; to: string }
	| { kind: "series"; items: Tree[] }
	| { kind: "parallel"; items: Tree[] };

interface Edge {
	from: string;
	to: string;
	tree: Tree;
}

const SINK = "sink";

/** The branch as parts in series and in parallel; null where it is not of these alone. */
function decompose(edges: readonly [string, string][], order: readonly string[]): Tree | null {
	const sources = new Set(edges.map((x) => x[0]).filter((x) => !edges.some((y) => y[1] === x)));
	const ends = new Set(edges.map((x) => x[1]).filter((x) => !edges.some((y) => y[0] === x)));
	const [source] = sources;
	if (sources.size !== 1) return null;
	let rest: Edge[] = [...edges, ...[...ends].map((x): [string, string] => [x, SINK])].map(
		([from, to]) => ({ from, to, tree: { kind: "wire", from, to } }),
	);
	const first = (x: Tree): number =>
		x.kind === "part"
			? order.indexOf(x.id)
			: x.kind === "wire"
				? order.length
				: Math.min(...x.items.map(first));
	const joined = (kind: "series" | "parallel", items: Tree[]): Tree => ({
		kind,
		items: items.flatMap((x) => (x.kind === kind ? x.items : [x])),
	});
	const ids = [...new Set(edges.flat())].filter((x) => x !== source);
	for (let isReduced = true; isReduced;) {
		isReduced = false;
		for (const x of rest) {
			const same = rest.filter((y) => y.from === x.from && y.to === x.to);
			if (same.length < 2) continue;
			const lanes = joined(
				"parallel",
				same.map((y) => y.tree),
			) as { items: Tree[] };
			const items = lanes.items.toSorted((a, b) => first(a) - first(b));
			rest = [
				...rest.filter((y) => !same.includes(y)),
				{ ...x, tree: { kind: "parallel", items } },
			];
			isReduced = true;
			break;
		}
		for (const id of ids) {
			const before = rest.filter((x) => x.to === id);
			const after = rest.filter((x) => x.from === id);
			if (before.length !== 1 || after.length !== 1) continue;
			const [a, b] = [before[0]!, after[0]!];
			const items = [a.tree, { kind: "part", id } as const, b.tree];
			rest = [
				...rest.filter((x) => x !== a && x !== b),
				{
					from: a.from,
					to: b.to,
					tree: joined(
						"series",
						items.filter((x) => x.kind !== "wire"),
					),
				},
			];
			isReduced = true;
		}
	}
	return rest.length === 1
		? joined("series", [{ kind: "part", id: source! }, rest[0]!.tree])
		: null;
}

/** The extent of a part of the picture along the flow, and to both sides of its line. */
interface Extent {
	along: number;
	before: number;
	after: number;
}

/** Lanes, with their extent along the flow. */
interface Lanes {
	tree: Tree;
	from: number;
	to: number;
	/** Of a lane below others: where it begins and ends, and the lines of its wires past them. */
	below?: { from: number; to: number; enter: number | null; leave: number | null };
}

/** Lanes that may stand below each other: those of several parts. */
const isLong = (x: Tree) => x.kind === "series";

/** The measured nodes of a branch. */
export type Specs = ReadonlyMap<string, Spec>;

/** A branch whose parts have no sizes yet. */
export interface Composition {
	sizeOf: (specs: Specs) => { width: number; height: number };
	lay: (specs: Specs) => BranchLayout;
}

/** The edges of what is drawn of a node. */
export type EdgesOf = (placed: Placed) => { left: number; right: number };

/** Where a wire begins or ends at a node; `all` are those into it, in the order of their lanes. */
export function wireEnd(
	node: Placed | undefined,
	at: Point,
	from: string,
	isStart: boolean,
	isDown: boolean,
	edgesOf: EdgesOf,
	all: readonly string[] = [],
): Point {
	if (!node) return at;
	if (isStart)
		return isDown
			? [node.x + node.portX, node.y + node.h]
			: [edgesOf(node).right, node.y + node.portY];
	const own = node.entries?.at.get(from.slice(3));
	if (own) return [node.x + own[0], node.y + own[1]];
	const { others } = node.entries ?? {};
	if (others) {
		const rest = all.filter((x) => !node.entries!.at.has(x.slice(3)));
		const t = (rest.indexOf(from) + 1) / (rest.length + 1);
		const [a, b] = others;
		return [node.x + a[0] + (b[0] - a[0]) * t, node.y + a[1] + (b[1] - a[1]) * t];
	}
	return isDown ? [node.x + node.portX, node.y - 1] : [edgesOf(node).left, node.y + node.portY];
}

const trees = new WeakMap<Branch, Tree | null>();

/** Null where a branch is not of parts in series and in parallel alone. */
export function composeBranch(
	branch: Branch,
	stream: Set<string>,
	isDown: boolean,
	[laneGap, gap]: [number, number],
	labelOf: (from: PlateNode, to: PlateNode) => string,
	/** Whether the label of a wire takes lines instead of width. */
	isSlim: boolean,
	edgesOf: EdgesOf,
	/** The width beyond which lanes stand below each other, outer ones first, and how many may. */
	[most, stacks]: [number, number],
): Composition | null {
	const { nodes, edges } = branch;
	const inner = new Map(nodes.map((x) => [`at ${x.id}`, x]));
	const named = edges.map(([from, to]): [string, string] => [
		stream.has(from) ? `in ${from}` : `at ${from}`,
		stream.has(to) ? `out ${to}` : `at ${to}`,
	]);
	let found = trees.get(branch);
	if (found === undefined) trees.set(branch, (found = decompose(named, [...inner.keys()])));
	if (!found) return null;
	const tree = found;

	const labels = new Map<Tree, string>();
	const noteLabels = (x: Tree): void => {
		if (x.kind === "series" || x.kind === "parallel") x.items.forEach(noteLabels);
		if (x.kind !== "wire") return;
		const [from, to] = [inner.get(x.from), inner.get(x.to)];
		if (from && to) labels.set(x, labelOf(from, to));
	};
	noteLabels(tree);

	const linesOf = (text: string): string[] => (isDown || isSlim ? text.split(/(?<=,) /) : [text]);
	const isEnd = (x: Tree | undefined) => x?.kind === "part" && !inner.has(x.id);
	const gapAfter = (items: Tree[], i: number) =>
		i === items.length - 1
			? 0
			: isEnd(items[i]) || isEnd(items[i + 1])
				? Math.min(gap, END_GAP)
				: gap;
	/** Lanes of several parts that stand below each other, as many as the width requires. */
	const stackedIn = (specs: Specs): ReadonlySet<Tree> => {
		const stacked = new Set<Tree>();
		const rest = [tree];
		while (
			rest.length &&
			stacked.size < stacks &&
			sizeOf(extentsOf(specs, stacked)(tree)).width > most
		) {
			const x = rest.shift()!;
			if (x.kind !== "series" && x.kind !== "parallel") continue;
			if (x.kind === "parallel" && x.items.filter(isLong).length > 1) stacked.add(x);
			rest.push(...x.items);
		}
		return stacked;
	};
	const extentsOf = (specs: Specs, stacked: ReadonlySet<Tree>): ((x: Tree) => Extent) => {
		const known = new Map<Tree, Extent>();
		const extent = (x: Tree): Extent => {
			let found = known.get(x);
			if (!found) known.set(x, (found = findExtent(x)));
			return found;
		};
		const findExtent = (x: Tree): Extent => {
			if (x.kind === "part") {
				const spec = specs.get(x.id.slice(3));
				if (!spec || !inner.has(x.id))
					return { along: END, before: END / 2, after: END / 2 };
				const [along, across, port] = isDown
					? [spec.h, spec.w, spec.portX]
					: [spec.w, spec.h, spec.portY];
				return { along, before: port, after: across - port };
			}
			if (x.kind === "wire") {
				const text = labels.get(x);
				if (!text) return { along: 0, before: 5, after: 5 };
				const lines = linesOf(text);
				const width = Math.max(...lines.map((y) => textWidth(y)));
				return isDown
					? { along: 22, before: 6, after: 10 + width }
					: { along: width + 12, before: 2 + LINE * lines.length, after: 5 };
			}
			const parts = x.items.map(extent);
			if (x.kind === "series")
				return {
					along: parts.reduce((n, y, i) => n + y.along + gapAfter(x.items, i), 0),
					before: Math.max(...parts.map((y) => y.before)),
					after: Math.max(...parts.map((y) => y.after)),
				};
			if (stacked.has(x)) {
				const lanes = (x.items.filter((y) => y.kind !== "wire").length - 1) * PASS;
				const wires = x.items
					.filter((y) => y.kind === "wire")
					.reduce((n, y) => n + extent(y).before + extent(y).after + laneGap, 0);
				const tall = x.items.filter((y) => y.kind !== "wire").map(extent);
				return {
					along: tall.reduce((n, y) => n + y.along, gap * (tall.length - 1)) + 2 * LANE,
					before: Math.max(...tall.map((y) => y.before)) + lanes,
					after: Math.max(...tall.map((y) => y.after)) + lanes + wires,
				};
			}
			const all = parts.reduce(
				(n, y) => n + y.before + y.after,
				laneGap * (parts.length - 1),
			);
			const [first, last] = [parts[0]!.before, all - parts.at(-1)!.after];
			const middle = (first + last) / 2;
			return {
				along: Math.max(...parts.map((y) => y.along)) + 2 * LANE,
				before: middle,
				after: all - middle,
			};
		};
		return extent;
	};
	const sizeOf = ({ along, before, after }: Extent) => {
		const [width, height] = isDown ? [before + after, along] : [along, before + after];
		return { width: Math.ceil(width), height: Math.ceil(height) };
	};

	function lay(specs: Specs): BranchLayout {
		const stacked = stackedIn(specs);
		const extent = extentsOf(specs, stacked);
		const placed = new Map<string, Placed>();
		const points = new Map<string, Point>();
		/** The lanes around each part and wire, the outermost first. */
		const around = new Map<string, Lanes[]>();
		const wiresAt = new Map<string, number>();
		const point = (along: number, across: number): Point =>
			isDown ? [across, along] : [along, across];
		const place = (x: Tree, at: number, line: number, lanes: Lanes[]): void => {
			if (x.kind === "part") {
				around.set(x.id, lanes);
				const spec = specs.get(x.id.slice(3));
				points.set(x.id, point(at + END / 2, line));
				if (!spec || !inner.has(x.id)) return;
				placed.set(x.id, {
					...spec,
					x: isDown ? line - spec.portX : at,
					y: isDown ? at : line - spec.portY,
				});
			} else if (x.kind === "wire") {
				around.set(`${x.from} ${x.to}`, lanes);
				wiresAt.set(`${x.from} ${x.to}`, line);
			} else if (x.kind === "series") {
				for (const [i, item] of x.items.entries()) {
					place(item, at, line, lanes);
					at += extent(item).along + gapAfter(x.items, i);
				}
			} else if (stacked.has(x)) {
				const { along } = extent(x);
				const tall = x.items.filter((y) => y.kind !== "wire");
				const [before, after] = [
					Math.max(...tall.map((y) => extent(y).before)),
					Math.max(...tall.map((y) => extent(y).after)),
				];
				let start = at + LANE;
				for (const [i, item] of tall.entries()) {
					const end = start + extent(item).along;
					const below = {
						from: start,
						to: end,
						enter: i ? line + after + PASS * i : null,
						leave:
							i < tall.length - 1
								? line - before - PASS * (tall.length - 1 - i)
								: null,
					};
					place(item, start, line, [
						...lanes,
						{ tree: x, from: at, to: at + along, below },
					]);
					start = end + gap;
				}
				let edge = line + after + PASS * (tall.length - 1) + laneGap;
				for (const item of x.items.filter((y) => y.kind === "wire")) {
					const size = extent(item);
					place(item, at, edge + size.before, [
						...lanes,
						{ tree: x, from: at, to: at + along },
					]);
					edge += size.before + size.after + laneGap;
				}
			} else {
				const { along, before } = extent(x);
				const own = [...lanes, { tree: x, from: at, to: at + along }];
				let edge = line - before;
				for (const item of x.items) {
					const size = extent(item);
					place(item, at + (along - size.along) / 2, edge + size.before, own);
					edge += size.before + size.after + laneGap;
				}
			}
		};
		const whole = extent(tree);
		place(tree, 0, whole.before, []);

		const lineOf = (from: string, to: string) => {
			const own = wiresAt.get(`${from} ${to}`);
			if (own !== undefined) return own;
			const node = placed.get(from);
			if (!node) return points.get(from)![isDown ? 0 : 1];
			return isDown ? node.x + node.portX : node.y + node.portY;
		};
		const wires = named.map(([from, to]) => {
			const start = endOf(from, from, true);
			const stop = endOf(to, from, false, entrants(to));
			const own = wiresAt.get(`${from} ${to}`);
			const lanes = around.get(`${from} ${to}`) ?? [];
			const outside = (list: Lanes[], id: string) =>
				list.filter((x) => !(around.get(id) ?? []).some((y) => y.tree === x.tree));
			const startLine = start[isDown ? 0 : 1];
			const stopLine = stop[isDown ? 0 : 1];
			// lanes that a wire leaves, the innermost first, and that it enters, the outermost first
			const isLane = own !== undefined && lanes.length > 0;
			const outs = isLane ? [] : outside(around.get(from) ?? [], to).toReversed();
			const ins = isLane ? [] : outside(around.get(to) ?? [], from);
			const path: Point[] = [start];
			const past = placed.get(from);
			let leave = past ? (isDown ? past.y + past.h : past.x + past.w) : 0;
			let line = startLine;
			const pushLeave = () =>
				leave > start[isDown ? 1 : 0] + 1 && path.push(point(leave, line));
			for (const { below, to: end } of outs) {
				if (below?.leave == null) {
					leave = Math.max(leave, end - LANE);
					continue;
				}
				leave = Math.max(leave, below.to);
				pushLeave();
				path.push(point(below.to + gap, below.leave));
				[line, leave] = [below.leave, end - LANE];
			}
			pushLeave();
			const next = placed.get(to);
			let enter = next ? (isDown ? next.y : next.x) : Infinity;
			for (const { below, from: begin } of ins.toReversed()) {
				if (below?.enter != null) break;
				enter = Math.min(enter, begin + LANE);
			}
			for (const { below, from: begin } of ins) {
				if (below?.enter == null) continue;
				path.push(point(begin + LANE, below.enter), point(below.from - gap, below.enter));
				enter = Math.min(Math.max(enter, below.from), next ? enter : Infinity);
			}
			if (isLane) {
				const [a] = outside(lanes, from);
				const [b] = outside(lanes, to);
				path.push(point(a!.from + LANE, own), point(b!.to - LANE, own));
			}
			if (enter < stop[isDown ? 1 : 0] - 1) path.push(point(enter, stopLine));
			path.push(
				stop,
				...(next?.entries?.tail?.get(from.slice(3)) ?? []).map(([x, y]): Point => [
					next!.x + x,
					next!.y + y,
				]),
			);
			const text = [...labels].find(
				([x]) => x.kind === "wire" && x.from === from && x.to === to,
			)?.[1];
			const middle = lanes.at(-1);
			return {
				from: from.replace(/^(in|at) /, ""),
				to: to.replace(/^(out|at) /, ""),
				points: path.filter(
					(x, i) =>
						!i || Math.hypot(x[0] - path[i - 1]![0], x[1] - path[i - 1]![1]) > 0.5,
				),
				...(text &&
					own !== undefined &&
					middle && {
						label: {
							lines: linesOf(text),
							anchor: isDown ? ("start" as const) : ("middle" as const),
							at: isDown
								? ([own + 8, (middle.from + middle.to) / 2 + 4] as const)
								: ([
										(middle.from + middle.to) / 2,
										own - 6 - LINE * (linesOf(text).length - 1),
									] as const),
						},
					}),
			};
		});

		function endOf(id: string, from: string, isStart: boolean, all?: string[]): Point {
			return wireEnd(placed.get(id), points.get(id)!, from, isStart, isDown, edgesOf, all);
		}
		/** The wires into a part, in the order of their lanes. */
		function entrants(to: string): string[] {
			return named
				.filter((x) => x[1] === to)
				.map((x) => x[0])
				.sort((a, b) => lineOf(a, to) - lineOf(b, to));
		}
		const ends = (prefix: string) =>
			new Map(
				[...points]
					.filter(([id]) => id.startsWith(`${prefix} `))
					.map(([id, at]): [string, Point] => [id.slice(prefix.length + 1), at]),
			);
		return {
			nodes: [...placed.values()],
			wires,
			ins: ends("in"),
			outs: ends("out"),
			...sizeOf(whole),
		};
	}
	return { sizeOf: (specs) => sizeOf(extentsOf(specs, stackedIn(specs))(tree)), lay };
}
