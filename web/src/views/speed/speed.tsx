// The speed section: what bounds decode and prefill on the chosen GPUs, where the model fits them.
import { NumberButton } from "../../components/number";
import { Section } from "../../components/section";
import { derivation, formula, type Derivation } from "../../lib/derivation";
import type { ModelData } from "../../lib/data";
import { grouped, threeDigits } from "../../lib/format";
import { useAppState } from "../../lib/state";
import { sizesOf, type Gpu } from "../../lib/sizing/data";
import { bandwidthFacts, formatNote, peakFacts, prefixed } from "../../lib/sizing/facts";
import { chosenHardware, settings, verdict, SIZING_SETTINGS } from "../../lib/sizing/fit";
import { splitLabel, type Sized } from "../../lib/sizing/gpu_memory";
import {
	NANO,
	speedLimits,
	type PassLimit,
	type PassName,
	type SpeedLimits,
} from "../../lib/sizing/speed_limits";
import { BatchCharts } from "./batch_charts";
import { Roofline } from "./roofline";
import "./speed.css";

const PASSES: Record<PassName, string> = { decode: "decode", prefill: "prefill" };
const STAGES: Record<PassName, string> = {
	decode: "stages run one after the other, so they add up.",
	prefill: "stages run concurrently: the slowest counts.",
};
const BOUNDS = {
	memory: "bytes / bandwidth takes longer than FLOPs / peak",
	compute: "FLOPs / peak takes longer than bytes / bandwidth",
};
const ASSUMPTIONS =
	"Upper bounds, not predictions: every byte is read once at the published bandwidth, " +
	"every product runs at the dense peak, and nothing else takes time. Without speculative " +
	"decoding, which gives several tokens a pass.";

/** n / unit to three significant digits, or as a whole number if that has more. */
export function quotient(n: bigint, unit: bigint): string {
	if (2n * n >= 199n * unit) return grouped((2n * n + unit) / (2n * unit));
	return String(Number((Number(n) / Number(unit)).toPrecision(3)));
}

/** Seconds of a pass, in the unit that people would use. */
export function duration(seconds: number): string {
	if (seconds >= 120) return `${threeDigits(seconds / 60)} min`;
	return seconds >= 1
		? `${threeDigits(seconds)} s`
		: seconds >= 1e-3
			? `${threeDigits(seconds * 1e3)} ms`
			: `${threeDigits(seconds * 1e6)} µs`;
}

type Quantity = "rate" | "bytes" | "FLOPs" | "intensity";
const FORMATS: Record<Quantity, (x: PassLimit["values"]) => string> = {
	rate: (x) => quotient(x.rate, NANO),
	bytes: (x) => grouped(x.bytes),
	FLOPs: (x) => grouped(x.FLOPs),
	intensity: (x) => quotient(x.intensity, NANO),
};

export function limitDerivation(sized: Sized, pass: PassLimit, what: Quantity): Derivation {
	const { name, values, forms, bound } = pass;
	const isSingle = sized.count === "1";
	const lines = {
		bytes: () => [
			...derivation(forms.bytes, values, "bytes"),
			!isSingle && `One GPU of each stage of ${sized.split.layout.name}; ${STAGES[name]}`,
		],
		FLOPs: () => [
			...derivation(sized.sizes.work![name], values, "FLOPs of all (work)"),
			...(isSingle ? [] : derivation(forms.FLOPs, values, "FLOPs of one GPU")),
			"2 per active weight, plus the attention products.",
		],
		rate: () => [
			`A pass moves its bytes and does its arithmetic; what takes longer bounds it.`,
			formula(
				"tokens · bandwidth / bytes",
				`${grouped(values.tokens)} · ${grouped(values.bandwidth!)} / ${grouped(values.bytes)}`,
				`${quotient((NANO * values.tokens * values.bandwidth!) / values.bytes, NANO)} tokens/s`,
			),
			values.FLOPs > 0n &&
				formula(
					"tokens · peak / FLOPs",
					`${grouped(values.tokens)} · ${grouped(values.peak!)} / ${grouped(values.FLOPs)}`,
					`${quotient((NANO * values.tokens * values.peak!) / values.FLOPs, NANO)} tokens/s`,
				),
			`${bound === "memory" ? "Memory" : "Compute"}-bound: ${BOUNDS[bound]}, so the smaller one counts, ${FORMATS.rate(values)} tokens/s.`,
		],
		intensity: () => [
			formula(
				"FLOPs / bytes",
				`${grouped(values.FLOPs)} / ${grouped(values.bytes)}`,
				FORMATS.intensity(values),
			),
		],
	}[what];
	const title = {
		rate: `How many tokens per second can ${name} reach at most?`,
		bytes: `How many bytes does ${name} read?`,
		FLOPs: `How many FLOPs does ${name} take?`,
		intensity: `How many FLOPs does ${name} do for each byte?`,
	}[what];
	return { title, lines: lines() };
}

/** The seconds of one pass: its tokens over their rate. */
export const passSeconds = ({ values }: PassLimit) =>
	(Number(values.tokens) * 1e9) / Number(values.rate);

function secondsDerivation(pass: PassLimit): Derivation {
	const { values, name } = pass;
	const says =
		name === "decode"
			? "A pass gives one token of each sequence, so this is the least time between two " +
				"tokens of a sequence."
			: "The whole prompt is read before the first token: no first token comes earlier.";
	return {
		title:
			name === "decode"
				? "How long does an output token take at least?"
				: "How long until the first token at least?",
		lines: [
			pass.bound === "memory"
				? formula(
						"bytes / bandwidth",
						`${grouped(values.bytes)} / ${grouped(values.bandwidth!)}`,
						duration(passSeconds(pass)),
					)
				: formula(
						"FLOPs / peak",
						`${grouped(values.FLOPs)} / ${grouped(values.peak!)}`,
						duration(passSeconds(pass)),
					),
			says,
		],
	};
}

const ROWS: [Quantity, string][] = [
	["rate", "tokens/s ≤"],
	["bytes", "bytes read"],
	["FLOPs", "FLOPs"],
	["intensity", "FLOPs per byte"],
];

function LimitsTable({ sized, gpu, limits }: { sized: Sized; gpu: Gpu; limits: SpeedLimits }) {
	const peak = `${prefixed(limits.peak)}FLOP/s`;
	const bandwidth = `${prefixed(limits.bandwidth)}B/s`;
	const facts = (lines: Derivation["lines"]) => () => ({ title: gpu.title, lines });
	return (
		<table class="limits">
			<caption>
				{sized.count === "1"
					? "Of one GPU"
					: `Of one GPU of each stage, ${splitLabel(sized.split, sized.count)}`}
				; {limits.dtype} products at{" "}
				<NumberButton derive={facts(peakFacts(gpu, limits.dtype, peak))} label="peak">
					{peak}
				</NumberButton>
				, memory at{" "}
				<NumberButton derive={facts(bandwidthFacts(gpu, bandwidth))} label="bandwidth">
					{bandwidth}
				</NumberButton>
			</caption>
			<thead>
				<tr>
					<th scope="col">
						<span class="hidden">quantity</span>
					</th>
					{limits.passes.map((x) => (
						<th key={x.name} scope="col" class="n">
							{PASSES[x.name]}
						</th>
					))}
				</tr>
			</thead>
			<tbody>
				{ROWS.map(([what, label]) => (
					<tr key={what}>
						<th scope="row">{label}</th>
						{limits.passes.map((pass) => (
							<td key={pass.name} class="n">
								<NumberButton
									derive={() => limitDerivation(sized, pass, what)}
									label={`${pass.name}, ${what}`}
									data-speed={`${pass.name}-${what}`}
								>
									{FORMATS[what](pass.values)}
								</NumberButton>
							</td>
						))}
					</tr>
				))}
				<tr>
					<th scope="row">latency ≥</th>
					{limits.passes.map((pass) => (
						<td key={pass.name} class="n">
							<NumberButton
								derive={() => secondsDerivation(pass)}
								label={
									pass.name === "decode"
										? "time per output token"
										: "time to first token"
								}
								data-speed={`${pass.name}-seconds`}
							>
								{duration(passSeconds(pass))}
							</NumberButton>
						</td>
					))}
				</tr>
				<tr>
					<th scope="row">bound by</th>
					{limits.passes.map((pass) => (
						<td key={pass.name} class="n">
							{pass.bound}
						</td>
					))}
				</tr>
			</tbody>
		</table>
	);
}

function finding(limits: SpeedLimits | null, where: string): string {
	if (!limits) return `No speed on ${where}: it does not fit there`;
	const [decode, prefill] = limits.passes;
	const same = decode!.bound === prefill!.bound;
	const bounds = same
		? `both are ${decode!.bound}-bound`
		: `decode is ${decode!.bound}-bound, prefill ${prefill!.bound}-bound`;
	return `At most ${FORMATS.rate(decode!.values)} tokens/s on ${where}: ${bounds}`;
}

export function SpeedSection({ model }: { model: ModelData }) {
	const state = useAppState(...SIZING_SETTINGS);
	const { gpu } = chosenHardware(sizesOf(model), state);
	const sized = settings(model, { ...state, mode: "run" });
	const found = verdict(sized, gpu);
	const where = `${sized.count === "1" ? "one" : `${sized.count} ×`} ${gpu.title}`;
	const limits = found.fits ? speedLimits(sized, gpu) : null;
	const lead =
		limits &&
		`First token after ${duration(passSeconds(limits.passes[1]!))} at least, then one each ${duration(passSeconds(limits.passes[0]!))}: ${state.batch === 1n ? "1 sequence" : `${grouped(state.batch)} sequences`} of ${grouped(state.context)} tokens, ${sized.dtype.title} weights, ${sized.kv.title} cache.`;
	return (
		<Section
			id="speed"
			topic="Speed limits"
			title={finding(limits, where)}
			lead={
				lead ||
				"A speed without the memory for it would be a false answer. Choose more or " +
					"other GPUs above, a shorter context, or fewer bits."
			}
		>
			{limits && (
				<>
					<div class="speed-pictures">
						<div class="scroll" tabIndex={0} role="region" aria-label="table of speed">
							<LimitsTable sized={sized} gpu={gpu} limits={limits} />
						</div>
						<Roofline sized={sized} gpu={gpu} limits={limits} most={found.maxBatch} />
						<BatchCharts sized={sized} gpu={gpu} most={found.maxBatch} />
					</div>
				</>
			)}
			<p class="caption">
				{ASSUMPTIONS} {limits && formatNote(gpu, sized.dtype)}
			</p>
		</Section>
	);
}
