// Memory over the context as a stacked area, with the GPUs as dashed lines and the exact contexts
// at which they are full.
import { scaleLinear } from "../../lib/scales";
import { useMemo, useRef } from "preact/hooks";
import { Measured } from "../../components/measured";
import { openDerivation } from "../../components/number";
import { grouped, groupedNumber, shortTokens } from "../../lib/format";
import { areaPath } from "../../lib/lines";
import { textWidth } from "../../lib/measure_text";
import { shortTitle } from "../../lib/sizing/facts";
import type { Gpu, Sizes } from "../../lib/sizing/data";
import { ApproximateMemory, MemoryLimit, type Part, type Sized } from "../../lib/sizing/gpu_memory";
import { contextDerivation, crossingLabel } from "./memory_derivations";
import { PART_FILLS, Patterns } from "./patterns";

const GIB = 2 ** 30;
const POINTS = 96;
const BANDS: Record<Part, string> = {
	weights: "Weights",
	cache: "KV cache",
	activations: "Activations",
	logits: "Logits",
	overhead: "Overhead",
	gradients: "Gradients",
	master: "Master weights",
	optimizer: "Optimizer",
};
const SPINE: Record<string, string> = {
	embedding: "embed",
	attention: "attn",
	mixer: "attn",
	mlp: "ffn",
	experts: "experts",
	router: "router",
	norm: "norm",
	head: "head",
	vision: "vision",
	audio: "vision",
	projector: "vision",
};

export interface ChartRange {
	/** The largest context that is drawn. */
	tokens: number;
	/** The largest number of bytes. */
	bytes: number;
}

/**
 * Twice the model's own context, or a quarter more than what is chosen; in steps of powers of two,
 * so that a slider does not rescale it at each move.
 */
export function chartTokens(own: number, context: number): number {
	let end = own * 2;
	while (end < context * 1.1) end *= 2;
	return end;
}

/** A little more than the curve at its right end, or at the GPU just above. */
export function chartRange(
	memory: ApproximateMemory,
	tokens: number,
	gpus: readonly Gpu[],
): ChartRange {
	const most = memory.total(tokens);
	const above = Math.min(...gpus.map((x) => Number(x.memory)).filter((x) => x >= most));
	return {
		tokens,
		bytes:
			Math.max(
				most,
				above < most * 1.5 ? above : 0,
				Number(gpus[0]?.memory ?? 0) < most * 2 ? Number(gpus[0]?.memory ?? 0) : 0,
			) * 1.06,
	};
}

interface Props {
	name: string;
	sizes: Sizes;
	sized: Sized;
	context: number;
	range: ChartRange;
	gpus: readonly Gpu[];
}

interface Limit {
	gpus: Gpu[];
	y: number;
	at: bigint | null;
}

/** GPUs whose memory is in the picture; those of nearly equal memory share a line. */
function limitsOf(
	gpus: readonly Gpu[],
	limit: MemoryLimit,
	y: (n: number) => number,
	range: ChartRange,
): Limit[] {
	const found: Limit[] = [];
	for (const gpu of gpus.toSorted((a, b) => Number(BigInt(a.memory) - BigInt(b.memory)))) {
		if (Number(gpu.memory) > range.bytes) continue;
		const at = y(Number(gpu.memory) / GIB);
		const last = found.at(-1);
		if (last && last.y - at < 19) last.gpus.push(gpu);
		else found.push({ gpus: [gpu], y: at, at: limit.longestContext(BigInt(gpu.memory)) });
	}
	return found;
}

function ticks(end: number, own: number, width: number): number[] {
	const step = 2 ** Math.ceil(Math.log2(end / Math.max(Math.min(Math.floor(width / 90), 8), 2)));
	const found = Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => i * step);
	return found.includes(own)
		? found
		: [...found.filter((x) => Math.abs(x - own) > step * 0.45), own];
}

export const MemoryChart = (props: Props) => (
	<Measured class="memory-chart">{(width) => <Picture {...props} width={width} />}</Measured>
);

function Picture({ name, sizes, sized, context, range, gpus, width }: Props & { width: number }) {
	const marks = useRef<SVGSVGElement>(null);
	const { plan } = sized;
	const own = Number(sizes.own);
	const drawing = useMemo(() => {
		const narrow = width < 560;
		const height = Math.round(Math.min(Math.max(width * 0.5, 300), 400));
		const limit = new MemoryLimit(plan);
		const labels = gpus.map((x) => textWidth(shortTitle(x), 13, 650));
		const box = {
			left: 46,
			right: width - (narrow ? 12 : Math.max(...labels, 60) + 14),
			top: 26,
			bottom: height - 44,
		};
		const x = scaleLinear([0, range.tokens], [box.left, box.right]);
		const y = scaleLinear([0, range.bytes / GIB], [box.bottom, box.top]);
		const samples = Array.from({ length: POINTS + 1 }, (_, i) =>
			Math.max((range.tokens * i) / POINTS, 1),
		).map((tokens) => ({ tokens, parts: limit.approximate.parts(tokens) }));
		const lower = samples.map(() => 0);
		const bands = plan.parts.map((part) => {
			const points = samples.map((s, i): [number, number, number] => [
				x(s.tokens),
				y(lower[i]! / GIB),
				y((lower[i]! += s.parts[part] ?? 0) / GIB),
			]);
			const path = areaPath(points);
			return { part, path, points };
		});
		return { narrow, height, box, x, y, bands, limits: limitsOf(gpus, limit, y, range) };
	}, [
		drawingKey(sized),
		sizes,
		width,
		range.tokens,
		range.bytes,
		gpus.map((g) => `${g.name} ${g.memory}`).join(),
	]);
	const { narrow, height, box, x, y, bands, limits } = drawing;
	const weights = bands[0]!.points;
	const spine = useMemo(
		() => spineRects(sizes, sized, weights[0]![1], weights[0]![2], box.left, narrow ? 9 : 14),
		[drawing],
	);
	const drawnBands = useMemo(
		() =>
			bands.map(({ part, path }) => (
				<path
					key={part}
					class="data"
					d={path}
					fill={PART_FILLS[part]}
					stroke="var(--paper)"
					stroke-width="1"
				/>
			)),
		[drawing],
	);
	const crossings = useMemo(
		() => placeCrossings(limits, x, range.tokens, box, narrow),
		[drawing],
	);
	const drawnLabels = useMemo(
		() => [
			<Limits limits={limits} box={box} narrow={narrow} width={width} />,
			<BandLabels
				bands={bands}
				box={box}
				x={x}
				own={own}
				parts={plan.parts}
				taken={[
					...limits.map((l): Taken => [l.y, box.left, box.right]),
					...crossings.flatMap(({ label, y: line }): Taken[] => {
						const width = label ? textWidth(label.text, 13, 650) : 0;
						return label ? [[line - 13, ...extentOf(label, width)]] : [];
					}),
				]}
				narrow={narrow}
			/>,
		],
		[drawing],
	);
	const open = (gpu: Gpu, at: bigint) => openDerivation(contextDerivation(gpu, at, sized, name));
	const describe = `${name}: memory over the context. ${crossings.map((l) => `${l.gpus.map((g) => g.title).join(", ")} at ${grouped(l.at)} tokens`).join("; ")}`;
	const focusNext = (event: KeyboardEvent) => {
		const all = [...marks.current!.querySelectorAll<SVGGElement>("[role=button]")];
		const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
		const next = step && all[all.indexOf(event.currentTarget as SVGGElement) + step];
		if (next) {
			event.preventDefault();
			next.focus();
		}
	};
	const shown = Math.min(context, range.tokens);
	const ownX = x(own);
	const yTicks = y.ticks(Math.max(Math.floor((box.bottom - box.top) / 56), 3));
	return (
		<svg
			ref={marks}
			width={width}
			height={height}
			viewBox={`0 0 ${width} ${height}`}
			role="group"
			aria-label={describe}
		>
			<Patterns />
			{yTicks.map((n) => (
				<g key={n}>
					<path d={`M${box.left} ${y(n)}H${box.right}`} stroke="var(--rule)" />
					<text class="muted tabular" x={box.left - 8} y={y(n) + 4.5} text-anchor="end">
						{groupedNumber(n)}
					</text>
				</g>
			))}
			<text class="muted" x={0} y={14}>
				GiB
			</text>
			{drawnBands}
			{spine.map((s) => (
				<rect key={s.group} class="data spine" {...s.rect}>
					<title>{s.title}</title>
				</rect>
			))}
			{sizes.stated && (
				<>
					<rect
						x={ownX}
						y={box.top}
						width={Math.max(box.right - ownX, 0)}
						height={box.bottom - box.top}
						fill="url(#beyond)"
						opacity=".6"
					/>
					<path
						d={`M${ownX} ${box.top - 6}V${box.bottom + 6}`}
						stroke="var(--ink)"
						stroke-width="2"
					/>
					<OwnContextLabel x={ownX} y={box.top - 12} left={box.left} right={box.right} />
				</>
			)}
			<path
				d={`M${x(shown)} ${box.top}V${box.bottom}`}
				stroke="var(--ink)"
				stroke-width="1"
				stroke-dasharray="1 3"
			/>
			{drawnLabels}
			{crossings.map((l, i) => (
				<Crossing
					key={l.gpus[0]!.name}
					gpu={l.gpus[0]!}
					at={l.at}
					cx={x(Number(l.at))}
					cy={l.y}
					label={l.label}
					tabIndex={i ? -1 : 0}
					open={open}
					onKeyDown={focusNext}
				/>
			))}
			{ticks(range.tokens, own, box.right - box.left).map((n) => (
				<text
					key={n}
					class={n === own ? "bold tabular" : "muted tabular"}
					x={Math.min(x(n), box.right - 10)}
					y={box.bottom + 20}
					text-anchor={n === 0 ? "start" : "middle"}
				>
					{n === 0 ? "0" : shortTokens(n)}
				</text>
			))}
			<text class="muted" x={(box.left + box.right) / 2} y={height - 4} text-anchor="middle">
				context length, tokens
			</text>
		</svg>
	);
}

/** Everything that the curve depends on: all variables but the context. */
function drawingKey({ plan, dtype, split }: Sized): string {
	const variables = Object.entries(plan.variables).filter(([key]) => key !== "T");
	return [
		plan.mode,
		plan.label,
		dtype.name,
		split.layout.name,
		JSON.stringify(plan.training?.chosen),
		...variables,
	].join(" ");
}

function spineRects(
	sizes: Sizes,
	sized: Sized,
	bottom: number,
	top: number,
	left: number,
	width: number,
) {
	const groups = Object.entries(sizes.spine).map(([group, bytes]) => ({
		group,
		bytes: Number(bytes[sized.dtype.name] ?? 0),
	}));
	const whole = groups.reduce((a, g) => a + g.bytes, 0) || 1;
	let at = bottom;
	return groups.map(({ group, bytes }) => {
		const height = (bytes / whole) * (bottom - top);
		at -= height;
		const rect = {
			x: left,
			y: at,
			width,
			height: Math.max(height - (height > 4 ? 1.5 : 0), 0.5),
			fill: `var(--c-${SPINE[group] ?? "norm"})`,
		};
		return {
			group,
			rect,
			title: `${group}: ${((100 * bytes) / whole).toFixed(1)}% of the weight bytes`,
		};
	});
}

const OWN_CONTEXT = "the model’s own context";

function OwnContextLabel({
	x,
	y,
	left,
	right,
}: {
	x: number;
	y: number;
	left: number;
	right: number;
}) {
	const beyond = "beyond it: untrained";
	const room = (text: string) => x - left > textWidth(text, 13, 650) + 40;
	const own =
		room(OWN_CONTEXT) || right - x > textWidth(OWN_CONTEXT, 13, 650) + 10
			? OWN_CONTEXT
			: "own context";
	const fitsLeft = room(own);
	return (
		<>
			<text
				class="bold halo"
				x={fitsLeft ? x - 8 : x + 8}
				y={y + 4}
				text-anchor={fitsLeft ? "end" : "start"}
			>
				{own}
			</text>
			{fitsLeft && right - x > textWidth(beyond) + 16 && (
				<text class="muted halo" x={x + 8} y={y + 4}>
					{beyond}
				</text>
			)}
		</>
	);
}

type Band = { part: Part; points: [number, number, number][] };

/** The name of each band where it is tall enough for it; the key beside the chart has them all. */
function BandLabels({
	bands,
	box,
	x,
	own,
	parts,
	taken,
	narrow,
}: {
	bands: Band[];
	box: { left: number; right: number };
	x: (n: number) => number;
	own: number;
	parts: readonly Part[];
	taken: Taken[];
	narrow: boolean;
}) {
	return (
		<>
			{bands.map(({ part, points }) => {
				const label = BANDS[part];
				const width = textWidth(label, 13, 650);
				const place = Math.min(
					Math.max(x(own) * 0.72 + box.left * 0.28, box.left + 30 + width / 2),
					box.right - width / 2 - 8,
				);
				const [, low, high] = points.reduce((a, p) =>
					Math.abs(p[0] - place) < Math.abs(a[0] - place) ? p : a,
				);
				if (low - high < 22) return null;
				const patterned =
					part === "activations" || part === "logits" || part === "overhead";
				const ink =
					part === "cache"
						? "var(--on-kv)"
						: part === "master"
							? "var(--paper)"
							: "var(--ink)";
				// no line of a GPU and no words on it meet the name, and on phones the names of GPUs
				// stand at the left
				const middle = (low + high) / 2;
				const y = [0, 14, -14, 28, -28, 7, -7, 21, -21, 35, -35, 42, -42]
					.map((shift) => middle + shift)
					.find(
						(at) =>
							at < low - 10 &&
							at > high + 10 &&
							taken.every(
								([line, from, to]) =>
									Math.abs(line - at) > 12 ||
									to < place - width / 2 ||
									from > place + width / 2,
							),
					);
				if (y === undefined) return null;
				const [start, anchor] =
					part !== parts[0]
						? [place, "middle"]
						: narrow
							? [box.right - 10, "end"]
							: [box.left + 26, "start"];
				return (
					<text
						key={part}
						class="bold halo"
						x={start}
						y={y + 4.5}
						text-anchor={anchor as "start"}
						style={{ fill: ink, stroke: patterned ? "var(--paper)" : PART_FILLS[part] }}
					>
						{label}
					</text>
				);
			})}
		</>
	);
}

function Limits({
	limits,
	box,
	narrow,
	width,
}: {
	limits: Limit[];
	box: { left: number; right: number };
	narrow: boolean;
	width: number;
}) {
	return (
		<>
			{limits.map((l) => {
				const name =
					l.gpus.length > 1 &&
					!narrow &&
					textWidth(`${shortTitle(l.gpus[0]!)} +${l.gpus.length - 1}`, 13, 650) <
						width - box.right - 8
						? `${shortTitle(l.gpus[0]!)} +${l.gpus.length - 1}`
						: shortTitle(l.gpus[0]!);
				return (
					<g key={l.gpus[0]!.name}>
						<title>
							{l.gpus
								.map(
									(g) => `${g.title}: ${(Number(g.memory) / GIB).toFixed(1)} GiB`,
								)
								.join("; ")}
						</title>
						<path
							d={`M${box.left} ${l.y}H${box.right}`}
							stroke="var(--ink)"
							stroke-width="1.5"
							stroke-dasharray="5 4"
						/>
						{narrow ? (
							<text class="bold halo" x={box.left + 16} y={l.y - 5}>
								{name}
							</text>
						) : (
							<text class="bold" x={box.right + 8} y={l.y + 4.5}>
								{name}
							</text>
						)}
					</g>
				);
			})}
		</>
	);
}

interface PlacedLabel {
	x: number;
	anchor: "start" | "end";
	text: string;
}

/** What is at a height: a line or words, from left to right. */
type Taken = [y: number, from: number, to: number];

const extentOf = ({ x, anchor }: PlacedLabel, width: number): [number, number] =>
	anchor === "end" ? [x - width, x] : [x, x + width];

/** The crossings within the picture, each with a label where there is room for it. */
function placeCrossings(
	limits: Limit[],
	x: (n: number) => number,
	end: number,
	box: { left: number; right: number },
	narrow: boolean,
) {
	const occupied: [number, number, number][] = [];
	return limits.flatMap((l) => {
		if (!l.at || Number(l.at) > end) return [];
		const cx = x(Number(l.at));
		const text = `full at ${grouped(l.at)}`;
		const width = textWidth(text, 13, 650);
		// on a phone the name of the GPU stands at the left, above its line
		const start = narrow
			? box.left + 24 + textWidth(shortTitle(l.gpus[0]!), 13, 650)
			: box.left + 16;
		const sides: PlacedLabel[] = [
			{ x: cx - 10, anchor: "end", text },
			{ x: cx + 10, anchor: "start", text },
		];
		const isFree = (side: PlacedLabel) => {
			const [from, to] = extentOf(side, width);
			return (
				from > start &&
				to < box.right &&
				occupied.every(([a, b, y]) => b < from || a > to || Math.abs(y - l.y) > 17)
			);
		};
		const label = sides.find(isFree) ?? null;
		if (label) occupied.push([...extentOf(label, width), l.y]);
		return [{ gpus: l.gpus, y: l.y, at: l.at, label }];
	});
}

interface CrossingProps {
	gpu: Gpu;
	at: bigint;
	cx: number;
	cy: number;
	label: PlacedLabel | null;
	tabIndex: number;
	open: (gpu: Gpu, at: bigint) => void;
	onKeyDown: (event: KeyboardEvent) => void;
}

function Crossing({ gpu, at, cx, cy, label, tabIndex, open, onKeyDown }: CrossingProps) {
	const key = (event: KeyboardEvent) => {
		if (event.key !== "Enter" && event.key !== " ") return onKeyDown(event);
		event.preventDefault();
		open(gpu, at);
	};
	return (
		<g
			role="button"
			class="mark"
			tabIndex={tabIndex}
			data-crossing={gpu.name}
			aria-label={crossingLabel(gpu, at)}
			onClick={() => open(gpu, at)}
			onKeyDown={key}
		>
			<circle cx={cx} cy={cy} r="14" fill="transparent" stroke="none" />
			<circle class="dot" cx={cx} cy={cy} r="5.5" />
			{label && (
				<text class="bold halo tabular" x={label.x} y={cy - 8} text-anchor={label.anchor}>
					{label.text}
				</text>
			)}
		</g>
	);
}
