// When models were released: a line for each organization or family, or one of them with all names.
import { Segmented, Select } from "../../components/controls";
import { change, useAppState } from "../../lib/state";
import { textWidth } from "../../lib/measure_text";
import { useWidth } from "../../lib/use_width";
import { count, month } from "./columns";
import { gallery, type Entry } from "./entries";
import { axis, dateOf } from "./plot";
import { Points, ShapeKey, type Point } from "./points";

/** Of more lines than these, only those with two points are drawn. */
const ALL_LINES = 20;

/** Points of more models than these are named where they are pointed at. */
const MOST_NAMED = 60;

export function Timeline({ models }: { models: Entry[] }) {
	const { lines, only } = useAppState("lines", "only");
	const [ref, width] = useWidth<HTMLDivElement>();
	const groups = new Map<string, Entry[]>();
	for (const x of models) {
		const name = x[lines];
		if (name && dateOf(x) !== null) groups.set(name, [...(groups.get(name) ?? []), x]);
	}
	const ordered = [...groups].sort(
		(a, b) => b[1].length - a[1].length || a[0].localeCompare(b[0]),
	);
	const names = [
		...new Set(gallery.models.map((x) => x[lines]).filter(Boolean) as string[]),
	].sort((a, b) => a.localeCompare(b));
	const least = ordered.length > ALL_LINES ? 2 : 1;
	const shown = ordered.filter((x) => (only ? x[0] === only : x[1].length >= least));
	const total = shown.reduce((n, x) => n + x[1].length, 0);
	return (
		<section class="picture" aria-label="Timeline">
			<h2>{only ? `${only}, over time` : `Releases by ${lines}`}</h2>
			<div class="tools no-print">
				<Segmented
					id="lines"
					label="A line for each"
					options={[
						["organization", "Organization"],
						["family", "Family"],
					]}
					chosen={lines}
					choose={(x) => change({ lines: x, only: "" })}
				/>
				<Select
					id="only"
					label="Only"
					options={[["", "all"], ...names.map((x): [string, string] => [x, x])]}
					chosen={only}
					choose={(x) => change({ only: x })}
				/>
			</div>
			<div ref={ref}>
				{total > 0 &&
					width > 0 &&
					(only ? (
						<OneLine models={shown[0]![1]} width={width} />
					) : (
						<Lines groups={shown} width={width} />
					))}
			</div>
			{total === 0 && <p class="callout">No model with a release date matches.</p>}
			<ShapeKey />
			<p class="caption">
				{only
					? "As high as its parameters."
					: "The larger the point, the more parameters." +
						(least > 1
							? ` ${lines === "organization" ? "Organizations" : "Families"} with at least ${least} models.`
							: "")}
			</p>
		</section>
	);
}

const textOf = (x: Entry) =>
	`${count(x.total)}${x.kinds?.includes("moe") ? `, ${count(x.active as number)} active` : ""}, ${month(x.released!)}`;
const sizeOf = (x: Entry) => 3 + Math.max(0, Math.log10(Number(x.total) / 1e8)) * 1.4;

function Lines({ groups, width }: { groups: [string, Entry[]][]; width: number }) {
	const left = Math.min(width * 0.36, Math.max(...groups.map((x) => textWidth(x[0]))) + 16);
	const [w, row] = [width - left - 14, 28];
	const height = groups.length * row + 34;
	const dates = axis(
		"released",
		groups.flatMap((x) => x[1].map((y) => dateOf(y)!)),
		0,
		w,
	);
	const points = groups.flatMap(([, list], i) =>
		list.map((entry): Point => ({
			entry,
			x: dates.at(dateOf(entry)!),
			y: i * row + row / 2,
			size: sizeOf(entry),
			text: textOf(entry),
		})),
	);
	return (
		<svg width={width} height={height} class="data">
			<g transform={`translate(${left} 0)`}>
				{dates.ticks.map(([at, text]) => (
					<g key={text}>
						<path class="grid" d={`M${at} 0v${height - 30}`} />
						<text
							class="muted tabular"
							x={at}
							y={height - 10}
							text-anchor={at > w - 20 ? "end" : at < 16 ? "start" : "middle"}
						>
							{text}
						</text>
					</g>
				))}
				{groups.map(([name], i) => (
					<path key={name} class="grid" d={`M0 ${i * row + row / 2}h${w}`} />
				))}
				<Points
					points={points}
					named={points.length > MOST_NAMED ? [] : points}
					width={w}
					height={groups.length * row}
					label={`${points.length} models by release date`}
				/>
			</g>
			{groups.map(([name], i) => (
				<LineName key={name} name={name} y={i * row + row / 2 + 4} room={left - 12} />
			))}
		</svg>
	);
}

/** A name that is too long is written over two lines. */
function LineName({ name, y, room }: { name: string; y: number; room: number }) {
	if (textWidth(name) <= room)
		return (
			<text x="0" y={y}>
				{name}
			</text>
		);
	const words = name.split(" ");
	const half = Math.ceil(words.length / 2);
	return (
		<text x="0" y={y - 7}>
			<tspan x="0">{words.slice(0, half).join(" ")}</tspan>
			<tspan x="0" dy="14">
				{words.slice(half).join(" ")}
			</tspan>
		</text>
	);
}

function OneLine({ models, width }: { models: Entry[]; width: number }) {
	const margin = { left: 60, right: 14, top: 14, bottom: 34 };
	const height = Math.min(640, 300 + models.length * 6);
	const [w, h] = [width - margin.left - margin.right, height - margin.top - margin.bottom];
	const [dates, sizes] = [
		axis(
			"released",
			models.map((x) => dateOf(x)!),
			0,
			w,
		),
		axis(
			"total",
			models.map((x) => Number(x.total)),
			h,
			0,
		),
	];
	const points = models.map((entry): Point => ({
		entry,
		x: dates.at(dateOf(entry)!),
		y: sizes.at(Number(entry.total)),
		size: 5,
		text: textOf(entry),
	}));
	return (
		<svg width={width} height={height} class="data">
			<g transform={`translate(${margin.left} ${margin.top})`}>
				{sizes.ticks.map(([at, text]) => (
					<g key={text}>
						<path class="grid" d={`M0 ${at}h${w}`} />
						<text class="muted tabular" x={-10} y={at + 4} text-anchor="end">
							{text}
						</text>
					</g>
				))}
				{dates.ticks.map(([at, text]) => (
					<g key={text}>
						<path class="grid" d={`M${at} 0v${h}`} />
						<text
							class="muted tabular"
							x={at}
							y={h + 22}
							text-anchor={at > w - 20 ? "end" : at < 16 ? "start" : "middle"}
						>
							{text}
						</text>
					</g>
				))}
				<Points
					points={points}
					named={points}
					width={w}
					height={h}
					label={`${models.length} models by release date and parameters`}
				/>
			</g>
		</svg>
	);
}
