// Tokens per second of decode at most, and the bytes that a step reads, against the batch, as far
// as it fits.
import { SubHeading } from "../../components/section";
import { scaleLinear, scaleLog } from "../../lib/scales";
import { Measured } from "../../components/measured";
import { grouped, groupedNumber, shortBytes, threeDigits } from "../../lib/format";
import { linePath } from "../../lib/lines";
import { textWidth } from "../../lib/measure_text";
import type { Gpu } from "../../lib/sizing/data";
import { prefixed } from "../../lib/sizing/facts";
import type { Sized } from "../../lib/sizing/gpu_memory";
import { decodeBytesAndFlops, decodeRate } from "../../lib/sizing/speed_limits";
import { batchesThatFit } from "./roofline";

interface Props {
	sized: Sized;
	gpu: Gpu;
	most: bigint | null;
}

interface Point {
	batch: number;
	rate: number;
	bytes: number;
}

const POINTS = 24;
const CACHE = "KV cache";
const WEIGHTS = "weights";

/** The sequences of a replica, those of the fullest one. */
const perReplica = ({ split }: Sized, batch: number) =>
	split.replicas === 1 ? batch : Math.ceil(batch / split.replicas);

/** The rate and the bytes of a step at a batch; replicas work beside each other. */
function pointAt(sized: Sized, gpu: Gpu, batch: number): Point {
	const each = perReplica(sized, batch);
	const [bytes, flops] = decodeBytesAndFlops(sized, each);
	return { batch, rate: decodeRate(sized, gpu, [bytes, flops], each), bytes };
}

/** The part of the bytes that is the cache: what a step reads beside the weights. */
const cacheBytes = (sized: Sized, { batch, bytes }: Point): number =>
	bytes - decodeBytesAndFlops(sized, perReplica(sized, batch), "weights")[0];

export const BatchCharts = (props: Props) => (
	<figure>
		<SubHeading>What more users cost: tokens/s and bytes read per step</SubHeading>
		<Measured>{(width) => <Picture {...props} width={width} />}</Measured>
	</figure>
);

function Picture({ sized, gpu, most, width }: Props & { width: number }) {
	const height = 340;
	const marks = batchesThatFit(most);
	const end = Math.max(marks.at(-1)!, 2);
	const isMost = most !== null && BigInt(marks.at(-1)!) === most;
	const batches = Array.from({ length: POINTS + 1 }, (_, i) => end ** (i / POINTS));
	const points = batches.map((b) => pointAt(sized, gpu, b));
	const caches = points.map((p) => cacheBytes(sized, p));
	const box = { left: 52, right: width - 16, top: 26, bottom: height - 44 };
	const x = scaleLog([1, end], [box.left, box.right]);
	const half = (box.bottom - box.top - 34) / 2;
	const [upper, lower] = [
		{ top: box.top, bottom: box.top + half },
		{ top: box.bottom - half, bottom: box.bottom },
	];
	const yRate = scaleLinear(
		[0, Math.max(...points.map((p) => p.rate)) * 1.3],
		[upper.bottom, upper.top],
	);
	const mostBytes = Math.max(...points.map((p) => p.bytes)) * 1.08;
	const yBytes = scaleLinear([0, mostBytes], [lower.bottom, lower.top]);
	const path = (y: (p: Point, i: number) => number) =>
		linePath(points.map((p, i) => [x(batches[i]!), y(p, i)]));
	const areaBetween = (low: (i: number) => number, high: (i: number) => number) =>
		`M${batches.map((b, i) => `${x(b)},${high(i)}`).join("L")}L${batches
			.map((b, i) => [x(b), low(i)] as const)
			.toReversed()
			.map((p) => p.join())
			.join("L")}Z`;
	const weightsTop = (i: number) => yBytes(points[i]!.bytes - caches[i]!);
	const last = points.at(-1)!;
	const lastText = `≤ ${threeDigits(last.rate)} tokens/s at ${grouped(marks.at(-1)!)}`;
	const middle = Math.round(points.length * 0.75);
	return (
		<svg
			width={width}
			height={height}
			viewBox={`0 0 ${width} ${height}`}
			role="img"
			aria-label={`Decode against the batch, up to ${grouped(marks.at(-1)!)} sequences, ${isMost ? "the most that fit" : most === null ? "any number fits" : "more fit"}: ${marks
				.map((b) => pointAt(sized, gpu, b))
				.map(
					(p) =>
						`batch ${p.batch}: at most ${threeDigits(p.rate)} tokens per second, ` +
						`${shortBytes(p.bytes)} read`,
				)
				.join("; ")}`}
		>
			<text class="muted" x={0} y={14}>
				tokens/s, at most
			</text>
			{yRate.ticks(3).map((n) => (
				<g key={n}>
					<path d={`M${box.left} ${yRate(n)}H${box.right}`} stroke="var(--rule)" />
					<text class="muted tabular" x={box.left - 8} y={yRate(n) + 4} text-anchor="end">
						{n >= 10_000 ? prefixed(n).replace(" ", "") : groupedNumber(n)}
					</text>
				</g>
			))}
			<path
				d={path((p) => yRate(p.rate))}
				fill="none"
				stroke="var(--ink)"
				stroke-width="2.5"
			/>
			<circle class="dot" cx={x(end)} cy={yRate(last.rate)} r="5" />
			<text
				class="bold halo tabular"
				x={Math.max(x(end) - 8, box.left + textWidth(lastText, 13, 650))}
				y={yRate(last.rate) - 9}
				text-anchor="end"
			>
				{lastText}
			</text>
			<text class="muted" x={0} y={lower.top - 8}>
				{width < 300 ? "bytes read per step" : "bytes read per step, one GPU of each stage"}
			</text>
			{yBytes.ticks(3).map((n) => (
				<g key={n}>
					<path d={`M${box.left} ${yBytes(n)}H${box.right}`} stroke="var(--rule)" />
					<text
						class="muted tabular"
						x={box.left - 8}
						y={yBytes(n) + 4}
						text-anchor="end"
					>
						{prefixed(n).replace(" ", "")}
					</text>
				</g>
			))}
			<path class="data" d={areaBetween(() => yBytes(0), weightsTop)} fill="var(--ramp-2)" />
			<path
				class="data"
				d={areaBetween(weightsTop, (i) => yBytes(points[i]!.bytes))}
				fill="var(--c-kv)"
			/>
			{yBytes(0) - weightsTop(middle) > 20 && (
				<text
					class="bold"
					x={x(batches[middle]!)}
					y={(yBytes(0) + weightsTop(middle)) / 2 + 4}
					text-anchor="middle"
				>
					{WEIGHTS}
				</text>
			)}
			{weightsTop(middle) - yBytes(points[middle]!.bytes) > 20 && (
				<text
					class="bold on-kv"
					x={x(batches[middle]!)}
					y={(weightsTop(middle) + yBytes(points[middle]!.bytes)) / 2 + 4}
					text-anchor="middle"
				>
					{CACHE}
				</text>
			)}
			{marks.map(
				(n, i) =>
					(i === marks.length - 1 || x(end) - x(n) > 34) && (
						<text
							key={n}
							class="muted tabular"
							x={x(n)}
							y={box.bottom + 18}
							text-anchor={i === marks.length - 1 ? "end" : "middle"}
						>
							{grouped(n)}
						</text>
					),
			)}
			<text class="muted" x={(box.left + box.right) / 2} y={height - 6} text-anchor="middle">
				sequences{isMost && ", as many as fit"}
			</text>
		</svg>
	);
}
