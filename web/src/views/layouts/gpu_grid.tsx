// The GPUs of one replica: a column for each pipeline stage, a band for each rank of context
// parallelism, a row for each rank of tensor parallelism; further replicas lie behind it.
import { Measured } from "../../components/measured";
import { grouped } from "../../lib/format";
import { textWidth } from "../../lib/measure_text";
import { onActivate, useRoving } from "../../lib/roving";
import type { ExpertsOfRanks, StageOfLayout } from "./data";

interface Props {
	tp: number;
	cp: number;
	stages: StageOfLayout[];
	replicas: number;
	/** What the replicas are called: DP, or replicas. */
	name: string;
	/** The stage whose GPUs are described, and how another one is chosen. */
	chosen?: number;
	choose?: (stage: number) => void;
	experts?: ExpertsOfRanks | null;
}

/** Few rows are drawn higher. */
const cellOf = (rows: number) => (rows > 4 ? 26 : rows > 2 ? 32 : 48);
const GAP = 3;

/**
 * All stages, or the first and the last ones of a long pipeline with the chosen one; null stands
 * for those left out.
 */
function shownStages(count: number, room: number, chosen = 0): (number | null)[] {
	if (count <= room) return Array.from({ length: count }, (_, i) => i);
	const head = Math.max(room - 3, 1);
	const last =
		chosen < head || chosen >= count - 2 ? [count - 2, count - 1] : [chosen, count - 1];
	return [...Array.from({ length: head }, (_, i) => i), null, ...last];
}

const MOST_BANDS = 4;
const MOST_HEIGHT = 330;
const BAND_GAP = 6;

export const GpuGrid = (props: Props) => (
	<Measured>{(width) => <Grid {...props} width={width} />}</Measured>
);

function Grid({
	tp,
	cp,
	stages,
	replicas,
	name,
	chosen,
	choose,
	experts,
	width,
}: Props & { width: number }) {
	const left = 54;
	const widest = Math.max(...stages.map((x) => textWidth(x.layers, 12)), 44) + 10;
	const room = Math.max(Math.floor((width - left - 40) / widest), 4);
	// a few replicas of one stage stand beside each other
	const beside = stages.length * cp === 1 && replicas <= Math.min(room, 8) ? replicas : 1;
	const shown =
		beside > 1
			? Array.from({ length: beside }, () => 0)
			: shownStages(stages.length, room, chosen);
	const column = Math.min(Math.max((width - left - 40) / shown.length, 30), 150);
	const box = column - (beside > 1 ? 10 : 0);
	const rows = Math.min(tp, 8);
	const top = 46;
	const behind = beside > 1 ? 0 : Math.min(replicas - 1, 3);
	// the ranks of context parallelism, or the first and the last of many; null stands for those
	// left out
	const cell = cp === 1 ? cellOf(rows) : rows > 4 ? 11 : rows > 2 || cp > 4 ? 13 : 20;
	const bandHeight = rows * (cell + GAP);
	const bands = shownStages(
		cp,
		Math.max(MOST_BANDS, Math.floor(MOST_HEIGHT / (bandHeight + BAND_GAP))),
	);
	const bandY = (j: number) =>
		top +
		j * (bandHeight + BAND_GAP) -
		bands.slice(0, j).filter((x) => x === null).length * (bandHeight - 16);
	const [gridWidth, gridHeight] = [shown.length * column, bandY(bands.length) - top - BAND_GAP];
	const height = top + gridHeight + behind * 7 + (cp > 1 ? 74 : 54);
	const isRoomForRanks =
		cell >= 13 &&
		column - GAP - 12 > textWidth(`EP ${Math.max(...(experts?.ranks ?? [0]))}`, 12);
	const rove = useRoving(shown.filter((x) => x !== null).length);
	const ends: Record<string, string> = { first: "var(--c-embed)", last: "var(--c-head)" };
	const describe = `${grouped(replicas)} replicas, each of ${stages.length} pipeline stages of ${cp > 1 ? `${cp} × ${tp}` : tp} GPUs: ${stages.length <= 8 ? stages.map((x) => `layers ${x.layers}`).join("; ") : `layers ${stages[0]!.layers} to ${stages.at(-1)!.layers}`}`;
	return (
		<svg
			width={width}
			height={height}
			viewBox={`0 0 ${width} ${height}`}
			role={choose ? "group" : "img"}
			aria-label={describe}
			data-roving
		>
			{Array.from({ length: behind }, (_, i) => behind - i).map((i) => (
				<rect
					key={i}
					x={left + i * 7}
					y={top + i * 7}
					width={gridWidth}
					height={gridHeight}
					fill="var(--panel)"
					stroke="var(--edge)"
				/>
			))}
			{Array.from({ length: beside }, (_, i) => (
				<rect
					key={i}
					x={left - 2 + i * column}
					y={top - 2}
					width={(beside > 1 ? box : gridWidth) + 2}
					height={gridHeight + 2}
					fill="var(--paper)"
					stroke="var(--edge)"
				/>
			))}
			<text class="muted" x={0} y={16}>
				{stages.length > 1 ? "layers of each stage" : "layers"}
			</text>
			{shown.map((i, j) => {
				const x = left + j * column;
				if (i === null)
					return (
						<text
							key="gap"
							class="bold"
							x={x + column / 2}
							y={top + gridHeight / 2 + 4}
							text-anchor="middle"
						>
							⋯
						</text>
					);
				const stage = stages[i]!;
				const act = () => choose?.(i);
				const button = choose
					? {
							...rove(shown.slice(0, j).filter((y) => y !== null).length),
							role: "button",
							"aria-pressed": i === chosen,
							"aria-label": `stage ${i}: layers ${stage.layers}`,
							onClick: act,
						}
					: {};
				return (
					<g
						key={j}
						class={choose ? "gpu-stage" : ""}
						{...button}
						onKeyDown={
							choose &&
							((event: KeyboardEvent) => {
								onActivate(act)(event);
								(button as { onKeyDown: (e: KeyboardEvent) => void }).onKeyDown(
									event,
								);
							})
						}
					>
						{choose && (
							<rect
								class="hit"
								x={x - 2}
								y={top - 26}
								width={column}
								height={gridHeight + 28}
								rx={3}
							/>
						)}
						<text
							class="tabular stage-label"
							x={x + box / 2 - 1}
							y={top - 10}
							text-anchor="middle"
						>
							{stage.layers}
						</text>
						{bands.map(
							(band, b) =>
								band !== null &&
								Array.from({ length: rows }, (_, r) => (
									<rect
										key={`${b} ${r}`}
										class="data"
										x={x}
										y={bandY(b) + r * (cell + GAP)}
										width={box - GAP}
										height={cell}
										rx="2"
										fill={
											choose && i === chosen
												? "var(--ramp-3)"
												: "var(--ramp-2)"
										}
									/>
								)),
						)}
						{experts &&
							isRoomForRanks &&
							bands.map(
								(band, b) =>
									band !== null &&
									Array.from({ length: rows }, (_, r) => (
										<text
											key={`${b} ${r}`}
											class="tabular rank-label"
											x={x + (box - GAP) / 2}
											y={bandY(b) + r * (cell + GAP) + cell / 2 + 4}
											text-anchor="middle"
										>{`EP ${experts.ranks[band * tp + r]}`}</text>
									)),
							)}
						{stage.first && (
							<rect
								class="data"
								x={x}
								y={top}
								width={5}
								height={gridHeight - GAP}
								fill={ends.first}
							/>
						)}
						{stage.last && (
							<rect
								class="data"
								x={x + box - GAP - 5}
								y={top}
								width={5}
								height={gridHeight - GAP}
								fill={ends.last}
							/>
						)}
					</g>
				);
			})}
			{cp === 1 ? (
				<text class="muted" x={left - 8} y={top + gridHeight / 2 + 4} text-anchor="end">
					TP {tp}
				</text>
			) : (
				bands.map((band, b) => (
					<text
						key={b}
						class={band === null ? "bold" : "muted"}
						x={left - 8}
						y={bandY(b) + (band === null ? 12 : bandHeight / 2 + 3)}
						text-anchor="end"
					>
						{band === null ? "⋮" : `CP ${band}`}
					</text>
				))
			)}
			{cp > 1 && (
				<text
					class="muted"
					x={left}
					y={top + gridHeight + behind * 7 + 62}
				>{`CP ${cp}: bands; TP ${tp}: rows of a band${tp > rows ? `, of which ${rows} are drawn` : ""}`}</text>
			)}
			<text class="muted" x={left} y={top + gridHeight + behind * 7 + 22}>
				{stages.length > 1
					? `PP ${stages.length}: stages from left to right`
					: "one stage: no pipeline"}
			</text>
			<text class="bold" x={left} y={top + gridHeight + behind * 7 + 42}>
				{beside > 1 ? "" : "× "}
				{grouped(replicas)} {name}
			</text>
		</svg>
	);
}
