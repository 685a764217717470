// Places a branch that is not of parts in series and in parallel alone: parts in ranks, each after
// those that it reads, and in the ranks that a wire passes a lane for it.
import { END, END_GAP, wireEnd, type Composition, type EdgesOf, type Specs } from "./compose";
import type { Branch } from "./contract";
import type { BranchLayout, Placed, Point } from "./layout";

/** Of points of the stream, `in` or `out`, and of parts, `at`. */
type Edge = readonly [from: string, to: string];

/** The room of a wire that passes parts. */
const LANE = 10;
/** How often the order in ranks, and then the lines, follow those of the ranks beside them. */
const SWEEPS = 12;
/** Of more stops the lines follow twice alone. */
const MOST_STOPS = 1000;
/** How much straighter lanes are than the wires at parts. */
const LANE_WEIGHT = 4;

/** A part in its rank, or a lane there for all wires from a part that pass. */
interface Stop {
	/** The part; of a lane the one that its wires come from. */
	id: string;
	isLane: boolean;
	rank: number;
	/** Its place in its rank, and the line of its wires. */
	at: number;
	line: number;
	before: Stop[];
	after: Stop[];
}

type Asked = [place: number, weight: number];

interface Ranks {
	ranks: Stop[][];
	edges: Edge[];
	/** For each edge, what its wire passes. */
	lanes: Map<Edge, Stop[]>;
}

/**
 * The rank of each part. Where each of those that are left waits for another, the first of them
 * goes on: an edge leads back to it.
 */
function ranksOf(
	ids: readonly string[],
	before: ReadonlyMap<string, string[]>,
	after: ReadonlyMap<string, string[]>,
) {
	const waiting = new Map(ids.map((x) => [x, before.get(x)!.length]));
	const ready = ids.filter((x) => !waiting.get(x));
	const rank = new Map<string, number>();
	for (const id of [...ids, null]) {
		for (let next = ready.pop(); next !== undefined; next = ready.pop()) {
			if (rank.has(next)) continue;
			const beside = [...before.get(next)!, ...after.get(next)!];
			rank.set(next, 1 + Math.max(-1, ...beside.map((x) => rank.get(x) ?? -1)));
			for (const x of after.get(next)!) {
				waiting.set(x, waiting.get(x)! - 1);
				if (!waiting.get(x)) ready.push(x);
			}
		}
		if (id !== null && !rank.has(id)) ready.push(id);
	}
	// a part that more read than it reads stands by its readers
	for (const id of [...rank.keys()].sort((a, b) => rank.get(b)! - rank.get(a)!)) {
		const beside = [...before.get(id)!, ...after.get(id)!].map((x) => rank.get(x)!);
		const later = beside.filter((x) => x > rank.get(id)!);
		if (2 * later.length > beside.length) rank.set(id, Math.min(...later) - 1);
	}
	return rank;
}

function arrange(branch: Branch, stream: ReadonlySet<string>): Ranks {
	const edges = branch.edges.map(([from, to]): Edge => [
		`${stream.has(from) ? "in" : "at"} ${from}`,
		`${stream.has(to) ? "out" : "at"} ${to}`,
	]);
	const ids = [...new Set([...branch.nodes.map((x) => `at ${x.id}`), ...edges.flat()])];
	const [before, after] = [new Map<string, string[]>(), new Map<string, string[]>()];
	for (const id of ids) for (const x of [before, after]) x.set(id, []);
	for (const [from, to] of edges) {
		before.get(to)!.push(from);
		after.get(from)!.push(to);
	}
	const rank = ranksOf(ids, before, after);
	const ranks: Stop[][] = [];
	const add = (id: string, isLane: boolean, at: number): Stop => {
		const stop = { id, isLane, rank: at, at: 0, line: 0, before: [], after: [] };
		(ranks[at] ??= []).push(stop);
		return stop;
	};
	const link = (a: Stop, b: Stop) => {
		a.after.push(b);
		b.before.push(a);
	};
	const parts = new Map(ids.map((id) => [id, add(id, false, rank.get(id)!)]));
	const passed = new Map<string, Stop[]>();
	const lanes = new Map<Edge, Stop[]>();
	for (const edge of edges) {
		const [low, high] = edge.map((x) => parts.get(x)!).toSorted((a, b) => a.rank - b.rank) as [
			Stop,
			Stop,
		];
		const key = `${low.id} ${low.id === edge[0]}`;
		const chain = passed.get(key) ?? [low];
		passed.set(key, chain);
		while (chain.length < high.rank - low.rank) {
			const lane = add(edge[0], true, low.rank + chain.length);
			link(chain.at(-1)!, lane);
			chain.push(lane);
		}
		link(chain[high.rank - low.rank - 1]!, high);
		const own = chain.slice(1, high.rank - low.rank);
		lanes.set(edge, low.id === edge[0] ? own : own.reverse());
	}
	return { ranks: untangle(Array.from(ranks, (x) => x ?? [])), edges, lanes };
}

/** Orders each rank by where the stops beside it are, on one side and then on the other. */
function untangle(ranks: Stop[][]): Stop[][] {
	const number = (rank: Stop[]) => rank.forEach((x, i) => (x.at = i));
	ranks.forEach(number);
	let [best, least] = [ranks, crossings(ranks)];
	for (let i = 0; i < SWEEPS && least; i++) {
		const isBack = i % 2 > 0;
		const mean = (x: Stop): number => {
			const beside = isBack ? x.after : x.before;
			return beside.length ? beside.reduce((n, y) => n + y.at, 0) / beside.length : x.at;
		};
		ranks = ranks.map((x) => [...x]);
		for (const rank of isBack ? ranks.toReversed() : ranks)
			number(rank.sort((a, b) => mean(a) - mean(b)));
		const found = crossings(ranks);
		if (found < least) [best, least] = [ranks, found];
	}
	best.forEach(number);
	return best;
}

/** How many wires cross between ranks: pairs in another order at their end, by merging. */
function crossings(ranks: readonly Stop[][]): number {
	let found = 0;
	const sorted = (list: number[]): number[] => {
		if (list.length < 2) return list;
		const half = list.length >> 1;
		const [a, b] = [sorted(list.slice(0, half)), sorted(list.slice(half))];
		let i = 0;
		const merged = b.flatMap((x) => {
			const from = i;
			while (i < a.length && a[i]! <= x) i++;
			found += a.length - i;
			return [...a.slice(from, i), x];
		});
		return [...merged, ...a.slice(i)];
	};
	for (const rank of ranks)
		sorted(rank.flatMap((x) => x.after.map((y) => y.at).sort((a, b) => a - b)));
	return found;
}

const arranged = new WeakMap<Branch, Ranks>();

export function rankBranch(
	branch: Branch,
	stream: ReadonlySet<string>,
	isDown: boolean,
	[laneGap, gap]: readonly [number, number],
	edgesOf: EdgesOf,
): Composition {
	let found = arranged.get(branch);
	if (!found) arranged.set(branch, (found = arrange(branch, stream)));
	const { ranks, edges, lanes } = found;

	const lay = (specs: Specs): BranchLayout => {
		const specOf = (x: Stop) => (x.isLane ? undefined : specs.get(x.id.slice(3)));
		const isEnd = (rank: readonly Stop[]) => rank.every((x) => !specOf(x));
		const extent = (x: Stop): [along: number, before: number, after: number] => {
			const spec = specOf(x);
			if (!spec) return x.isLane ? [0, LANE / 2, LANE / 2] : [END, END / 2, END / 2];
			return isDown
				? [spec.h, spec.portX, spec.w - spec.portX]
				: [spec.w, spec.portY, spec.h - spec.portY];
		};
		/** How far from the line of a part a wire ends there. */
		const aside = (from: Stop, to: Stop): number => {
			const spec = specOf(to);
			const own = spec?.entries?.at.get(from.id.slice(3));
			return own ? own[isDown ? 0 : 1] - (isDown ? spec!.portX : spec!.portY) : 0;
		};
		settle(ranks, extent, aside, isDown ? Math.max(laneGap, 8) : laneGap);
		const starts: [from: number, to: number][] = [];
		let at = 0;
		for (const [i, rank] of ranks.entries()) {
			const along = Math.max(0, ...rank.map((x) => extent(x)[0]));
			starts.push([at, at + along]);
			const isShort = isEnd(rank) || isEnd(ranks[i + 1] ?? []);
			at += along + (i === ranks.length - 1 ? 0 : isShort ? Math.min(gap, END_GAP) : gap);
		}
		const all = ranks.flat();
		const top = Math.min(...all.map((x) => x.line - extent(x)[1]));
		const across = Math.max(0, Math.max(...all.map((x) => x.line + extent(x)[2])) - top);
		const point = (a: number, b: number): Point => (isDown ? [b, a] : [a, b]);
		const placed = new Map<string, Placed>();
		const points = new Map<string, Point>();
		const parts = new Map<string, Stop>();
		for (const x of all) {
			if (x.isLane) continue;
			const [from, to] = starts[x.rank]!;
			const [along, before] = extent(x);
			const spec = specOf(x);
			const start = (from + to - along) / 2;
			parts.set(x.id, x);
			points.set(x.id, point(start + END / 2, x.line - top));
			const [left, upper] = point(start, x.line - top - before);
			if (spec) placed.set(x.id, { ...spec, x: left, y: upper });
		}
		const lineTo = (edge: Edge) => (lanes.get(edge)!.at(-1) ?? parts.get(edge[0])!).line;
		const entrants = (to: string) =>
			edges
				.filter((x) => x[1] === to)
				.sort((a, b) => lineTo(a) - lineTo(b))
				.map((x) => x[0]);
		const wires = edges.map((edge) => {
			const [from, to] = edge;
			const ends = [true, false].map((isStart) => {
				const id = isStart ? from : to;
				const own = placed.get(id);
				const all = isStart ? [] : entrants(to);
				return wireEnd(own, points.get(id)!, from, isStart, isDown, edgesOf, all);
			}) as [Point, Point];
			const isBack = parts.get(from)!.rank > parts.get(to)!.rank;
			/** A straight line through a rank. */
			const through = (x: Stop, line: number) => {
				const [a, b] = starts[x.rank]!;
				return isBack ? [point(b, line), point(a, line)] : [point(a, line), point(b, line)];
			};
			const line = (x: Point) => x[isDown ? 0 : 1];
			const path = [
				ends[0],
				through(parts.get(from)!, line(ends[0]))[1]!,
				...lanes.get(edge)!.flatMap((x) => through(x, x.line - top)),
				through(parts.get(to)!, line(ends[1]))[0]!,
				ends[1],
			];
			const tail = placed.get(to)?.entries?.tail?.get(from.slice(3)) ?? [];
			const next = placed.get(to);
			return {
				from: from.replace(/^(in|at) /, ""),
				to: to.replace(/^(out|at) /, ""),
				points: [
					...path,
					...tail.map(([x, y]): Point => [next!.x + x, next!.y + y]),
				].filter(
					(x, i, list) =>
						!i || Math.hypot(x[0] - list[i - 1]![0], x[1] - list[i - 1]![1]) > 3,
				),
			};
		});
		const endsOf = (prefix: string) =>
			new Map(
				[...points]
					.filter(([id]) => id.startsWith(`${prefix} `))
					.map(([id, x]): [string, Point] => [id.slice(prefix.length + 1), x]),
			);
		const [width, height] = point(Math.ceil(at), Math.ceil(across));
		return {
			nodes: [...placed.values()],
			wires,
			ins: endsOf("in"),
			outs: endsOf("out"),
			width,
			height,
		};
	};
	return { sizeOf: lay, lay };
}

/** Gives each stop a line: near those of the stops beside it, and apart from its rank's others. */
function settle(
	ranks: readonly Stop[][],
	extent: (x: Stop) => [along: number, before: number, after: number],
	aside: (from: Stop, to: Stop) => number,
	gap: number,
) {
	const offsets = ranks.map((rank) => {
		let [at, last] = [0, 0];
		return rank.map((x, i) => {
			const [, before, after] = extent(x);
			if (i) at += last + before + gap;
			last = after;
			return at;
		});
	});
	for (const x of ranks.flat()) x.line = offsets[x.rank]![x.at]!;
	const sweeps = ranks.flat().length > MOST_STOPS ? 2 : SWEEPS;
	for (let i = 0; i <= sweeps; i++) {
		// at last, by both sides
		const sides = i === sweeps ? [true, true] : [i % 2 > 0, i % 2 === 0];
		for (const j of sides[0] ? [...ranks.keys()].reverse() : ranks.keys()) {
			/** Stops that touch: where the first of them is, and what their wires ask of it. */
			const blocks: { from: number; place: number; asked: Asked[] }[] = [];
			for (const x of ranks[j]!) {
				const offset = offsets[j]![x.at]!;
				const ask = (y: Stop, line: number): Asked => [
					line - offset,
					x.isLane && y.isLane ? LANE_WEIGHT : 1,
				];
				const asked = [
					...(sides[1] ? x.before.map((y) => ask(y, y.line - aside(y, x))) : []),
					...(sides[0] ? x.after.map((y) => ask(y, y.line + aside(x, y))) : []),
				];
				if (!asked.length) asked.push(ask(x, x.line));
				let block = { from: x.at, place: median(asked), asked };
				for (let y = blocks.at(-1); y && y.place >= block.place; y = blocks.at(-1)) {
					blocks.pop();
					const both = [...y.asked, ...block.asked];
					block = { from: y.from, place: median(both), asked: both };
				}
				blocks.push(block);
			}
			for (const [k, { from, place }] of blocks.entries())
				for (const x of ranks[j]!.slice(from, blocks[k + 1]?.from))
					x.line = place + offsets[j]![x.at]!;
		}
	}
}

/** The first of the middle ones by weight. */
function median(list: readonly Asked[]): number {
	let left = list.reduce((n, x) => n + x[1], 0) / 2;
	return list.toSorted((a, b) => a[0] - b[0]).find((x) => (left -= x[1]) <= 0)![0];
}
