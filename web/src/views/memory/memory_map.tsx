// Memory over context and batch as a heat map, with the border of each GPU.
import { useMemo } from "preact/hooks";
import { SubHeading } from "../../components/section";
import { Measured } from "../../components/measured";
import type { ModelData } from "../../lib/data";
import { grouped, shortBytes, shortTokens, threeDigits } from "../../lib/format";
import { textWidth } from "../../lib/measure_text";
import { change, type State } from "../../lib/state";
import { sizesOf, type Gpu } from "../../lib/sizing/data";
import { shortTitle } from "../../lib/sizing/facts";
import { ApproximateMemory, type Sized } from "../../lib/sizing/gpu_memory";

const GIB = 2 ** 30;
const TIB = 2 ** 40;
/** The width of a cell with its number. */
const MIN_COLUMN = 42;
/** The height of a line of text. */
const LINE = 15;
const BATCHES = Array.from({ length: 9 }, (_, i) => 2 ** i);

/** Contexts in powers of two, to twice the model's own or to what is chosen. */
function contexts(own: number, chosen: number, count: number): number[] {
	const last = Math.max(Math.ceil(Math.log2(own)) + 1, Math.ceil(Math.log2(chosen)));
	const first = Math.max(last - count + 1, 0);
	return Array.from({ length: last - first + 1 }, (_, i) => 2 ** (first + i));
}

/** A line along the edges of the cells that a GPU holds. */
interface Border {
	gpu: Gpu;
	path: string;
	/** Where it ends at the right; null where it ends at the bottom. */
	endY: number | null;
	endX: number;
}

/** The names at the right of the picture: as near as they stand clear of each other. */
function namesBeside(borders: Border[], top: number, bottom: number) {
	const beside = borders
		.flatMap((b) =>
			b.endY === null ? [] : [{ name: shortTitle(b.gpu), from: b.endY, y: b.endY }],
		)
		.toSorted((a, b) => a.y - b.y);
	beside.forEach((x, i) => (x.y = Math.max(x.y, top + 4, i ? beside[i - 1]!.y + LINE : 0)));
	beside
		.toReversed()
		.forEach((x, i) => (x.y = Math.min(x.y, i ? beside.at(-i)!.y - LINE : bottom - 4)));
	return beside;
}

/** The names below the picture, in rows. */
function namesBelow(borders: Border[], left: number, right: number) {
	const taken: number[] = [];
	return borders
		.filter((b) => b.endY === null)
		.toSorted((a, b) => a.endX - b.endX)
		.map((b) => {
			const name = shortTitle(b.gpu);
			const wide = textWidth(name, 12, 650);
			const x = Math.max(left, Math.min(b.endX - wide / 2, right - wide));
			const free = taken.findIndex((end) => end < x - 8);
			const row = free < 0 ? taken.length : free;
			taken[row] = x + wide;
			return { name, x, row, at: b.endX };
		});
}

interface Props {
	model: ModelData;
	sized: Sized;
	gpus: readonly Gpu[];
	state: Pick<State, "context" | "batch">;
}

export const MemoryMap = (props: Props) => (
	<figure class="memory-map">
		<SubHeading>Where each GPU is full: context × batch</SubHeading>
		<p class="caption">
			GiB on the most loaded GPU, {props.sized.plan.label}, both axes logarithmic. Below and
			to the left of its line, a GPU has enough memory. The stronger the tone, the fewer GPUs
			have enough.
			{props.sized.sizes.stated && " Italic: longer than the model’s own context."} Choose a
			cell to set both.
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
		const left = 52;
		const names = Math.max(...gpus.map((g) => textWidth(shortTitle(g), 12, 650)));
		const right = width - names - 14;
		const cell = Math.max(30, Math.min(38, width / 26));
		const [top, bottom] = [8, 8 + BATCHES.length * cell];
		const most = Math.max(3, Math.min(9, Math.floor((right - left) / MIN_COLUMN)));
		const across = contexts(Number(sizes.own), chosen, most);
		const columns = (right - left) / across.length;
		const each = 1 / sized.split.replicas;
		const cells = BATCHES.flatMap((batch, j) =>
			across.map((tokens, i) => ({
				batch,
				tokens,
				i,
				j,
				total: memory.total(tokens, Math.ceil(batch * each)),
			})),
		);
		const isHeld = (gpu: Gpu, c: { total: number }) => c.total <= Number(gpu.memory);
		const borders = gpus.flatMap((gpu): Border[] => {
			const heights = across.map(
				(_, i) => cells.filter((c) => c.i === i && isHeld(gpu, c)).length,
			);
			if (heights.every((n) => n === BATCHES.length) || heights.every((n) => !n)) return [];
			const at = (i: number) => bottom - heights[i]! * cell;
			const path = heights.map((n, i) => {
				const [from, to] = [left + i * columns, left + (i + 1) * columns];
				const down = i + 1 < heights.length ? at(i + 1) : null;
				const isEdge = n === 0 || n === BATCHES.length;
				return (
					(isEdge ? "" : `M${from} ${at(i)}H${to}`) +
					(down === null || down === at(i) ? "" : `M${to} ${at(i)}V${down}`)
				);
			});
			const last = heights.at(-1)!;
			return [
				{
					gpu,
					path: path.join(""),
					endY: last ? at(heights.length - 1) : null,
					endX: left + heights.filter((n) => n > 0).length * columns,
				},
			];
		});
		// the tones are those between the lines of this map
		const lacking = cells.map((c) => gpus.filter((g) => !isHeld(g, c)).length);
		const fewest = Math.min(...lacking);
		const range = Math.max(...lacking) - fewest;
		const shaded = cells.map((c, i) => ({
			...c,
			shade: 1 + Math.ceil((4 * (lacking[i]! - fewest)) / Math.max(range, 1)),
		}));
		const totals = cells.map((c) => c.total);
		const below = namesBelow(borders, left, right);
		return {
			across,
			left,
			right,
			top,
			bottom,
			cell,
			columns,
			cells: shaded,
			borders,
			least: Math.min(...totals),
			most: Math.max(...totals),
			beside: namesBeside(borders, top, bottom),
			below,
			axis: bottom + LINE * Math.max(0, ...below.map((x) => x.row + 1)),
		};
	}, [key, sizes]);
	const { across, left, right, top, bottom, cell, columns, cells, borders, least, most } =
		drawing;
	const { beside, below, axis } = drawing;
	const own = Number(sizes.own);
	const text = (n: number) =>
		n >= 1000 * GIB ? `${Number((n / TIB).toPrecision(2))} Ti` : threeDigits(n / GIB);
	const steps = (n: bigint, of: number) => Math.abs(Math.log2(Number(n) / of));
	const chosenCell = cells.findIndex(
		(c) => steps(state.context, c.tokens) <= 0.5 && steps(state.batch, c.batch) <= 0.5,
	);
	const allCells = useMemo(
		() =>
			cells.map((c) => (
				<g
					key={`${c.i} ${c.j}`}
					class="map-cell"
					onClick={() => change({ context: BigInt(c.tokens), batch: BigInt(c.batch) })}
				>
					<title>{`${grouped(c.tokens)} tokens, batch ${c.batch}: ${text(c.total)} GiB`}</title>
					<rect
						x={left + c.i * columns + 1}
						y={bottom - (c.j + 1) * cell + 1}
						width={columns - 2}
						height={cell - 2}
						fill={`var(--ramp-${c.shade})`}
					/>
					<text
						x={left + (c.i + 0.5) * columns}
						y={bottom - (c.j + 0.5) * cell + 4}
						text-anchor="middle"
						class={`map-number tabular${sizes.stated && c.tokens > own ? " beyond" : ""}`}
						style={{ fill: c.shade >= 4 ? "var(--paper)" : "var(--ink)" }}
					>
						{text(c.total)}
					</text>
				</g>
			)),
		[drawing],
	);
	const chosenAt = cells[chosenCell];
	const ownX = left + across.filter((n) => n <= own).length * columns;
	return (
		<svg
			width={width}
			height={axis + 42}
			viewBox={`0 0 ${width} ${axis + 42}`}
			role="group"
			aria-label={`Memory over context and batch: from ${shortBytes(least)} to ${shortBytes(most)}; borders of ${borders.map((b) => b.gpu.title).join(", ") || "no GPU"}`}
		>
			{allCells}
			{borders.map((b) => [
				<path key={`halo ${b.gpu.name}`} class="border-halo" d={b.path} />,
				<path key={b.gpu.name} class="border" d={b.path} data-border={b.gpu.name} />,
			])}
			{beside.map((l) => (
				<g key={l.name}>
					<path d={`M${right + 1} ${l.from}L${right + 8} ${l.y}`} stroke="var(--ink)" />
					<text class="bold map-label" x={right + 11} y={l.y + 4}>
						{l.name}
					</text>
				</g>
			))}
			{below.map((l) => (
				<g key={l.name}>
					<path d={`M${l.at} ${bottom}v${3 + l.row * LINE}`} stroke="var(--ink)" />
					<text class="bold map-label" x={l.x} y={bottom + 14 + l.row * LINE}>
						{l.name}
					</text>
				</g>
			))}
			{sizes.stated && ownX > left && ownX < right && (
				<path class="own-context" d={`M${ownX} ${top}V${bottom}`} />
			)}
			{chosenAt &&
				["map-chosen-halo", "map-chosen"].map((name) => (
					<rect
						key={name}
						class={name}
						x={left + chosenAt.i * columns + 3}
						y={bottom - (chosenAt.j + 1) * cell + 3}
						width={columns - 6}
						height={cell - 6}
					/>
				))}
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
							y={axis + 18}
							text-anchor="middle"
						>
							{shortTokens(n)}
						</text>
					),
			)}
			<text class="muted" x={(left + right) / 2} y={axis + 38} text-anchor="middle">
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
