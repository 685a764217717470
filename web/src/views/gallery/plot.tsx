// Any two facts of the models against each other; every point is a link to its model.
import { Select, type Options } from "../../components/controls";
import { shortBytes, shortTokens } from "../../lib/format";
import { scaleLinear, scaleLog } from "../../lib/scales";
import { change, useAppState, type State } from "../../lib/state";
import { useWidth } from "../../lib/use_width";
import { columnOf, count, flops, month, shown } from "./columns";
import { number, type Entry } from "./entries";
import { Points, ShapeKey, type Point } from "./points";

const AXES: Options<State["x"]> = [
	["released", "Release date"],
	["kv", "KV cache per token"],
	["total", "Parameters"],
	["active", "Active parameters"],
	["context", "Context length"],
	["flops", "FLOPs per token"],
	["layers", "Layers"],
	["width", "Hidden size"],
	["vocabulary", "Vocabulary"],
];
const nameOf = (key: string) => AXES.find((x) => x[0] === key)![1];
const BINARY = new Set(["kv", "context", "width"]);

/** The day of a date; of a month its first. */
export const dateOf = (x: Entry): number | null =>
	x.released ? Date.parse(x.released.length === 7 ? `${x.released}-01` : x.released) : null;
const valueOf = (x: Entry, key: string): number | null => {
	const value = key === "released" ? dateOf(x) : number(x, key);
	return value !== null && value > 0 ? value : null;
};

/** The room of the labels of a month and a year, and between the frame and the outer marks. */
const [MONTH, YEAR, EDGE] = [100, 54, 10];

interface Axis {
	at: (value: number) => number;
	ticks: [number, string][];
}

function tickText(key: string, value: number): string {
	if (key === "kv") return shortBytes(value);
	if (key === "context") return shortTokens(value);
	if (key === "flops") return flops(value);
	return key === "total" || key === "active"
		? count(value).replace(/\.0+(?=[A-Z])/, "")
		: value.toLocaleString("en-US");
}

/** The months of a mark at every one: a quarter, half a year, years. */
const EVERY = [3, 6, 12, 24, 60, 120, 240];

/** Beginnings of months around two dates at equal distances, as many as there is room for. */
function monthsBetween(least: number, most: number, room: number): number[] {
	const monthOf = (x: number) => {
		const date = new Date(x);
		return 12 * date.getUTCFullYear() + date.getUTCMonth();
	};
	for (const every of EVERY) {
		const first = Math.floor(monthOf(least) / every);
		const last = Math.floor(monthOf(most) / every) + 1;
		const isFull = (last - first) * (every % 12 ? MONTH : YEAR) > room;
		if (isFull && every !== EVERY.at(-1)) continue;
		return Array.from({ length: last - first + 1 }, (_, i) =>
			Date.UTC(1970, (first + i) * every - 12 * 1970),
		);
	}
	return [];
}

export function axis(key: string, values: number[], from: number, to: number): Axis {
	const [least, most] = [Math.min(...values), Math.max(...values)];
	if (key === "released") {
		const inner = [
			from + Math.sign(to - from) * EDGE,
			to - Math.sign(to - from) * EDGE,
		] as const;
		const months = monthsBetween(least, most, Math.abs(inner[1] - inner[0]));
		const scale = scaleLinear([months[0]!, months.at(-1)!], inner);
		const isYears = months.every((x) => !new Date(x).getUTCMonth());
		return {
			at: scale,
			ticks: months.map((x) => [
				scale(x),
				isYears ? String(new Date(x).getUTCFullYear()) : month(new Date(x).toISOString()),
			]),
		};
	}
	const base = BINARY.has(key) ? 2 : 10;
	// a point on the frame would lie on the axis
	const low = base ** Math.floor(Math.log(least / 1.0001) / Math.log(base));
	const high = base ** Math.ceil(Math.log(most * 1.0001) / Math.log(base));
	const scale = scaleLog([low, Math.max(high, low * base)], [from, to]);
	const powers = Array.from({ length: 64 }, (_, i) => low * base ** i).filter(
		(x) => x <= high * 1.0001,
	);
	const every = Math.ceil(powers.length / Math.max(2, Math.abs(to - from) / 56));
	return {
		at: (x) => scale(x),
		ticks: powers.filter((_, i) => i % every === 0).map((x) => [scale(x), tickText(key, x)]),
	};
}

export function Plot({ models }: { models: Entry[] }) {
	const { x, y } = useAppState("x", "y");
	const [ref, width] = useWidth<HTMLDivElement>();
	const drawn = models.filter((m) => valueOf(m, x) !== null && valueOf(m, y) !== null);
	return (
		<section class="picture" aria-label="Plot">
			<h2>
				{nameOf(y)} {x === "released" ? "over time" : `against ${nameOf(x).toLowerCase()}`}
			</h2>
			<div class="tools no-print">
				<Select
					id="plot-y"
					label="Vertical axis"
					options={AXES}
					chosen={y}
					choose={(value) => change({ y: value })}
				/>
				<Select
					id="plot-x"
					label="Horizontal axis"
					options={AXES}
					chosen={x}
					choose={(value) => change({ x: value })}
				/>
			</div>
			<div ref={ref}>
				{drawn.length > 0 && width > 0 && (
					<Chart models={drawn} x={x} y={y} width={width} />
				)}
			</div>
			<ShapeKey />
			<p class="caption">
				{drawn.length} of {models.length} models
				{drawn.length < models.length ? "; the others have none or do not state it" : ""}.
				Arrow keys go from point to point.
			</p>
		</section>
	);
}

function Chart({ models, x, y, width }: { models: Entry[]; x: string; y: string; width: number }) {
	const height = width < 600 ? 460 : 560;
	const margin = { left: 78, right: 12, top: 14, bottom: 44 };
	const [w, h] = [width - margin.left - margin.right, height - margin.top - margin.bottom];
	const values = (key: string) => models.map((m) => valueOf(m, key)!);
	const [across, up] = [axis(x, values(x), 0, w), axis(y, values(y), h, 0)];
	const describe = (m: Entry, key: string) => shown(m, columnOf(key)!);
	const points = models.map((entry): Point => ({
		entry,
		x: across.at(valueOf(entry, x)!),
		y: up.at(valueOf(entry, y)!),
		size: 4.5,
		text: `${describe(entry, y)}, ${describe(entry, x)}`,
	}));
	// extremes are the most telling names: largest and smallest, newest and oldest, in turn
	const byY = points.toSorted((a, b) => a.y - b.y);
	const byX = points.toSorted((a, b) => b.x - a.x);
	const named = byY.flatMap((p, i) => [p, byX[i]!, byY.at(-1 - i)!]).slice(0, 120);
	return (
		<svg width={width} height={height} class="data">
			<g transform={`translate(${margin.left} ${margin.top})`}>
				{up.ticks.map(([at, text]) => (
					<g key={text}>
						<path class="grid" d={`M0 ${at}h${w}`} />
						<text class="muted tabular" x={-10} y={at + 4} text-anchor="end">
							{text}
						</text>
					</g>
				))}
				{across.ticks.map(([at, text]) => (
					<g key={text}>
						<path class="grid" d={`M${at} 0v${h}`} />
						<text
							class="muted tabular"
							x={at}
							y={h + 20}
							text-anchor={at > w - 30 ? "end" : at < 20 ? "start" : "middle"}
						>
							{text}
						</text>
					</g>
				))}
				<text class="muted" x={w / 2} y={h + 40} text-anchor="middle">
					{nameOf(x)}
				</text>
				<Points
					points={points}
					named={[...new Set(named)]}
					width={w}
					height={h}
					label={`${models.length} models: ${nameOf(y)} against ${nameOf(x)}`}
				/>
			</g>
		</svg>
	);
}
