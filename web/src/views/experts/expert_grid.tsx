// Layers × experts: each cell is one expert, filled if a token of the batch is routed to it in an
// example of even routing.
import { useMemo } from "preact/hooks";
import { Measured } from "../../components/measured";
import { grouped } from "../../lib/format";
import type { ExpertLayers } from "./experts";

/** More sequences are drawn as this many: by then nearly every expert is read. */
const MAX_DRAWN = 256;
const MAX_ROWS = 96;
const LABEL = 30;

/**
 * A generator of pseudo-random whole numbers below n, always the same sequence, so that the picture
 * is too.
 */
function generator(seed: number) {
	let state = seed;
	return (n: number) => {
		state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
		return Math.floor((state / 2 ** 32) * n);
	};
}

/**
 * The experts that a batch is routed to in one layer: k different ones for each token, within the
 * groups that routing allows.
 */
function routedExperts(kind: ExpertLayers, batch: number, layer: number): Set<number> {
	const random = generator(layer * 7919 + 17);
	const [n, k] = [Number(kind.experts), Number(kind.chosen)];
	const [groups, kept] = kind.groups ? (kind.groups.map(Number) as [number, number]) : [1, 1];
	const size = n / groups;
	const found = new Set<number>();
	for (let token = 0; token < batch && found.size < n; token++) {
		const allowed = new Set<number>();
		while (allowed.size < kept) allowed.add(random(groups));
		const eligible = [...allowed];
		const own = new Set<number>();
		while (own.size < Math.min(k, kept * size))
			own.add(eligible[random(kept)]! * size + random(size));
		for (const x of own) found.add(x);
	}
	return found;
}

function layerNumbers(kinds: ExpertLayers[]): { layer: number; kind: ExpertLayers }[] {
	const all = kinds.flatMap((kind) =>
		kind.ranges.flatMap(([first, last, step]) =>
			Array.from({ length: (last - first) / step + 1 }, (_, i) => ({
				layer: first + i * step,
				kind,
			})),
		),
	);
	return all.sort((a, b) => a.layer - b.layer);
}

export function ExpertGrid({ kinds, batch }: { kinds: ExpertLayers[]; batch: number }) {
	const layers = useMemo(() => layerNumbers(kinds), [kinds]);
	const rows = useMemo(() => layers.slice(0, MAX_ROWS), [layers]);
	const drawn = Math.min(batch, MAX_DRAWN);
	return (
		<figure>
			<Measured>
				{(width) => (
					<Rows
						kinds={kinds}
						rows={rows}
						all={layers.length}
						drawn={drawn}
						width={width}
					/>
				)}
			</Measured>
			<figcaption class="caption">
				A row per MoE layer, a column per expert. Filled: read for{" "}
				{drawn < batch ? `the first ${drawn} of ${grouped(batch)}` : grouped(batch)} token
				{batch > 1 ? "s" : ""}, in an example of even, random routing
				{kinds[0]!.groups
					? `, within ${kinds[0]!.groups[1]} of ${kinds[0]!.groups[0]} groups for ` +
						"each token"
					: ""}
				{layers.length > rows.length
					? `; the first ${rows.length} of ${layers.length} layers`
					: ""}
				.
			</figcaption>
		</figure>
	);
}

interface RowsProps {
	kinds: ExpertLayers[];
	rows: { layer: number; kind: ExpertLayers }[];
	/** How many layers there are, with those that are not drawn. */
	all: number;
	/** The tokens whose experts are filled. */
	drawn: number;
	width: number;
}

function Rows({ kinds, rows, all, drawn, width }: RowsProps) {
	const most = Math.max(...kinds.map((x) => Number(x.experts)));
	const cell = Math.max(width - LABEL, 1) / most;
	const rowHeight = Math.max(4, Math.min(12, 310 / rows.length, cell * 5));
	const gap = cell >= 6 ? 2 : cell >= 3 ? 1 : cell / 4;
	const height = rows.length * rowHeight + 24;
	const filled = useMemo(
		() =>
			rows
				.map(({ layer, kind }, row) =>
					[...routedExperts(kind, drawn, layer)]
						.map(
							(i) =>
								`M${(LABEL + i * cell).toFixed(1)} ` +
								`${(row * rowHeight).toFixed(1)}h${(cell - gap).toFixed(2)}v${(rowHeight - 1).toFixed(1)}h-${(cell - gap).toFixed(2)}z`,
						)
						.join(""),
				)
				.join(""),
		[rows, drawn, width],
	);
	const labels = rows.filter(
		(_, i) =>
			i === 0 ||
			i === rows.length - 1 ||
			((i * rowHeight) % 60 < rowHeight && (rows.length - i) * rowHeight > 20),
	);
	return (
		<svg
			width={width}
			height={height}
			role="img"
			aria-label={`${all} layers of up to ${most} experts; those that a batch of ${drawn} reads are filled`}
		>
			{rows.map(({ kind }, row) => (
				<rect
					key={row}
					class="data expert-idle"
					x={LABEL}
					y={row * rowHeight}
					width={Number(kind.experts) * cell - gap}
					height={rowHeight - 1}
				/>
			))}
			<path class="data expert-read" d={filled} />
			{labels.map(({ layer }) => (
				<text
					key={layer}
					x={LABEL - 6}
					y={
						rows.findIndex((x) => x.layer === layer) * rowHeight +
						Math.min(11, rowHeight / 2 + 5)
					}
					text-anchor="end"
					class="muted tabular"
					style={{ fontSize: "12px" }}
				>
					{layer}
				</text>
			))}
			<text x={LABEL} y={height - 6} class="muted">
				expert 0
			</text>
			<text x={width} y={height - 6} class="muted" text-anchor="end">
				{most - 1}
			</text>
		</svg>
	);
}
