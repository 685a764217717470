// Kinship: who was the first to have a block, and the nearest earlier model of each model as a
// family tree by date.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { textWidth } from "../../lib/measure_text";
import { scaleLinear } from "../../lib/scales";
import { useAppState } from "../../lib/state";
import { useWidth } from "../../lib/use_width";
import { month } from "./columns";
import { byId, gallery, linkTo, type Entry } from "./entries";
import { ModelLink, useModelStop } from "./model_link";
import { dateOf } from "./plot";

const [ROW, TEXT, MAX_SAID, YEAR] = [20, 13, 8, 52];

const byDate = (a: Entry, b: Entry) =>
	(a.released ?? "").localeCompare(b.released ?? "") ||
	Number(a.total) - Number(b.total) ||
	a.id.localeCompare(b.id);

/** Describes a model in words. */
function kinText({ name, kin }: Entry): string {
	if (!kin) return name;
	const texts = kin.changes.map((x) => x[1]);
	const more = texts.length - MAX_SAID;
	return texts.length
		? `${name} is ${kin.name} with ${texts.slice(0, MAX_SAID).join("; ")}${more > 0 ? `; ${more} more` : ""}`
		: `${name} is ${kin.name}`;
}

interface Place {
	entry: Entry;
	row: number;
	parent: Place | null;
}

/** Each model below its ancestor, the earlier ones first. */
function placed(models: Entry[]): Place[] {
	const shown = new Set(models.map((x) => x.id));
	const children = new Map<string, Entry[]>();
	for (const x of models.toSorted(byDate)) {
		const of = x.kin && shown.has(x.kin.of) ? x.kin.of : "";
		children.set(of, [...(children.get(of) ?? []), x]);
	}
	const places: Place[] = [];
	const waiting = (children.get("") ?? [])
		.map((entry): Place => ({ entry, row: 0, parent: null }))
		.reverse();
	while (waiting.length) {
		const place = waiting.pop()!;
		place.row = places.length;
		places.push(place);
		for (const entry of (children.get(place.entry.id) ?? []).toReversed())
			waiting.push({ entry, row: 0, parent: place });
	}
	return places;
}

export function Kinship({ models }: { models: Entry[] }) {
	const [ref, width] = useWidth<HTMLDivElement>();
	const dated = models.filter((x) => dateOf(x) !== null && x.kin !== undefined);
	const places = useMemo(() => placed(dated), [models, dated.length]);
	const undated = models.filter((x) => dateOf(x) === null);
	// of a served gallery, which has the presets that they are
	const launched = models.filter((x) => x.id.startsWith("~") && dateOf(x) !== null && !x.kin);
	return (
		<section class="picture" aria-label="Kinship">
			<h2>Who comes from whom</h2>
			<Firsts />
			<h3>The nearest earlier model of each</h3>
			<p class="caption">
				Each model stands below the earlier one from which it is made with the fewest
				changes: of blocks, then of rules, then of sizes. A solid line: the same blocks; a
				dashed line: other blocks. Dates are those of the catalog; what a model was really
				made of is not asked.
			</p>
			<Missing models={dated} />
			<div ref={ref}>
				{places.length > 0 && width > 0 && <Tree places={places} width={width} />}
			</div>
			{!places.length && <p class="callout">No model with a release date matches.</p>}
			{launched.length > 0 && (
				<p class="caption">
					Drawn as their presets alone: {launched.map((x) => x.name).join(", ")}.
				</p>
			)}
			{undated.length > 0 && (
				<p class="caption">
					Without a known date: {undated.map((x) => x.name).join(", ")}.
				</p>
			)}
		</section>
	);
}

/** The nearest earlier models that are not drawn, so that no line leads to them. */
function Missing({ models }: { models: Entry[] }) {
	const shown = new Set(models.map((x) => x.id));
	const missing = models.filter((x) => x.kin && !shown.has(x.kin.of)).toSorted(byDate);
	const more = missing.length - MAX_SAID;
	if (!missing.length) return null;
	return (
		<p class="caption kin-missing">
			Not shown here:{" "}
			{missing
				.slice(0, MAX_SAID)
				.map((x) => `${x.kin!.name}, the nearest of ${x.name}`)
				.join("; ")}
			{more > 0 && `; ${more} more`}.
		</p>
	);
}

/** The first model that has a block or a rule, among those of the gallery whose date is known. */
function Firsts() {
	const known = gallery.models.filter((x) => x.released && x.has).length;
	const found = useMemo(() => {
		const seen = new Map<string, Entry>();
		for (const x of gallery.models.filter((y) => y.released).toSorted(byDate))
			for (const what of x.has ?? []) if (!seen.has(what)) seen.set(what, x);
		return [...seen];
	}, [known]);
	const stop = useModelStop(found.map((x) => x[1]));
	return (
		<details class="firsts">
			<summary class="button">The first model with each of {found.length} blocks</summary>
			<ul>
				{found.map(([what, entry]) => (
					<li key={what}>
						<span class="caption">{month(entry.released!)}</span> {what}:{" "}
						<ModelLink entry={entry} stop={stop(entry)} />
					</li>
				))}
			</ul>
		</details>
	);
}

/** An axis from the year of the first date to the last date, with as many years as have room. */
function years(dates: number[], room: number) {
	const last = Math.max(...dates);
	const [from, to] = [Math.min(...dates), last].map((x) => new Date(x).getUTCFullYear());
	const at = scaleLinear([Date.UTC(from!, 0), last + 1], [8, room]);
	const every = Math.ceil(((to! - from! + 1) * YEAR) / Math.max(YEAR, room));
	const ticks = Array.from({ length: Math.floor((to! - from!) / every) + 1 }, (_, i) => {
		const year = from! + i * every;
		return [at(Date.UTC(year, 0)), String(year)] as const;
	});
	return { at, ticks };
}

function Tree({ places, width }: { places: Place[]; width: number }) {
	const { with: first } = useAppState("with");
	const picture = useRef<SVGSVGElement>(null);
	const [at, setAt] = useState<string>("");
	const stop = useModelStop(places.map((x) => x.entry));
	const right = Math.min(
		width * 0.5,
		Math.max(...places.map((x) => textWidth(x.entry.name, TEXT))) + 12,
	);
	const room = width - right - 8;
	const dates = years(
		places.map((x) => dateOf(x.entry)!),
		room,
	);
	const height = places.length * ROW + 40;
	const x = (place: Place) => dates.at(dateOf(place.entry)!);
	const y = (place: Place) => 34 + place.row * ROW;
	useEffect(() => {
		const element = picture.current!;
		const look = (event: Event) => {
			const row = (event.target as Element).closest<SVGElement>("[data-model]");
			if (row) setAt(row.dataset.model!);
		};
		element.addEventListener("pointerover", look);
		element.addEventListener("focusin", look);
		return () => {
			element.removeEventListener("pointerover", look);
			element.removeEventListener("focusin", look);
		};
	}, []);
	return (
		<>
			<p class="kin-text no-print" aria-hidden="true">
				{byId.has(at) ? kinText(byId.get(at)!) : "Point at a model to read its changes."}
			</p>
			<svg
				ref={picture}
				width={width}
				height={height}
				class="data kin models"
				role="group"
				aria-label={`${places.length} models, each below its nearest earlier one`}
			>
				{dates.ticks.map(([tick, text]) => (
					<g key={text}>
						<path class="grid" d={`M${tick} 20v${height - 20}`} />
						<text
							class="muted tabular"
							x={tick}
							y={14}
							text-anchor={tick > room - 20 ? "end" : tick < 16 ? "start" : "middle"}
						>
							{text}
						</text>
					</g>
				))}
				{places.map(
					(p) =>
						p.parent && (
							<path
								key={p.entry.id}
								class={`kin-line ${p.entry.kin!.changes[0]?.[0] === "block" ? "changed" : ""} ${
									at === p.entry.id ? "chosen" : ""
								}`}
								d={`M${x(p.parent).toFixed(1)} ${y(p.parent)}V${y(p)}H${x(p).toFixed(1)}`}
							/>
						),
				)}
				{places.map((p) => (
					<a
						key={p.entry.id}
						class="model"
						href={linkTo(p.entry.id, { with: first })}
						data-model={p.entry.id}
						aria-label={`${month(p.entry.released!)}: ${kinText(p.entry)}`}
						{...stop(p.entry)}
					>
						<rect
							class="catch"
							x={x(p) - 8}
							y={y(p) - ROW / 2}
							width={width}
							height={ROW}
						/>
						<circle class="kin-dot" cx={x(p)} cy={y(p)} r="3.5" />
						<text x={x(p) + 8} y={y(p) + 4}>
							{p.entry.name}
						</text>
					</a>
				))}
			</svg>
		</>
	);
}
