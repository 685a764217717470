// Every step of a block right below what it takes, with its wires, shape, parameters, FLOPs and
// what it caches.
import { useContext, useMemo, useState } from "preact/hooks";
import { NumberButton, openDerivation } from "../../components/number";
import { notation, sumOf, value, type Expression, type Variables } from "../../lib/expressions";
import { grouped, shortCount } from "../../lib/format";
import { LiveMarksOfLayer } from "../../lib/live_views";
import { formula, legend } from "../../lib/derivation";
import { textWidth } from "../../lib/measure_text";
import { LitSteps } from "../tour/tour_stops";
import { isMatrix } from "./contract";
import { hasMoved, type Mark } from "./layer_picture";
import { path, type Point } from "./layout";
import { wrapText } from "./measure";
import { fill, matrixShape, tint, type Stage, type Step } from "./plate_model";
import { shapeOf, stepDerivation } from "./step_derivation";

interface Props {
	stage: Stage;
	steps: Step[];
	width: number;
	letters: boolean;
	variables: Variables<bigint>;
	nameOf: (path: string) => string;
	walked: string | null;
	openMatrix: (step: Step, from: Element) => void;
	/** How a step compares with the layer of another model. */
	markOf?: (name: string) => Mark;
}

const LINE = 18;
const RAIL = 12;

/** Lanes for outputs that are read further down; lanes whose spans do not overlap are shared. */
function railsOf(names: string[], steps: Step[]): Map<string, number> {
	const at = new Map(names.map((x, i) => [x, i]));
	const last = new Map<string, number>();
	for (const step of steps)
		for (const x of step.takes)
			if (at.has(x) && at.get(step.name)! - at.get(x)! > 1)
				last.set(x, Math.max(last.get(x) ?? 0, at.get(step.name)!));
	const lanes = new Map<string, number>();
	const ends: number[] = [];
	for (const name of [...last.keys()].sort((a, b) => at.get(a)! - at.get(b)!)) {
		const free = ends.findIndex((end) => end < at.get(name)!);
		const lane = free < 0 ? ends.length : free;
		lanes.set(name, lane);
		ends[lane] = last.get(name)!;
	}
	return lanes;
}

/** Each step right below what it takes, so that few wires cross: q and its RoPE, then k. */
function inChains(steps: Step[]): Step[] {
	const names = new Set(steps.map((x) => x.name));
	const waiting = [...steps];
	const done = new Set<string>();
	const ordered: Step[] = [];
	const isReady = (x: Step) => x.takes.every((y) => !names.has(y) || done.has(y));
	while (waiting.length) {
		const last = ordered.at(-1)?.name;
		const next =
			waiting.find((x) => isReady(x) && last !== undefined && x.takes.includes(last)) ??
			waiting.find(isReady) ??
			waiting[0]!;
		waiting.splice(waiting.indexOf(next), 1);
		done.add(next.name);
		ordered.push(next);
	}
	return ordered;
}

export function BlockList({
	stage,
	steps: recorded,
	width,
	letters,
	variables,
	nameOf,
	walked,
	openMatrix,
	markOf,
}: Props) {
	const [hovered, setHovered] = useState<string | null>(null);
	const [focused, setFocused] = useState(0);
	const steps = useMemo(() => inChains(recorded), [recorded]);
	const inside = new Set(steps.map((x) => x.name));
	const inputs = [...new Set(steps.flatMap((x) => x.takes.filter((y) => !inside.has(y))))];
	const names = [...inputs, ...steps.map((x) => x.name)];
	const lanes = railsOf(names, steps);
	const numLanes = Math.max(0, ...[...lanes.values()].map((x) => x + 1));
	const left = 18 + numLanes * RAIL;
	const room = width - left - 26;
	const isWide = room > 620;
	const rows = names.map((name) => {
		const step = steps.find((x) => x.name === name);
		const does =
			step?.does ??
			(name === "x"
				? "the residual stream enters"
				: name === "per_layer_inputs"
					? "per-layer input"
					: "from the block before");
		const shape = step
			? shapeOf(step.shape, variables, letters)
			: name === "x"
				? shapeOf(stage.stream, variables, letters)
				: "";
		const title = step?.uses.length
			? nameOf(step.uses[0]!.path)
			: (step?.name.split(".").slice(-1)[0] ?? (name === "x" ? "residual stream" : name));
		const fits = textWidth(title, 14, 650) + textWidth(shape, 14) + 24 < room;
		const lines = isWide ? 2 : (fits ? 1 : 2) + wrapText(does, room - 12, 13).length + 1;
		return { name, step, does, shape, title, height: lines * LINE + 14 };
	});
	const tops = rows.map((_, i) => rows.slice(0, i).reduce((n, x) => n + x.height, 0));
	const height = rows.reduce((n, x) => n + x.height, 0);
	const yOf = new Map(rows.map((x, i) => [x.name, tops[i]! + 16]));
	const dotX = left - 8;
	const lit = useContext(LitSteps);
	const live = useContext(LiveMarksOfLayer);
	const chosen = (lit.size ? null : hovered) ?? walked;
	const active = new Set(
		chosen === null ? steps.filter((x) => lit.has(x.name)).map((x) => x.name) : [chosen],
	);
	const near = new Set([
		...active,
		...steps.filter((x) => active.has(x.name)).flatMap((x) => x.takes),
		...steps.filter((x) => x.takes.some((y) => active.has(y))).map((x) => x.name),
	]);
	const edges = steps.flatMap((step) =>
		step.takes.filter((x) => yOf.has(x)).map((from) => ({ from, to: step.name })),
	);
	const onStream = new Set([
		"x",
		...stage.steps.filter((x) => x.kind === "add").map((x) => x.name),
	]);
	const rowOf = new Map(rows.map((x, i) => [x.name, i]));
	const shownEdges = edges.map(({ from, to }): ShownEdge => ({
		from,
		to,
		y1: yOf.get(from)!,
		y2: yOf.get(to)!,
		lane: rowOf.get(to)! - rowOf.get(from)! === 1 ? null : lanes.get(from)!,
		isStream: onStream.has(from) && onStream.has(to),
		state: !active.size ? "" : active.has(from) ? "output" : active.has(to) ? "input" : "dim",
	}));
	const list = rows.filter((x) => x.step);
	const onKey = (event: KeyboardEvent, i: number) => {
		const to =
			event.key === "ArrowDown"
				? i + 1
				: event.key === "ArrowUp"
					? i - 1
					: event.key === "Home"
						? 0
						: event.key === "End"
							? list.length - 1
							: -1;
		if (to < 0 || to >= list.length) return;
		setFocused(to);
		(event.currentTarget as Element)
			.closest("ol")!
			.querySelectorAll<HTMLElement>("[data-step]")
			[to]!.focus();
		event.preventDefault();
		event.stopPropagation();
	};
	return (
		<div class={`block-list${active.size ? " has-active" : ""}`}>
			<svg
				class="block-rails"
				width={left}
				height={height}
				viewBox={`0 0 ${left} ${height}`}
				aria-hidden="true"
			>
				{shownEdges.map((x) => (
					<RailLine key={`${x.from} ${x.to}`} {...x} dotX={dotX} />
				))}
				{shownEdges
					.filter((x) => !x.isStream)
					.map((x) => (
						<RailEnds key={`${x.from} ${x.to}`} {...x} dotX={dotX} />
					))}
				{shownEdges
					.filter((x) => x.isStream)
					.map((x) => (
						<RailLine key={`stream ${x.from} ${x.to}`} {...x} dotX={dotX} isWhole />
					))}
				{rows.map((x) => (
					<circle
						key={x.name}
						cx={dotX}
						cy={yOf.get(x.name)}
						r={x.step?.kind === "add" ? 7 : 5}
						class={x.step?.kind === "add" || !x.step ? "sum" : ""}
						style={
							x.step && x.step.kind !== "add"
								? { fill: fill(x.step.kind === "cache" ? "cache" : x.step.color) }
								: undefined
						}
					/>
				))}
				{rows
					.filter((x) => x.step?.kind === "add")
					.map((x) => (
						<path
							key={x.name}
							class="plus"
							d={`M${dotX - 4} ${yOf.get(x.name)!}h8M${dotX} ${yOf.get(x.name)! - 4}v8`}
						/>
					))}
			</svg>
			<ol style={{ marginLeft: `${left}px` }}>
				{rows.map((x) => {
					const index = list.indexOf(x);
					const { step } = x;
					const matrix = step?.uses.find(isMatrix);
					return (
						<li
							key={x.name}
							class={`block-row${isWide ? " wide" : ""}${!active.size || near.has(x.name) ? "" : " dim"}${active.has(x.name) ? " active" : ""}`}
							style={{ height: `${x.height}px` }}
							onPointerMove={(event) => hasMoved(event) && setHovered(x.name)}
							onPointerLeave={() => setHovered(null)}
						>
							{step && matrix ? (
								<button
									type="button"
									class={`block-name${markOf?.(step.name) === "same" ? " is-same" : ""}`}
									data-zoom-step={step.name}
									tabindex={-1}
									onClick={(event) => openMatrix(step, event.currentTarget)}
								>
									<MatrixSketch use={matrix} color={step.color} />
									{markText(markOf, x.name)}
									{x.title}
								</button>
							) : (
								<span
									class={`block-name${markOf?.(x.name) === "same" ? " is-same" : ""}`}
								>
									{step && markText(markOf, x.name)}
									{x.title}
								</span>
							)}
							<span class="block-does">
								{x.does} {isWide && live && <code>{live.ofStep(x.name)}</code>}
							</span>
							{step ? (
								<button
									type="button"
									class="number shape"
									data-step={step.name}
									tabindex={index === focused ? 0 : -1}
									aria-haspopup="dialog"
									onFocus={() => (setFocused(index), setHovered(x.name))}
									onBlur={() => setHovered(null)}
									onKeyDown={(event) => onKey(event, index)}
									onClick={() =>
										openDerivation(stepDerivation(step, stage, variables))
									}
								>
									<span class="hidden">
										{x.title}, {step.does},{" "}
									</span>
									{x.shape}
								</button>
							) : (
								<span class="shape">{x.shape}</span>
							)}
							<span class="block-numbers">{step && numbersOf(step, variables)}</span>
						</li>
					);
				})}
			</ol>
		</div>
	);
}

const markText = (markOf: Props["markOf"], name: string): string =>
	markOf ? { same: "", differs: "≠ ", only: "+ " }[markOf(name)] : "";

function numbersOf(step: Step, variables: Variables<bigint>): string {
	const flops = value(step.flops, variables);
	const keeps = value(step.keeps, variables);
	return [
		step.parameters !== "0" && `${shortCount(step.parameters)} parameters`,
		flops > 0n && `${shortCount(flops)} FLOPs`,
		keeps > 0n && `${shortCount(keeps)} cached`,
	]
		.filter(Boolean)
		.join(" · ");
}

function MatrixSketch({ use, color }: { use: { shape: string[] }; color: string }) {
	const [rows, columns] = matrixShape(use.shape).slice(-2).map(Number) as [number, number];
	const most = Math.max(columns, rows);
	const [w, h] = [Math.max(2, (16 * columns) / most), Math.max(2, (16 * rows) / most)];
	return (
		<svg width="18" height="18" class="data" aria-hidden="true">
			<rect
				x={1 + (16 - w) / 2}
				y={1 + (16 - h) / 2}
				width={w}
				height={h}
				rx="1"
				style={{ fill: tint(color), stroke: fill(color) }}
			/>
		</svg>
	);
}

interface ShownEdge {
	from: string;
	to: string;
	y1: number;
	y2: number;
	/** The lane at the left; null for a wire to the next row. */
	lane: number | null;
	isStream: boolean;
	state: string;
}

const laneX = (dotX: number, lane: number) => dotX - 14 - lane * RAIL;

/** The part of a wire along its lane; the residual stream is one line, which nothing interrupts. */
function RailLine({
	y1,
	y2,
	lane,
	dotX,
	isStream,
	state,
	isWhole = false,
}: ShownEdge & { dotX: number; isWhole?: boolean }) {
	const kind = `plate-wire ${state}${isStream ? " stream-rail" : ""}`;
	if (lane === null)
		return (
			<g class={kind}>
				<path class="wire" d={`M${dotX} ${y1 + 6}V${y2 - 6}`} />
			</g>
		);
	const x = laneX(dotX, lane);
	return (
		<g class={kind}>
			<path
				class="wire"
				d={
					isWhole
						? `M${dotX - 5} ${y1 + 3}H${x}V${y2 - 3}H${dotX - 7}`
						: `M${x} ${y1 + 3}V${y2 - 3}`
				}
			/>
		</g>
	);
}

/** The ends of a wire, which pass over other lanes by bridges. */
function RailEnds({ y1, y2, lane, dotX, state }: ShownEdge & { dotX: number }) {
	if (lane === null) return null;
	const x = laneX(dotX, lane);
	const ends: [number, number][] = [
		[y1 + 3, dotX - 5],
		[y2 - 3, dotX - 7],
	];
	return (
		<g class={`plate-wire ${state}`}>
			{ends.map(([y, end], i) => [
				end - x > RAIL && (
					<path
						key={`halo${i}`}
						class="bridge"
						d={path([
							[x + 5, y],
							[end - 3, y],
						] as Point[])}
					/>
				),
				<path
					key={i}
					class="wire"
					d={path([
						[x - 0.7, y],
						[end, y],
					] as Point[])}
				/>,
			])}
			<path class="arrow" d={`M${dotX - 6} ${y2 - 3}l-6 -3v6Z`} />
		</g>
	);
}

/** Parameters, FLOPs and cached elements of some steps, each with its sum. */
export function Totals({
	name,
	steps,
	variables,
	isTower = false,
}: {
	name: string;
	steps: Step[];
	variables: Variables<bigint>;
	isTower?: boolean;
}) {
	const total = (key: "parameters" | "flops" | "keeps", unit: string) => {
		const parts = steps.filter((x) => String(x[key]) !== "0");
		const forms = parts.map((x): Expression => (key === "parameters" ? x.parameters : x[key]));
		const all = forms.length ? value(sumOf(forms), variables) : 0n;
		const derive = () => ({
			title: `${name}: ${unit}`,
			lines: [
				formula(
					parts
						.map(
							(x) =>
								`${x.name}: ${key === "parameters" ? grouped(x.parameters) : `${notation(x[key], variables, true)} = ${grouped(value(x[key], variables))}`}`,
						)
						.join("\n+ "),
					grouped(all),
				),
				forms.length ? legend(sumOf(forms)) : "",
			],
		});
		return (
			<NumberButton derive={derive} label={unit} data-block={key}>
				{grouped(all)}
			</NumberButton>
		);
	};
	if (isTower)
		return (
			<>
				{total("parameters", "parameters")} parameters · {total("flops", "FLOPs")} FLOPs for
				one image
			</>
		);
	return (
		<>
			{total("parameters", "parameters")} parameters · {total("flops", "FLOPs")} FLOPs for{" "}
			{variables.T === 1n ? "1 token" : `${grouped(variables.T!)} tokens`}
			{variables.B === 1n ? "" : ` of ${grouped(variables.B!)} sequences each`} ·{" "}
			{total("keeps", "elements in the cache")} cached elements
		</>
	);
}
