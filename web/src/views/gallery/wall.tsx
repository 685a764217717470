// The wall: all models by release date, as pictures in one unit of area.
import type { RefObject } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Segmented } from "../../components/controls";
import { textWidth } from "../../lib/measure_text";
import { STACK_ORDER } from "../../lib/model_parts";
import { change, useAppState } from "../../lib/state";
import { useWidth } from "../../lib/use_width";
import { ColourKey } from "./cards";
import { count, month } from "./columns";
import { byId, linkTo, type Entry, type Part } from "./entries";
import { MiniPicture, sumOf, tallest } from "./mini_picture";
import { useModelStop, type Stop } from "./model_link";

/** CSS pixels of a millimetre. */
const MM = 96 / 25.4;
/** The width of a picture by its height, where there is room. */
const SHAPE = 1.3;
/** Layers that are at least as wide are told apart by a line, and names have this size. */
const [LINED, TEXT] = [4, 12];

/** Above this width the year stands beside its models, in a column of this width. */
const [BESIDE, YEAR] = [800, 132];
const MOST_LISTED = 12;
const NO_DATE = "Release date not known";

const UNITS: [number, string][] = [
	[1000, "1 billion"],
	[100, "100 million"],
	[10, "10 million"],
];

interface Picture {
	width: number;
	height: number;
	/** Rectangles of a colour as one path. */
	paths: [string, string][];
	lines: string;
}

/**
 * A skyline whose area is that of the parameters: layers of equal width in order, and beside them
 * what is no layer, as high as the largest layer.
 */
function draw(entry: Entry, perParameter: number, room: number): Picture {
	const { before, kinds, runs, after } = entry.picture!;
	const most = Math.max(1, ...runs.map(([kind]) => sumOf(kinds[kind]!)));
	const side = (parts: Part[]) => ({ parts, copies: 1, columns: sumOf(parts) / most });
	const bars = [
		...before.map(side),
		...runs.map(([kind, n]) => ({ parts: kinds[kind]!, copies: n, columns: n })),
		...after.map(side),
	];
	const columns = bars.reduce((n, x) => n + x.columns, 0);
	const step = Math.min(room / columns, Math.sqrt((SHAPE * most * perParameter) / columns));
	const height = (most * perParameter) / step;
	const paths = new Map<string, string>();
	const lines: string[] = [];
	let left = 0;
	for (const bar of bars) {
		const width = bar.columns * step;
		let top = height;
		const add = (key: string, n: number) => {
			const tall = (n * bar.copies * perParameter) / width;
			if (!(tall > 0)) return;
			top -= tall;
			paths.set(
				key,
				`${paths.get(key) ?? ""}M${left.toFixed(3)} ${top.toFixed(3)}h${width.toFixed(3)}` +
					`v${tall.toFixed(3)}h${(-width).toFixed(3)}z`,
			);
		};
		const sorted = bar.parts.toSorted(
			([a], [b]) => STACK_ORDER.indexOf(a) - STACK_ORDER.indexOf(b),
		);
		for (const [colour, all, active] of sorted) {
			add(colour, Number(active));
			add(`${colour} idle`, Number(all) - Number(active));
		}
		if (step >= LINED)
			for (let i = 0; i < bar.copies; i++)
				lines.push(
					`M${(left + i * step).toFixed(2)} ${top.toFixed(2)}V${height.toFixed(2)}`,
				);
		left += width;
	}
	return { width: left, height, paths: [...paths], lines: lines.join("") };
}

const textOf = (x: Entry) =>
	`${x.name}: ${count(x.total)} parameters` +
	(x.released ? `, ${month(x.released)}` : ", release date unknown");

const isNamed = (entry: Entry, width: number) => textWidth(entry.name, TEXT) <= width;

/** The names of models whose pictures are too narrow for them, in their order. */
function SmallNames({ models, perParameter, room }: SmallNamesProps) {
	const small = models.filter((x) => !isNamed(x, draw(x, perParameter, room).width));
	const listed = small.slice(0, MOST_LISTED).map((x) => x.name);
	const more = small.length - listed.length;
	if (!small.length) return null;
	return (
		<p class="caption small-names">
			Too narrow for a name, from left to right: {listed.join(", ")}
			{more > 0 && ` and ${more} more`}.
		</p>
	);
}

interface SmallNamesProps {
	models: Entry[];
	perParameter: number;
	room: number;
}

interface TileProps {
	entry: Entry;
	href: string;
	perParameter: number;
	room: number;
	stop: Stop;
}

function Tile({ entry, href, perParameter, room, stop }: TileProps) {
	const { width, height, paths, lines } = useMemo(
		() => draw(entry, perParameter, room),
		[entry.picture, perParameter, room],
	);
	const hasName = isNamed(entry, width);
	return (
		<li data-model={entry.id}>
			<a class="model" href={href} aria-label={textOf(entry)} {...stop}>
				<svg
					class="data"
					width={width.toFixed(3)}
					height={height.toFixed(3)}
					viewBox={`0 0 ${width.toFixed(3)} ${height.toFixed(3)}`}
					aria-hidden="true"
				>
					{paths.map(([key, d]) => (
						<path key={key} class={`c-${key}`} d={d} />
					))}
					{lines && <path class="wall-line" d={lines} />}
				</svg>
				{hasName && <span aria-hidden="true">{entry.name}</span>}
			</a>
		</li>
	);
}
/** The model that is pointed at or has the focus, to its own scale. */
function Magnifier({ wall }: { wall: RefObject<HTMLDivElement | null> }) {
	const [entry, setEntry] = useState<Entry | null>(null);
	useEffect(() => {
		const element = wall.current!;
		const look = (event: Event) => {
			const tile = (event.target as Element).closest<HTMLElement>("[data-model]");
			if (tile) setEntry(byId.get(tile.dataset.model!) ?? null);
		};
		element.addEventListener("pointerover", look);
		element.addEventListener("focusin", look);
		return () => {
			element.removeEventListener("pointerover", look);
			element.removeEventListener("focusin", look);
		};
	}, []);
	return (
		<div class="magnifier no-print" aria-hidden="true">
			{entry ? (
				<>
					<MiniPicture entry={entry} width={150} height={44} most={tallest(entry)} />
					<p>
						<strong>{entry.name}</strong>
						<span class="caption">
							{textOf(entry).slice(entry.name.length + 2)}; the picture beside this
							line is to the model's own scale
						</span>
					</p>
				</>
			) : (
				<p class="caption">Point at a picture, or use the arrow keys, to magnify it.</p>
			)}
		</div>
	);
}

export function Wall({ models }: { models: Entry[] }) {
	const { unit, with: first } = useAppState("unit", "with");
	const [ref, width] = useWidth<HTMLDivElement>();
	const perParameter = (MM * MM) / (unit * 1e6);
	const groups = useMemo(() => {
		const drawn = models
			.filter((x) => x.picture?.kinds.length)
			.toSorted(
				(a, b) =>
					Number(!a.released) - Number(!b.released) ||
					(a.released ?? "").localeCompare(b.released ?? "") ||
					a.name.localeCompare(b.name, "en", { numeric: true }),
			);
		return Map.groupBy(drawn, (x) => x.released?.slice(0, 4) ?? "");
	}, [models]);
	const stop = useModelStop([...groups.values()].flat());
	const side = 10 * MM;
	return (
		<section class="picture" aria-label="Wall">
			<h2>All models in one unit of area</h2>
			<div class="tools no-print">
				<Segmented
					id="unit"
					label="A square millimetre is"
					options={UNITS}
					chosen={unit}
					choose={(x) => change({ unit: x })}
				/>
			</div>
			<p class="wall-unit">
				<svg width={side} height={side} aria-hidden="true">
					<path class="unit-square" d={`M0 0h${side}v${side}H0z`} />
				</svg>
				<span>
					This square of 10 × 10 mm is <strong>{count(unit * 1e8)}</strong> parameters, in
					every picture. Each column is a layer; pale is what a token does not use.
				</span>
			</p>
			<ColourKey />
			<Magnifier wall={ref} />
			<div ref={ref} class={width > BESIDE ? "years beside" : "years"}>
				{width > 0 &&
					[...groups].map(([year, list]) => (
						<section key={year} class="year" aria-label={year || NO_DATE}>
							<div>
								<h3>{year || NO_DATE}</h3>
								<p class="caption">
									{list.length} {list.length === 1 ? "model" : "models"},{" "}
									{count(list.reduce((n, x) => n + Number(x.total), 0))}
								</p>
							</div>
							<ol class="models wall">
								{list.map((x) => (
									<Tile
										key={x.id}
										entry={x}
										href={linkTo(x.id, { with: first })}
										perParameter={perParameter}
										room={width - (width > BESIDE ? YEAR : 0)}
										stop={stop(x)}
									/>
								))}
							</ol>
							<SmallNames
								models={list}
								perParameter={perParameter}
								room={width - (width > BESIDE ? YEAR : 0)}
							/>
						</section>
					))}
			</div>
			{!groups.size && <p class="callout">No model matches.</p>}
		</section>
	);
}
