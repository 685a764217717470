// The mixture of experts: which experts a batch reads, layer by layer, and the bytes of a decode
// step against the batch size.
import { scaleLinear, scaleLog } from "../../lib/scales";
import { useMemo } from "preact/hooks";
import { Measured } from "../../components/measured";
import { NumberButton } from "../../components/number";
import { Section } from "../../components/section";
import type { Digits, ModelData } from "../../lib/data";
import { derivation, inBytes, sumFormula } from "../../lib/derivation";
import { value, type Expression } from "../../lib/expressions";
import { grouped, shortBytes, shortCount, threeDigits } from "../../lib/format";
import { areaPath, linePath } from "../../lib/lines";
import { useAppState } from "../../lib/state";
import { ExpertGrid } from "./expert_grid";
import "./experts.css";

export interface ExpertLayers {
	experts: Digits;
	chosen: Digits;
	zero: Digits;
	shared: boolean;
	sharedParameters: Digits;
	each: Digits;
	/** Groups of experts, and how many of them a token may choose from. */
	groups: [Digits, Digits] | null;
	scoring: string;
	/** The expected number of distinct experts of a layer in hundredths, for a batch of B. */
	distinct: Expression;
	layers: Digits;
	ranges: [number, number, number][];
	where: string;
}

interface Experts {
	kinds: ExpertLayers[];
	of: Digits;
	/** The bytes read of X bytes of experts, by the share of experts that a token does not use. */
	read: Record<string, Expression>;
	/** Bytes by dtype, under the same keys; under 0/1 those of all other matrices. */
	bytes: Record<string, Record<string, Digits>>;
}

const REST = "0/1";
const HEIGHT = 240;
const PAD = { left: 64, right: 20, top: 20, bottom: 44 };
const MAX_BATCH = 1024;

export function readBytes(
	experts: Experts,
	dtype: string,
	batch: bigint,
): { rest: bigint; routed: bigint } {
	const bytes = experts.bytes[dtype]!;
	const routed = Object.entries(experts.read).reduce(
		(n, [key, form]) =>
			n + (bytes[key] ? value(form, { X: BigInt(bytes[key]!), B: batch }) : 0n),
		0n,
	);
	return { rest: BigInt(bytes[REST] ?? 0), routed };
}

function Curve({
	experts,
	dtype,
	batch,
	width,
}: {
	experts: Experts;
	dtype: string;
	batch: bigint;
	width: number;
}) {
	const samples = useMemo(
		() =>
			Array.from({ length: 41 }, (_, i) => Math.round(2 ** (i / 4)))
				.filter((n, i, all) => n !== all[i - 1])
				.map((n) => {
					const { rest, routed } = readBytes(experts, dtype, BigInt(n));
					return { n, rest: Number(rest), routed: Number(routed) };
				}),
		[experts, dtype],
	);
	const most = Math.max(...samples.map((s) => s.rest + s.routed));
	const x = scaleLog([1, MAX_BATCH], [PAD.left, width - PAD.right]);
	const y = scaleLinear([0, most * 1.06], [HEIGHT - PAD.bottom, PAD.top]);
	const band = (
		low: (s: (typeof samples)[0]) => number,
		high: (s: (typeof samples)[0]) => number,
	) => areaPath(samples.map((s) => [x(s.n), y(low(s)), y(high(s))]));
	const unit = 2 ** (most >= 2 ** 40 ? 40 : 30);
	const step = 10 ** Math.floor(Math.log10(most / unit / 2)) * unit;
	const ticks = Array.from(
		{ length: 30 },
		(_, i) => i * step * (most / step > 12 ? 4 : most / step > 6 ? 2 : 1),
	).filter((n) => n <= most * 1.06);
	const at = Math.min(Number(batch), MAX_BATCH);
	const now = readBytes(experts, dtype, batch);
	return (
		<>
			<svg
				width={width}
				height={HEIGHT}
				role="img"
				aria-label={`Weights read in one decode step: ${shortBytes(now.rest + now.routed)} at batch ${batch}, ${shortBytes(most)} at batch ${MAX_BATCH}`}
			>
				{ticks.map((n) => (
					<g key={n}>
						<path
							d={`M${PAD.left} ${y(n)}H${width - PAD.right}`}
							stroke="var(--rule)"
						/>
						<text x={PAD.left - 8} y={y(n) + 4} text-anchor="end" class="muted tabular">
							{shortBytes(n)}
						</text>
					</g>
				))}
				<path
					class="data experts-rest"
					d={band(
						() => 0,
						(s) => s.rest,
					)}
				/>
				<path
					class="data experts-routed"
					d={band(
						(s) => s.rest,
						(s) => s.rest + s.routed,
					)}
				/>
				<path
					d={linePath(samples.map((s) => [x(s.n), y(s.rest)]))}
					stroke="var(--paper)"
					stroke-width="2"
					fill="none"
				/>
				{[1, 4, 16, 64, 256, 1024].map((n) => (
					<text
						key={n}
						x={x(n)}
						y={HEIGHT - 24}
						text-anchor="middle"
						class="muted tabular"
					>
						{grouped(n)}
					</text>
				))}
				<text
					x={(PAD.left + width - PAD.right) / 2}
					y={HEIGHT - 6}
					text-anchor="middle"
					class="muted"
				>
					sequences decoded together
				</text>
				<path d={`M${x(at)} ${PAD.top}V${HEIGHT - PAD.bottom}`} stroke="var(--ink)" />
				<circle
					cx={x(at)}
					cy={y(Number(now.rest + now.routed))}
					r="5"
					fill="var(--paper)"
					stroke="var(--ink)"
					stroke-width="2"
				/>
			</svg>
			<p class="key">
				<span>
					<i class="swatch data experts-routed-key" />
					routed experts
				</span>
				<span>
					<i class="swatch data experts-rest-key" />
					read in every step
				</span>
			</p>
		</>
	);
}

const hundredths = (n: bigint): string => threeDigits(Number(n) / 100);

export function ExpertsSection({ model }: { model: ModelData }) {
	const state = useAppState("batch", "dtype");
	const experts = model.experts as Experts | null;
	if (!experts) return null;
	const sizes = model.sizes as { dtype: string };
	const dtype = state.dtype && experts.bytes[state.dtype] ? state.dtype : sizes.dtype;
	const batch = state.batch;
	const kind = experts.kinds.reduce((a, b) => (BigInt(b.layers) > BigInt(a.layers) ? b : a));
	const distinct = value(kind.distinct, { B: batch });
	const now = readBytes(experts, dtype, batch);
	const total = now.rest + now.routed;
	const perToken = total / batch;
	const title =
		batch === 1n
			? `A token uses ${grouped(kind.chosen)} of ${grouped(kind.experts)} experts in ` +
				"each MoE layer"
			: `${grouped(batch)} sequences together read ${hundredths(distinct)} of ` +
				`${grouped(kind.experts)} experts`;
	const derive = () => ({
		title: "Weights read in one decode step",
		lines: [
			...Object.entries(experts.read).flatMap(([key, form]) =>
				experts.bytes[dtype]![key]
					? derivation(
							form,
							{ X: BigInt(experts.bytes[dtype]![key]!), B: batch },
							"bytes of routed experts",
						)
					: [],
			),
			sumFormula(
				[
					["routed experts", now.routed],
					["all other matrices", now.rest],
				],
				"bytes",
			),
			...inBytes(total),
			"Routing is taken as even and independent: of E experts with k for each token, " +
				"E·(1 − (1 − k/E)^B) are expected to be read.",
		],
	});
	return (
		<Section
			id="experts"
			topic="Mixture of experts"
			title={title}
			lead={`${grouped(kind.layers)} of ${grouped(experts.of)} layers (${kind.where}) have ${grouped(kind.experts)} experts of ${shortCount(kind.each)} parameters${kind.shared ? " and shared experts that every token passes" : ""}. A batch reads more of them, and shares what it reads.`}
		>
			<div class="experts-pair">
				<ExpertGrid kinds={experts.kinds} batch={Number(batch)} />
				<figure>
					<Measured>
						{(width) => (
							<Curve experts={experts} dtype={dtype} batch={batch} width={width} />
						)}
					</Measured>
					<dl class="readings">
						<div>
							<dt>Distinct experts of a layer</dt>
							<dd>
								<NumberButton
									label="expected distinct experts"
									derive={() => ({
										title: "Expected distinct experts of a layer",
										lines: [
											...derivation(
												kind.distinct,
												{ B: batch },
												"hundredths of an expert",
											),
											"Routing is taken as even and independent.",
										],
									})}
									data-distinct=""
								>
									{hundredths(distinct)}
								</NumberButton>{" "}
								of {grouped(kind.experts)}
							</dd>
						</div>
						<div>
							<dt>Weights read in a step, {dtype}</dt>
							<dd>
								<NumberButton
									label="weights read in a decode step"
									derive={derive}
									data-read=""
								>
									{shortBytes(total)}
								</NumberButton>
							</dd>
						</div>
						<div>
							<dt>For each token</dt>
							<dd>
								<NumberButton
									label="weights read for each token"
									derive={() => ({
										title: "Weights read for each token",
										lines: derivation(
											["floor", "read", "B"],
											{ read: total, B: batch },
											"bytes",
										),
									})}
								>
									{shortBytes(perToken)}
								</NumberButton>
							</dd>
						</div>
					</dl>
				</figure>
			</div>
		</Section>
	);
}
