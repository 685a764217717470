// The roofline of the GPU with prefill, and decode at growing batches.
import { SubHeading } from "../../components/section";
import { scaleLog } from "../../lib/scales";
import { Measured } from "../../components/measured";
import { openDerivation } from "../../components/number";
import { formula } from "../../lib/derivation";
import { grouped, groupedNumber } from "../../lib/format";
import { textWidth } from "../../lib/measure_text";
import type { Gpu } from "../../lib/sizing/data";
import { prefixed, shortTitle } from "../../lib/sizing/facts";
import type { Sized } from "../../lib/sizing/gpu_memory";
import { decodeBytesAndFlops, type SpeedLimits } from "../../lib/sizing/speed_limits";
import { limitDerivation } from "./speed";

interface Props {
	sized: Sized;
	gpu: Gpu;
	limits: SpeedLimits;
	/** The most sequences that fit; null: any number. */
	most: bigint | null;
}

/** Batches in powers of four, as far as they fit, and the largest. */
export function batchesThatFit(most: bigint | null, limit = 4096): number[] {
	const end = most === null ? limit : Math.min(Number(most), limit);
	const found = Array.from({ length: 8 }, (_, i) => 4 ** i);
	return [...found.filter((n) => n * 1.9 <= end), end];
}

const power = (n: number) => (n < 1 ? String(n) : groupedNumber(n));
const decades = (low: number, high: number) =>
	Array.from(
		{ length: Math.floor(high + 1e-9) - Math.ceil(low - 1e-9) + 1 },
		(_, i) => 10 ** (Math.ceil(low - 1e-9) + i),
	);

export const Roofline = (props: Props) => (
	<figure>
		<SubHeading>Roofline: decode climbs with the batch</SubHeading>
		<Measured>{(width) => <Picture {...props} width={width} />}</Measured>
	</figure>
);

function Picture({ sized, gpu, limits, most, width }: Props & { width: number }) {
	const height = 340;
	const [bandwidth, peak] = [Number(limits.bandwidth), Number(limits.peak)];
	const ridge = peak / bandwidth;
	const [, prefill] = limits.passes;
	const batches = batchesThatFit(most).map((batch) => {
		const [bytes, flops] = decodeBytesAndFlops(sized, Math.ceil(batch / sized.split.replicas));
		const intensity = flops / bytes;
		return { batch, intensity, reached: Math.min(intensity * bandwidth, peak) };
	});
	const prefillAt = Number(prefill!.values.intensity) / 1e9;
	const points = [...batches.map((b) => b.intensity), prefillAt, ridge];
	const box = { left: 58, right: width - 14, top: 26, bottom: height - 44 };
	const [low, high] = [
		Math.log10(Math.min(...points)) - 0.3,
		Math.log10(Math.max(...points)) + 0.3,
	];
	const x = scaleLog([10 ** low, 10 ** high], [box.left, box.right]);
	const bottomFlops = Math.min(10 ** low * bandwidth, ...batches.map((b) => b.reached)) * 0.8;
	const y = scaleLog([bottomFlops, peak * 1.8], [box.bottom, box.top]);
	const roof = [
		[10 ** low, 10 ** low * bandwidth],
		[ridge, peak],
		[10 ** high, peak],
	]
		.map(([a, b]) => `${x(a!)},${y(b!)}`)
		.join(" ");
	const ridgeDerivation = {
		title: "Ridge point: memory and compute take equally long",
		lines: [
			formula(
				"peak / bandwidth",
				`${grouped(limits.peak)} / ${grouped(limits.bandwidth)}`,
				`${Math.round(ridge)} FLOPs per byte`,
			),
		],
	};
	const press = (open: () => void) => ({
		role: "button" as const,
		class: "mark",
		onClick: open,
		onKeyDown: (event: KeyboardEvent) =>
			(event.key === "Enter" || event.key === " ") && (event.preventDefault(), open()),
	});
	const prefillLabel = "prefill";
	const describe = `Roofline of ${gpu.title}: ${limits.passes.map((p) => `${p.name} is ${p.bound}-bound`).join(", ")}; decode at batch ${batches.map((b) => b.batch).join(", ")}`;
	const labels: { x: number; y: number }[] = [];
	const free = (px: number, py: number) =>
		labels.every((l) => Math.abs(l.x - px) > 26 || Math.abs(l.y - py) > 15) &&
		(labels.push({ x: px, y: py }), true);
	return (
		<svg
			width={width}
			height={height}
			viewBox={`0 0 ${width} ${height}`}
			role="group"
			aria-label={describe}
		>
			{decades(low, high).map((n) => (
				<g key={n}>
					<path d={`M${x(n)} ${box.top}V${box.bottom}`} stroke="var(--rule)" />
					{(Math.round(Math.log10(n)) % 2 === 0 ||
						box.right - box.left > 64 * (high - low)) && (
						<text
							class="muted tabular"
							x={Math.min(x(n), width - textWidth(power(n)) / 2)}
							y={box.bottom + 18}
							text-anchor="middle"
						>
							{power(n)}
						</text>
					)}
				</g>
			))}
			{decades(Math.log10(bottomFlops), Math.log10(peak * 1.8)).map((n) => (
				<g key={n}>
					<path d={`M${box.left} ${y(n)}H${box.right}`} stroke="var(--rule)" />
					<text class="muted tabular" x={box.left - 8} y={y(n) + 4} text-anchor="end">
						{prefixed(n).replace(" ", "")}
					</text>
				</g>
			))}
			<text class="muted" x={0} y={14}>
				FLOP/s per GPU, {shortTitle(gpu)}
			</text>
			<text class="muted" x={(box.left + box.right) / 2} y={height - 6} text-anchor="middle">
				FLOPs per byte read
			</text>
			<polyline points={roof} fill="none" stroke="var(--ink)" stroke-width="2.5" />
			<path
				d={`M${x(ridge)} ${y(peak)}V${box.bottom}`}
				stroke="var(--ink-2)"
				stroke-dasharray="3 4"
			/>
			<g {...press(() => openDerivation(ridgeDerivation))} tabIndex={0}>
				<text
					class="muted halo"
					x={Math.min(
						x(ridge) + 6,
						box.right - textWidth(`ridge at ${Math.round(ridge)}`),
					)}
					y={box.bottom - 8}
				>
					ridge at {Math.round(ridge)}
				</text>
			</g>
			<g
				{...press(() => openDerivation(limitDerivation(sized, prefill!, "rate")))}
				tabIndex={0}
				aria-label="prefill"
			>
				<rect
					class="dot"
					x={x(prefillAt) - 5}
					y={y(Math.min(prefillAt * bandwidth, peak)) - 5}
					width="10"
					height="10"
				/>
				<text
					class="bold halo"
					x={Math.min(x(prefillAt) + 4, box.right - textWidth(prefillLabel, 13, 650) / 2)}
					y={y(Math.min(prefillAt * bandwidth, peak)) - 12}
					text-anchor="middle"
				>
					{prefillLabel}
				</text>
			</g>
			{batches.map((b, i) => (
				<g key={b.batch}>
					<circle
						class={i ? "dot" : "dot full"}
						cx={x(b.intensity)}
						cy={y(b.reached)}
						r="5"
					/>
					{free(x(b.intensity), y(b.reached)) && (
						<text
							class={i ? "halo tabular" : "bold halo tabular"}
							x={x(b.intensity) + 10}
							y={y(b.reached) + 15}
						>
							{i ? grouped(b.batch) : "decode, batch 1"}
						</text>
					)}
				</g>
			))}
		</svg>
	);
}
