// The towers of a multimodal model and their projectors: what an image passes, stage by stage, or
// why that is not known.
import type { ModelData } from "../../lib/data";
import { grouped, shortCount } from "../../lib/format";
import { parseLayer } from "../../lib/settings";
import { change } from "../../lib/state";
import { layerTimes, tint, towersOf, fill, type Stage, type Tower } from "./plate_model";

const NAMES: Record<string, string> = {
	vision: "Vision tower",
	projector: "Projector",
	audio: "Audio tower",
	audio_projector: "Audio projector",
};
const isTowerName = (name: string): boolean => name in NAMES;

export const nameOfTower = (place: string): string => NAMES[place.split(".")[0]!] ?? place;

export interface TowerPlace {
	tower: Tower;
	/** Undefined where no stage is known. */
	stage: Stage | undefined;
	index: number;
}

/**
 * The part and the stage at a place such as "vision" or "vision.2"; without a number it is the one
 * with the most layers.
 */
export function towerAt(model: ModelData, place: number | string): TowerPlace | null {
	if (typeof place === "number") return null;
	const [name, number] = place.split(".");
	const tower = isTowerName(name!)
		? towersOf(model).parts.find((x) => x.name === name)
		: undefined;
	if (!tower) return null;
	const most = tower.stages.reduce(
		(best, x, i) => (layerTimes(x) > layerTimes(tower.stages[best]!) ? i : best),
		0,
	);
	const index = number !== undefined && tower.stages[Number(number)] ? Number(number) : most;
	return { tower, stage: tower.stages[index], index };
}

/** The parts that an image passes one after the other: the tower with its projector. */
const together = (model: ModelData, name: string): Tower[] =>
	towersOf(model).parts.filter((x) => x.name.startsWith("audio") === name.startsWith("audio"));

const HEIGHT = 46;
const MOST_BARS = 64;

/**
 * All stages in order, their layers as bars whose height is their parameters; a stage opens below.
 */
export function TowerStages({ model, place }: { model: ModelData; place: TowerPlace }) {
	const shown = together(model, place.tower.name).filter((x) => x.stages.length);
	const most = Math.max(1, ...shown.flatMap((x) => x.stages.map((y) => Number(y.parameters))));
	return (
		<ol class="tower-stages" aria-label="What an image passes">
			{shown.map((tower) =>
				tower.stages.map((stage, i) => (
					<li key={`${tower.name} ${i}`}>
						<button
							type="button"
							aria-pressed={tower.name === place.tower.name && i === place.index}
							data-stage={`${tower.name}.${i}`}
							onClick={() =>
								change({ layer: parseLayer(`${tower.name}.${i}`), zoom: "" })
							}
						>
							<Bars stage={stage} most={most} group={tower.name} />
							<span class="tower-stage-name">
								{stage.times === "1"
									? stage.name
									: `${grouped(stage.times)} × ${stage.name}`}
							</span>
							<span class="tower-stage-size">
								{stage.parameters === "0"
									? "no weights"
									: `${shortCount(stage.parameters)}${stage.times === "1" ? "" : " each"}`}
							</span>
						</button>
					</li>
				)),
			)}
		</ol>
	);
}

function Bars({ stage, most, group }: { stage: Stage; most: number; group: string }) {
	const n = Math.min(Number(stage.times), MOST_BARS);
	const [bar, gap] = n === 1 ? [30, 0] : [n > 40 ? 2 : 3, 1];
	const width = n * (bar + gap);
	const h = (Number(stage.parameters) / most) * (HEIGHT - 6);
	return (
		<svg
			class="data"
			width={width}
			height={HEIGHT}
			viewBox={`0 0 ${width} ${HEIGHT}`}
			aria-hidden="true"
		>
			{Array.from({ length: n }, (_, i) => (
				<rect
					key={i}
					x={i * (bar + gap)}
					y={HEIGHT - 5 - Math.max(h, 1)}
					width={bar}
					height={Math.max(h, 1)}
					style={{ fill: h < 1 ? tint(group) : fill(group) }}
				/>
			))}
			<path d={`M0 ${HEIGHT - 2}H${width}`} stroke="var(--ink)" stroke-width="3" />
		</svg>
	);
}

interface Row {
	path: string;
	shape: string[];
	copies: string;
	total: string;
}

/** A part whose weights are known, and nothing else. */
export function UnknownTower({ model, tower }: { model: ModelData; tower: Tower }) {
	const sections = model.sections as { where: string; rows: Row[] }[];
	const rows = sections
		.filter((x) => x.where === tower.name)
		.flatMap((x) => x.rows)
		.filter((x) => x.shape.length > 1);
	const [largest, rest] = [
		[...rows].sort((a, b) => (BigInt(a.total) < BigInt(b.total) ? 1 : -1)).slice(0, 12),
		Math.max(0, rows.length - 12),
	];
	return (
		<div>
			<p class="callout">
				{tower.unknown
					? `${tower.unknown[0]!.toUpperCase()}${tower.unknown.slice(1)}.`
					: "It computes nothing by itself."}{" "}
				Its largest weights:
			</p>
			<ul class="skipped">
				{largest.map((x) => (
					<li key={x.path}>
						<i class="swatch data" style={{ background: fill(tower.name) }} />{" "}
						<code>{x.path}</code> {x.shape.map((n) => grouped(n)).join(" × ")}
						{x.copies === "1" ? "" : ` × ${grouped(x.copies)}`}: {shortCount(x.total)}
					</li>
				))}
			</ul>
			{rest > 0 && (
				<p class="caption">and {grouped(rest)} more, which the section Tensors lists.</p>
			)}
		</div>
	);
}
