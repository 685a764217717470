// The whole model: towers, embedding, one bar per layer, norm and head on the residual stream.
// Height is parameters.
import { useState } from "preact/hooks";
import { grouped, shortCount } from "../../lib/format";
import { textWidth } from "../../lib/measure_text";
import { STACK_ORDER } from "../../lib/model_parts";
import { onActivate } from "../../lib/roving";
import { useIsAsked } from "../quiz/fields";
import { useIsAsking } from "../quiz/quiz_data";
import {
	colorOf,
	fill,
	kindAt,
	numLayers,
	tint,
	type GroupSize,
	type Part,
	type PlateData,
} from "./plate_model";

interface Props {
	plate: PlateData;
	width: number;
	/** The height of the bars. */
	barHeight: number;
	/** The parameters of a bar of this height; without it those of the model's tallest bar. */
	most?: number;
	/** The model before an edit: its outlines. */
	before?: PlateData;
	/** The open layer, or the name of an open part. */
	open: number | string;
	choose: (layer: number | string) => void;
}

const MAX_BREAK = 3;
const KIND_FILLS = ["var(--ramp-2)", "var(--ramp-5)", "var(--ramp-3)", "var(--panel)"];
/** The grey that marks the i-th kind of layer. */
export const kindFill = (i: number): string => KIND_FILLS[i % KIND_FILLS.length]!;

interface Slice {
	group: string;
	height: number;
	isIdle: boolean;
}

/**
 * The slices of a bar from the stream upwards; the active part of experts is below the idle one.
 */
function slicesOf(groups: GroupSize[], unit: number): Slice[] {
	const sorted = [...groups].sort(
		(a, b) => STACK_ORDER.indexOf(colorOf(a.group)) - STACK_ORDER.indexOf(colorOf(b.group)),
	);
	return sorted
		.flatMap((x) => {
			const [all, active] = [Number(x.parameters), Number(x.active)];
			const isExperts = x.group === "experts" && active < all;
			return [
				{ group: x.group, height: (isExperts ? active : all) * unit, isIdle: false },
				...(isExperts
					? [{ group: x.group, height: (all - active) * unit, isIdle: true }]
					: []),
			];
		})
		.filter((x) => x.height > 0.15);
}

const rectangle = (x: number, y: number, width: number, height: number): string =>
	`M${inShort(x)} ${inShort(y)}h${inShort(width)}v${inShort(height)}h${inShort(-width)}z`;
const inShort = (n: number): number => Math.round(n * 100) / 100;

/** Bars of the same groups: one path for each slice, as an edit moves all of them in each frame. */
function Bars({
	at,
	base,
	width,
	groups,
	unit,
	limit,
}: {
	at: readonly number[];
	base: number;
	width: number;
	groups: GroupSize[];
	unit: number;
	limit: number;
}) {
	let y = base;
	const slices = slicesOf(groups, unit);
	const whole = slices.reduce((n, s) => n + s.height, 0);
	const isBroken = whole > limit;
	const factor = isBroken ? limit / whole : 1;
	const gap = width > 3 ? 0.8 : 0.3;
	const atAll = (path: (x: number) => string) => at.map(path).join("");
	const shapes = slices.map((s, i) => {
		const h = s.height * factor;
		y -= h;
		const inner = Math.max(0.4, h - (h > 3 && i ? gap : 0));
		return s.isIdle ? (
			<path
				key={i}
				class="idle"
				d={atAll((x) =>
					rectangle(
						x + 0.35,
						y + 0.35,
						Math.max(0.3, width - 0.7),
						Math.max(0.3, inner - 0.7),
					),
				)}
				style={{
					fill: tint(s.group),
					stroke: fill(s.group),
					strokeWidth: width > 3 ? 0.8 : 0.4,
				}}
			/>
		) : (
			<path
				key={i}
				d={atAll((x) => rectangle(x, y, width, inner))}
				style={{ fill: fill(s.group) }}
			/>
		);
	});
	const half = width / 2 + 3;
	const crack = (x: number, dy: number) => `M${x - 3} ${base - limit + dy}l${half} -5l${half} 5`;
	return (
		<>
			{shapes}
			{isBroken && <path class="break" d={atAll((x) => crack(x, 20) + crack(x, 26))} />}
		</>
	);
}

/** Where parts and layers stand, from left to right. */
function placesOf(plate: PlateData, width: number) {
	const count = numLayers(plate);
	const isSmall = width < 600;
	const partWidth = isSmall ? 18 : 40;
	const gap = isSmall ? 6 : 10;
	const margin = isSmall ? 4 : 46;
	const towersWidth = plate.towers.length ? plate.towers.length * (partWidth + gap) + gap : 0;
	const ends = plate.before.length * (partWidth + gap);
	const head = plate.after.filter(
		(x) => x.groups.some((y) => y.group !== "norm") || !x.groups.length,
	);
	const norms = plate.after.filter((x) => !head.includes(x));
	const left = margin + towersWidth + ends + gap / 2;
	const right = width - margin - head.length * (partWidth + gap) - norms.length * 12 - gap / 2;
	const pitch = (right - left) / count;
	// at most one bar for two pixels: of more layers, every bar shows the first of the layers that
	// it stands for
	const perBar = Math.max(1, Math.ceil(2 / pitch));
	const barWidth =
		perBar > 1
			? pitch * perBar * 0.75
			: pitch > 6
				? pitch * 0.8
				: pitch > 3
					? pitch - 1
					: pitch * 0.75;
	const layerX = (layer: number) =>
		left + Math.floor(layer / perBar) * perBar * pitch + (pitch * perBar - barWidth) / 2;
	const place = new Map<string, [number, Part]>();
	plate.towers.forEach((x, i) => place.set(x.name, [margin + i * (partWidth + gap), x]));
	plate.before.forEach((x, i) =>
		place.set(x.name, [margin + towersWidth + i * (partWidth + gap), x]),
	);
	norms.forEach((x, i) => place.set(x.name, [right + gap / 2 + i * 12, x]));
	head.forEach((x, i) =>
		place.set(x.name, [right + gap / 2 + norms.length * 12 + i * (partWidth + gap), x]),
	);
	return {
		count,
		isSmall,
		partWidth,
		margin,
		towersWidth,
		norms,
		left,
		right,
		pitch,
		perBar,
		barWidth,
		layerX,
		place,
	};
}

/** The part "embedding", "head", or a tower. */
function partAt(plate: PlateData, open: string): Part | undefined {
	const tower = plate.towers.find((x) => x.name === open.split(".")[0]);
	return (
		tower ??
		plate[open === "embedding" ? "before" : "after"].findLast(
			(x) => x.groups.some((y) => y.group !== "norm") || !x.groups.length,
		)
	);
}

/** The horizontal extent of the open layer or part. */
export function openX(plate: PlateData, width: number, open: number | string): [number, number] {
	const { layerX, barWidth, place, partWidth } = placesOf(plate, width);
	if (typeof open === "number") return [layerX(open), layerX(open) + barWidth];
	const part = partAt(plate, open);
	const x = part ? place.get(part.name)![0] : 0;
	return [x, x + partWidth];
}

/** The parameters of the tallest bar; larger parts than `MAX_BREAK` layers are drawn broken. */
export function tallestBar(plate: PlateData): number {
	const largestLayer = Math.max(1, ...plate.kinds.map((x) => Number(x.sizes.parameters)));
	const parts = [...plate.before, ...plate.after, ...plate.towers].map((x) =>
		Number(x.parameters),
	);
	return Math.min(Math.max(largestLayer, ...parts), MAX_BREAK * largestLayer);
}

export function Skyline({ plate, width, barHeight, most, before, open, choose }: Props) {
	const [hovered, setHovered] = useState<number | string | null>(null);
	const isAsking = useIsAsking();
	const isAsked = useIsAsked();
	const {
		count,
		isSmall,
		partWidth,
		margin,
		towersWidth,
		norms,
		left,
		right,
		pitch,
		perBar,
		barWidth,
		layerX,
		place,
	} = placesOf(plate, width);
	const unit = barHeight / (most ?? tallestBar(plate));
	const top = 28;
	const base = top + barHeight;
	const towers = plate.towers;
	const bars = Array.from({ length: Math.ceil(count / perBar) }, (_, i) => i * perBar);
	const barsOf = (kind: number) => bars.filter((i) => kindAt(plate, i) === kind);
	const kindHeight = plate.kinds.length > 1 ? 8 : 0;
	const streamY = base + 8 + (kindHeight ? kindHeight + 4 : 0);
	const labelY = streamY + 22;
	const openLayer = typeof open === "number" ? open : -1;
	const openPart = typeof open === "number" ? undefined : partAt(plate, open);
	const placeOf = (part: Part) =>
		towers.includes(part) ? part.name : plate.before.includes(part) ? "embedding" : "head";
	const at = (event: MouseEvent) => {
		const x =
			event.clientX -
			(event.currentTarget as SVGElement).ownerSVGElement!.getBoundingClientRect().left;
		return Math.max(0, Math.min(count - 1, Math.floor((x - left) / pitch)));
	};
	const describe = (layer: number) => {
		const kind = plate.kinds[kindAt(plate, layer)]!;
		const active =
			kind.sizes.active === kind.sizes.parameters
				? ""
				: `, ${shortCount(kind.sizes.active)} active`;
		if (isAsking) return `layer ${grouped(layer)}: ${kind.label}`;
		return (
			`layer ${grouped(layer)}: ${kind.label}, ${shortCount(kind.sizes.parameters)} ` +
			`parameters${active}`
		);
	};
	const textOf = (part: Part) => (isAsking ? part.name : partText(part));
	const say =
		hovered === null
			? null
			: typeof hovered === "number"
				? describe(hovered)
				: textOf(place.get(hovered)![1]);
	const onKey = (event: KeyboardEvent) => {
		const step = {
			ArrowRight: 1,
			ArrowUp: 1,
			ArrowLeft: -1,
			ArrowDown: -1,
			PageUp: 8,
			PageDown: -8,
		}[event.key];
		const to =
			event.key === "Home"
				? 0
				: event.key === "End"
					? count - 1
					: step === undefined
						? null
						: Math.max(0, Math.min(count - 1, Math.max(0, openLayer) + step));
		if (to === null) return;
		choose(to);
		event.preventDefault();
	};
	const pattern =
		plate.pattern.join("; ") || (count > 1 ? `${grouped(count)} layers, all alike` : "1 layer");
	const middle = (left + right) / 2;
	const [openLeft, openRight] = openX(plate, width, open);
	const markX = (openLeft + openRight) / 2;
	const openHeight = Math.min(
		barHeight,
		(openLayer >= 0
			? Number(plate.kinds[kindAt(plate, openLayer)]!.sizes.parameters)
			: Number(openPart?.parameters ?? 0)) * unit,
	);
	const headline =
		say ??
		(isSmall
			? "height = parameters"
			: `one bar per ${perBar > 1 ? `${perBar} layers` : "layer"}, height = parameters`);
	// the mark above the open bar would stand in the words
	const isMarkRight = markX > width - textWidth(headline) - 16 && base - openHeight < 32;
	return (
		<svg
			class="skyline data"
			width={width}
			height={labelY + 10}
			viewBox={`0 0 ${width} ${labelY + 10}`}
			role="group"
			aria-label={`The whole model: ${pattern}`}
		>
			<text
				class="muted"
				x={isMarkRight ? 0 : width}
				y={14}
				text-anchor={isMarkRight ? "start" : "end"}
			>
				{headline}
			</text>
			{plate.kinds.map(({ sizes }, kind) => (
				<g key={kind} data-bars={kind} class={isAsked("") ? "asked" : ""}>
					<Bars
						at={barsOf(kind).map(layerX)}
						base={base}
						width={barWidth}
						groups={sizes.groups}
						unit={unit}
						limit={barHeight}
					/>
				</g>
			))}
			{before && (
				<path
					class="before"
					d={bars
						.filter((i) => i < numLayers(before))
						.map((i) => {
							const { sizes } = before.kinds[kindAt(before, i)]!;
							const h = Math.min(barHeight, Number(sizes.parameters) * unit);
							return `M${inShort(layerX(i))} ${inShort(base - h)}h${inShort(barWidth)}`;
						})
						.join("")}
				/>
			)}
			{kindHeight > 0 &&
				plate.kinds.map((_, kind) => (
					<path
						key={`k${kind}`}
						class="kind-mark"
						d={barsOf(kind)
							.map((i) => rectangle(layerX(i), base + 4, barWidth, kindHeight - 1))
							.join("")}
						style={{ fill: kindFill(kind) }}
					/>
				))}
			{!isSmall && <path class="thin-stream" d={`M0 ${streamY}H${width}`} />}
			<path class="stream" d={`M${margin + towersWidth} ${streamY}H${width - margin}`} />
			{!isSmall && (
				<text class="muted" x={0} y={streamY - 8}>
					{towers.length ? "" : "tokens"}
				</text>
			)}
			{!isSmall && (
				<text class="muted" x={width} y={streamY - 8} text-anchor="end">
					logits
				</text>
			)}
			{[...place].map(([name, [x, part]]) => {
				const isNorm = norms.includes(part);
				const w = isNorm ? 6 : partWidth;
				const h = Math.max(isNorm ? 14 : 2, Number(part.parameters) * unit);
				const choosable =
					!towers.includes(part) || /^(vision|audio|(audio_)?projector)$/.test(part.name);
				return (
					<g
						key={name}
						class={`skyline-part${choosable ? " choosable" : ""}${isAsked(name) ? " asked" : ""}`}
						tabindex={choosable && !isNorm ? 0 : undefined}
						role={choosable && !isNorm ? "button" : "img"}
						aria-label={textOf(part)}
						data-part-name={name}
						onPointerEnter={() => setHovered(name)}
						onPointerLeave={() => setHovered(null)}
						onFocus={() => setHovered(name)}
						onBlur={() => setHovered(null)}
						onClick={() => choosable && choose(placeOf(part))}
						onKeyDown={(event) =>
							choosable && onActivate(() => choose(placeOf(part)))(event)
						}
					>
						<rect class="hit" x={x - 2} y={top} width={w + 4} height={barHeight} />
						{part.tied ? (
							<rect
								class="tied"
								x={x + 0.75}
								y={base - 24}
								width={w - 1.5}
								height={24}
								style={{ stroke: fill("head") }}
							/>
						) : isNorm ? (
							<rect
								x={x}
								y={base - h}
								width={w}
								height={h}
								style={{ fill: fill("norm") }}
							/>
						) : (
							<Bars
								at={[x]}
								base={base}
								width={w}
								groups={part.groups}
								unit={unit}
								limit={barHeight}
							/>
						)}
					</g>
				);
			})}
			<path class="open-mark" d={`M${markX} ${base - openHeight - 4}l-6 -9h12z`} />
			<rect
				class="hit layers-hit"
				x={left}
				y={top - 12}
				width={Math.max(0, right - left)}
				height={barHeight + 24}
				tabindex={0}
				role="slider"
				aria-label="Layer"
				aria-valuemin={0}
				aria-valuemax={count - 1}
				aria-valuenow={Math.max(0, openLayer)}
				aria-valuetext={describe(Math.max(0, openLayer))}
				onPointerMove={(event) => (
					setHovered(at(event)),
					event.buttons === 1 && at(event) !== openLayer && choose(at(event))
				)}
				onPointerLeave={() => setHovered(null)}
				onClick={(event) => choose(at(event))}
				onKeyDown={onKey}
			/>
			<SkylineLabels
				place={place}
				partWidth={partWidth}
				y={labelY}
				pattern={pattern}
				middle={middle}
				width={width}
			/>
		</svg>
	);
}

const partText = (part: Part): string =>
	`${part.name}: ${part.tied ? `tied to ${part.tied.replace(/\.weight$/, "")}, no parameters of its own` : `${shortCount(part.parameters)} parameters`}${part.layers !== "0" ? `, ${part.layers} layers` : ""}`;

/** Names below the stream: of the parts where there is room, and of the pattern. */
function SkylineLabels({
	place,
	partWidth,
	y,
	pattern,
	middle,
	width,
}: {
	place: Map<string, [number, Part]>;
	partWidth: number;
	y: number;
	pattern: string;
	middle: number;
	width: number;
}) {
	const patternWidth = textWidth(pattern, 13, 650);
	const from = Math.max(0, Math.min(middle - patternWidth / 2, width - patternWidth));
	const taken: [number, number][] = [[from - 8, from + patternWidth + 8]];
	const labels: [number, string, "start" | "middle" | "end"][] = [];
	for (const [name, [x, part]] of place) {
		if (part.groups.every((g) => g.group === "norm") && part.groups.length) continue;
		const long =
			{ embed: "embedding", head: place.has("norm") && width > 600 ? "norm, head" : "head" }[
				name
			] ?? name;
		for (const text of new Set([long, name])) {
			const w = textWidth(text);
			const start = Math.max(0, Math.min(x + partWidth / 2 - w / 2, width - w));
			if (taken.every(([a, b]) => start + w < a || start > b)) {
				labels.push([start, text, "start"]);
				taken.push([start - 8, start + w + 8]);
				break;
			}
		}
	}
	return (
		<>
			{labels.map(([x, text]) => (
				<text key={text} class="muted" x={x} y={y}>
					{text}
				</text>
			))}
			<text class="bold" x={from} y={y}>
				{pattern}
			</text>
		</>
	);
}
