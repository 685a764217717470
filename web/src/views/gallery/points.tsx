// Models as points of a picture: one tab stop, arrow keys from point to point, a label at the one
// that is pointed at.
import { useEffect, useRef, useState } from "preact/hooks";
import { textWidth } from "../../lib/measure_text";
import { useAppState } from "../../lib/state";
import { linkTo, type Entry } from "./entries";

export interface Point {
	entry: Entry;
	x: number;
	y: number;
	size: number;
	/** What is said of it beside its name. */
	text: string;
}

/** Dense models are circles, mixtures of experts squares, hybrid and recurrent models diamonds. */
function shapeOf({ entry, x, y, size }: Point): string {
	const kinds = entry.kinds ?? [];
	if (kinds.includes("hybrid") || kinds.includes("recurrent"))
		return (
			`M${x} ${y - size * 1.2}l${size * 1.2} ${size * 1.2}l${-size * 1.2} ` +
			`${size * 1.2}l${-size * 1.2} ${-size * 1.2}z`
		);
	if (kinds.includes("moe"))
		return `M${x - size * 0.9} ${y - size * 0.9}h${size * 1.8}v${size * 1.8}h${-size * 1.8}z`;
	return (
		`M${x - size} ${y}a${size} ${size} 0 1 0 ${2 * size} 0a${size} ${size} 0 1 0 ` +
		`${-2 * size} 0z`
	);
}

interface Box {
	x: number;
	y: number;
	width: number;
}

const LINE = 16;
const overlaps = (a: Box, b: Box) =>
	a.x < b.x + b.width && b.x < a.x + a.width && Math.abs(a.y - b.y) < LINE;

/** Names for as many points as there is room for without overlaps, the first ones first. */
function placeLabels(points: Point[], order: Point[], width: number): Map<Point, Box> {
	const taken: Box[] = points.map((x) => ({ x: x.x - x.size, y: x.y, width: 2 * x.size }));
	const placed = new Map<Point, Box>();
	for (const point of order) {
		const wide = textWidth(point.entry.name, 13);
		const right = { x: point.x + point.size + 5, y: point.y, width: wide };
		const left = { x: point.x - point.size - 5 - wide, y: point.y, width: wide };
		const own = points.indexOf(point);
		const box = [right, left].find(
			(b) =>
				b.x >= 0 &&
				b.x + b.width <= width &&
				!taken.some((t, i) => i !== own && overlaps(b, t)),
		);
		if (!box) continue;
		placed.set(point, box);
		taken.push(box);
	}
	return placed;
}

interface Props {
	points: Point[];
	/** Whose names are written where there is room, the most important first. */
	named: Point[];
	width: number;
	height: number;
	label: string;
}

export function Points({ points, named, width, height, label }: Props) {
	const state = useAppState("with");
	const [at, setAt] = useState(-1);
	const [isPointed, setPointed] = useState(false);
	const ref = useRef<SVGGElement>(null);
	const byPlace = points.toSorted((a, b) => a.x - b.x || a.y - b.y);
	useEffect(() => setAt(-1), [points.length]);
	const labels = placeLabels(points, named, width);
	const chosen = byPlace[at];
	const move = (event: KeyboardEvent) => {
		const step = {
			ArrowRight: 1,
			ArrowLeft: -1,
			ArrowDown: 1,
			ArrowUp: -1,
			Home: -byPlace.length,
			End: byPlace.length,
		}[event.key];
		if (step === undefined) return;
		event.preventDefault();
		event.stopPropagation();
		const next = Math.max(0, Math.min(byPlace.length - 1, at + step));
		setAt(next);
		ref.current!.querySelectorAll<SVGElement>("a")[next]?.focus();
	};
	const nearest = (event: PointerEvent) => {
		const box = ref.current!.ownerSVGElement!.getBoundingClientRect();
		const shift = ref.current!.getCTM()!;
		const [x, y] = [event.clientX - box.left - shift.e, event.clientY - box.top - shift.f];
		let best = -1;
		let least = 24 ** 2;
		byPlace.forEach((p, i) => {
			const d = (p.x - x) ** 2 + (p.y - y) ** 2;
			if (d < least) [best, least] = [i, d];
		});
		setAt(best);
		setPointed(best >= 0);
	};
	return (
		<g
			ref={ref}
			role="group"
			aria-label={label}
			class="points"
			onKeyDown={move}
			onPointerMove={nearest}
			onPointerLeave={() => {
				setPointed(false);
				setAt(-1);
			}}
		>
			<rect
				class="catch"
				x="0"
				y="0"
				width={width}
				height={height}
				onClick={() => chosen && location.assign(linkTo(chosen.entry.id, state))}
			/>
			{byPlace.map((p, i) => (
				<a
					key={p.entry.id}
					href={linkTo(p.entry.id, state)}
					tabIndex={i === Math.max(0, at) ? 0 : -1}
					aria-label={`${p.entry.name}: ${p.text}`}
					data-model={p.entry.id}
					onFocus={() => {
						setAt(i);
						setPointed(true);
					}}
					onBlur={() => setPointed(false)}
				>
					<path class={`point ${i === at && isPointed ? "chosen" : ""}`} d={shapeOf(p)} />
				</a>
			))}
			{[...labels].map(
				([p, box]) =>
					p !== chosen && (
						<text
							key={p.entry.id}
							class="point-name"
							x={box.x}
							y={box.y + 4}
							aria-hidden="true"
						>
							{p.entry.name}
						</text>
					),
			)}
			{chosen && isPointed && <Callout point={chosen} width={width} height={height} />}
		</g>
	);
}

function Callout({ point, width, height }: { point: Point; width: number; height: number }) {
	const wide = Math.max(textWidth(point.entry.name, 13, 650), textWidth(point.text, 13)) + 20;
	const x = Math.max(0, Math.min(width - wide, point.x + 12));
	const y = point.y > height - 60 ? point.y - 60 : point.y + 12;
	return (
		<g class="point-callout" aria-hidden="true">
			<rect x={x} y={y} width={wide} height="46" rx="6" />
			<text class="bold" x={x + 10} y={y + 19}>
				{point.entry.name}
			</text>
			<text x={x + 10} y={y + 37}>
				{point.text}
			</text>
		</g>
	);
}

/** What the shapes of the points mean. */
export function ShapeKey() {
	const shapes: [string, string[]][] = [
		["dense", ["dense"]],
		["MoE", ["moe"]],
		["hybrid or recurrent", ["hybrid"]],
	];
	return (
		<p class="key">
			{shapes.map(([name, kinds]) => (
				<span key={name}>
					<svg width="14" height="14" aria-hidden="true">
						<path
							class="point"
							d={shapeOf({
								entry: { id: "", name: "", total: 0, kinds },
								x: 7,
								y: 7,
								size: 5,
								text: "",
							})}
						/>
					</svg>
					{name}
				</span>
			))}
		</p>
	);
}
