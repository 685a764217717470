// Memory over context and batch as a heat map, with the border of each GPU.
import { scaleLog } from "d3-scale";
import { useMemo } from "preact/hooks";
import { Measured } from "../../components/measured";
import type { ModelData } from "../../lib/data";
import { grouped, shortTokens, threeDigits } from "../../lib/format";
import { linePath } from "../../lib/lines";
import { textWidth } from "../../lib/measure_text";
import { change, type State } from "../../lib/state";
import { sizesOf, type Gpu } from "../../lib/sizing/data";
import { shortTitle } from "../../lib/sizing/facts";
import { ApproximateMemory, type Sized } from "../../lib/sizing/gpu_memory";

const GIB = 2 ** 30;
const NEAR = 2 ** 0.2;
const MOST_GUESSES = 40;
/** The height of a line of text. */
const LINE = 15;
const BATCHES = Array.from({ length: 9 }, (_, i) => 2 ** i);

/** Contexts in powers of two, to twice the model's own or to what is chosen. */
function contexts(own: number, chosen: number, width: number): number[] {
	const last = Math.max(Math.ceil(Math.log2(own)) + 1, Math.ceil(Math.log2(chosen)));
	const first = Math.max(last - (width < 480 ? 4 : 8), 0);
	return Array.from({ length: last - first + 1 }, (_, i) => 2 ** (first + i));
}

interface Border {
	gpu: Gpu;
	points: [number, number][];
	/** The points within the picture. */
	inside: [number, number][];
}

/**
 * The context at which a GPU is full, for a batch; in floating point. Memory grows nearly linearly,
 * so few guesses are needed.
 */
function fullAt(
	memory: ApproximateMemory,
	batch: number,
	bytes: number,
	low: number,
	high: number,
): number | null {
	const excess = (tokens: number) => memory.total(tokens, batch) - bytes;
	let [below, above] = [excess(low), excess(high)];
	if (below > 0) return null;
	if (above <= 0) return high;
	let wasBelow: boolean | null = null;
	for (let i = 0; i < MOST_GUESSES && high > low * (1 + 1e-9); i++) {
		const middle = low + ((high - low) * below) / (below - above);
		const found = excess(middle);
		if (Math.abs(found) < 1e-9 * bytes) return middle;
		const isBelow = found <= 0;
		// an end that stays twice counts half, so that it moves
		const weight = isBelow === wasBelow ? 0.5 : 1;
		if (isBelow) [low, below, above] = [middle, found, above * weight];
		else [high, above, below] = [middle, found, below * weight];
		wasBelow = isBelow;
	}
	return low;
}

/** The height at which a line passes a vertical. */
function crossingOf(points: [number, number][], x: number): number | null {
	for (let i = 1; i < points.length; i++) {
		const [[x0, y0], [x1, y1]] = [points[i - 1]!, points[i]!];
		if (x0 !== x1 && (x0 - x) * (x1 - x) <= 0) return y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
	}
	return null;
}

interface Box {
	right: number;
	top: number;
	bottom: number;
}

/** Where the names of the borders stand, and what they cover: [from, to, height]. */
function placeNames(borders: Border[], { right, top, bottom }: Box) {
	// a border that leaves the picture at the right is named there; one that ends at the bottom,
	// within
	const beside = borders
		.flatMap((b) => {
			const at = crossingOf(b.points, right);
			return at !== null && at > top && at < bottom
				? [{ name: shortTitle(b.gpu), from: at, y: at }]
				: [];
		})
		.toSorted((a, b) => a.y - b.y);
	beside.forEach((x, i) => (x.y = Math.max(x.y, top + 4, i ? beside[i - 1]!.y + LINE : 0)));
	beside
		.toReversed()
		.forEach((x, i) => (x.y = Math.min(x.y, i ? beside.at(-i)!.y - LINE : bottom - 4)));
	const occupied: [number, number, number][] = [];
	const labels = borders
		.filter((b) => !beside.some((x) => x.name === shortTitle(b.gpu)))
		.map((b) => {
			const name = shortTitle(b.gpu);
			const wide = textWidth(name, 12, 650);
			const place = [0.12, 0.3, 0.5, 0.7, 0.85]
				.map((s) => b.inside[Math.round(s * (b.inside.length - 1))]!)
				.find(
					(p) =>
						p[0] + 6 + wide < right &&
						p[1] > top + 14 &&
						p[1] < bottom - 4 &&
						occupied.every(
							([a, z, h]) =>
								z < p[0] || a > p[0] + wide + 8 || Math.abs(h - p[1]) > LINE,
						),
				);
			if (place) occupied.push([place[0], place[0] + wide + 8, place[1]]);
			return { name, place };
		});
	return { beside, labels, occupied };
}

interface Props {
	model: ModelData;
	sized: Sized;
	gpus: readonly Gpu[];
	state: State;
}

export const MemoryMap = (props: Props) => (
	<figure class="memory-map">
		<h3>Where each GPU ends: context × batch</h3>
		<p class="caption">
			GiB on the most loaded GPU, {props.sized.plan.label}, both axes logarithmic. A line is
			the border of a GPU: above and to the right of it, it is full. Choose a cell to set
			both.
		</p>
		<Measured isSlow>{(width) => <Picture {...props} width={width} />}</Measured>
	</figure>
);

function Picture({ model, sized, gpus, state, width }: Props & { width: number }) {
	const sizes = sizesOf(model);
	const { plan } = sized;
	const chosen = 2 ** Math.ceil(Math.log2(Number(state.context)));
	const key = [
		chosen > Number(sizes.own) ? chosen : 0,
		plan.label,
		sized.dtype.name,
		sized.kv.name,
		width,
		gpus.map((x) => x.memory),
	].join(" ");
	const drawing = useMemo(() => {
		const memory = new ApproximateMemory(plan);
		const across = contexts(Number(sizes.own), chosen, width);
		const left = 52;
		const names = Math.max(...gpus.map((g) => textWidth(shortTitle(g), 12, 650)));
		const right = width - names - 14;
		const cell = Math.max(30, Math.min(38, width / 26));
		const [top, bottom] = [8, 8 + BATCHES.length * cell];
		const columns = (right - left) / across.length;
		const [half, lowest, highest] = [
			Math.SQRT2,
			across[0]! / Math.SQRT2,
			across.at(-1)! * Math.SQRT2,
		];
		const x = scaleLog([lowest, highest], [left, right]);
		const y = scaleLog([1 / half, BATCHES.at(-1)! * half], [bottom, top]);
		const each = 1 / sized.split.replicas;
		// a border through the middle of a cell takes the place of its number
		const isCrossed = (tokens: number, batch: number) => {
			const [from, to] = [
				memory.total(tokens / NEAR, (batch / NEAR) * each),
				memory.total(tokens * NEAR, batch * NEAR * each),
			];
			return gpus.some((g) => Number(g.memory) > from && Number(g.memory) < to);
		};
		const cells = BATCHES.flatMap((batch, j) =>
			across.map((tokens, i) => ({
				batch,
				tokens,
				i,
				j,
				total: memory.total(tokens, Math.ceil(batch * each)),
				isCrossed: isCrossed(tokens, batch),
			})),
		);
		// borders are followed a little beyond the picture, which clips them
		const borders = gpus.flatMap((gpu): Border[] => {
			const points: [number, number][] = [];
			for (let i = 0; i <= 64; i++) {
				const batch = 0.25 * (BATCHES.at(-1)! * 16) ** (i / 64);
				const at = fullAt(
					memory,
					batch * each,
					Number(gpu.memory),
					lowest / 4,
					highest * 16,
				);
				if (at !== null) points.push([x(at), y(batch)]);
			}
			const isInside = ([px, py]: [number, number]) =>
				px > left && px < right && py > top && py < bottom;
			return points.some(isInside) ? [{ gpu, points, inside: points.filter(isInside) }] : [];
		});
		const [least, most] = [
			Math.min(...cells.map((c) => c.total)),
			Math.max(...cells.map((c) => c.total)),
		];
		const lines = borders.map((b) => (
			<path key={b.gpu.name} class="border" d={linePath(b.points)} />
		));
		return {
			across,
			left,
			right,
			top,
			bottom,
			cell,
			columns,
			x,
			y,
			cells,
			borders,
			lines,
			least,
			most,
			...placeNames(borders, { right, top, bottom }),
		};
	}, [key, sizes]);
	const {
		across,
		left,
		right,
		top,
		bottom,
		cell,
		columns,
		x,
		y,
		cells,
		borders,
		lines,
		least,
		most,
		beside,
		labels,
		occupied,
	} = drawing;
	const shade = (n: number) =>
		Math.min(Math.floor((5 * Math.log(n / least)) / (Math.log(most / least) || 1)), 4) + 1;
	const own = Number(sizes.own);
	const [nowX, nowY] = [x(Number(state.context)), y(Number(state.batch))];
	const text = (n: number) => threeDigits(n / GIB);
	// the line of the model's own context passes beside the numbers
	const shift = (c: { tokens: number }) =>
		sizes.stated && Math.abs(x(own) - x(c.tokens)) < 24 ? -columns / 4 : 0;
	const isChosen = (c: { tokens: number; batch: number }) =>
		Math.abs(x(c.tokens) - nowX) < columns / 2 && Math.abs(y(c.batch) - nowY) < cell / 2;
	const chosenCell = cells.findIndex((c) => isChosen(c));
	const fitsText = columns > textWidth(text(most), 12, 400) + 8;
	// a label takes the place of the numbers beneath it
	const isCovered = (c: { i: number; j: number }) =>
		occupied.some(
			([from, to, at]) =>
				left + (c.i + 0.5) * columns + 16 > from &&
				left + (c.i + 0.5) * columns - 16 < to &&
				Math.abs(bottom - (c.j + 0.5) * cell - at) < 14,
		);
	const drawCell = (c: (typeof cells)[number], isFree: boolean) => (
		<g
			key={`${c.i} ${c.j}`}
			class="map-cell"
			onClick={() => change({ context: String(c.tokens), batch: String(c.batch) })}
		>
			<title>{`${grouped(c.tokens)} tokens, batch ${c.batch}: ${text(c.total)} GiB`}</title>
			<rect
				x={left + c.i * columns + 1}
				y={bottom - (c.j + 1) * cell + 1}
				width={columns - 2}
				height={cell - 2}
				fill={`var(--ramp-${shade(c.total)})`}
			/>
			{fitsText && isFree && !c.isCrossed && !isCovered(c) && (
				<text
					x={left + (c.i + 0.5) * columns + shift(c)}
					y={bottom - (c.j + 0.5) * cell + 4}
					text-anchor="middle"
					class="map-number tabular"
					style={{ fill: shade(c.total) >= 4 ? "var(--paper)" : "var(--ink)" }}
				>
					{text(c.total)}
				</text>
			)}
		</g>
	);
	const allCells = useMemo(() => cells.map((c) => drawCell(c, true)), [drawing]);
	// the mark of the settings stands in place of a number
	const drawnCells = allCells.map((x, i) => (i === chosenCell ? drawCell(cells[i]!, false) : x));
	const inside = nowX > left && nowX < right && nowY > top && nowY < bottom;
	return (
		<svg
			width={width}
			height={bottom + 42}
			viewBox={`0 0 ${width} ${bottom + 42}`}
			role="group"
			aria-label={`Memory over context and batch: from ${text(least)} to ${text(most)} GiB; borders of ${borders.map((b) => b.gpu.title).join(", ") || "no GPU"}`}
		>
			{drawnCells}
			{sizes.stated && (
				<rect
					x={x(own)}
					y={top}
					width={Math.max(right - x(own), 0)}
					height={bottom - top}
					fill="url(#beyond)"
					opacity=".45"
					pointer-events="none"
				/>
			)}
			<clipPath id="map-clip">
				<rect x={left} y={top} width={right - left} height={bottom - top} />
			</clipPath>
			<g clip-path="url(#map-clip)">{lines}</g>
			{beside.map((l) => (
				<g key={l.name}>
					<path d={`M${right + 1} ${l.from}L${right + 8} ${l.y}`} stroke="var(--ink)" />
					<text class="bold map-label" x={right + 11} y={l.y + 4}>
						{l.name}
					</text>
				</g>
			))}
			{labels.map(
				(l) =>
					l.place && (
						<text
							key={l.name}
							class="bold halo map-label"
							x={l.place[0] + 6}
							y={l.place[1] + 4}
						>
							{l.name}
						</text>
					),
			)}
			{sizes.stated && own >= across[0]! && (
				<path d={`M${x(own)} ${top}V${bottom + 6}`} stroke="var(--ink)" stroke-width="2" />
			)}
			{inside && <circle class="dot" cx={nowX} cy={nowY} r="7" />}
			{BATCHES.map((n, j) => (
				<text
					key={n}
					class="muted tabular"
					x={left - 8}
					y={bottom - (j + 0.5) * cell + 4}
					text-anchor="end"
				>
					{n}
				</text>
			))}
			{across.map(
				(n, i) =>
					(columns > 44 || i % 2 === (across.length - 1) % 2) && (
						<text
							key={n}
							class={n === own ? "bold tabular" : "muted tabular"}
							x={left + (i + 0.5) * columns}
							y={bottom + 18}
							text-anchor="middle"
						>
							{shortTokens(n)}
						</text>
					),
			)}
			<text class="muted" x={(left + right) / 2} y={bottom + 38} text-anchor="middle">
				context length, tokens
			</text>
			<text
				class="muted"
				transform={`rotate(-90 12 ${(top + bottom) / 2})`}
				x={12}
				y={(top + bottom) / 2}
				text-anchor="middle"
			>
				sequences
			</text>
		</svg>
	);
}
