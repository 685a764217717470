// Sizes of both models side by side, each as two bars in one scale.
import { useMemo } from "preact/hooks";
import { NumberButton } from "../../components/number";
import { data, type ModelData } from "../../lib/data";
import { formula, inShort, sumFormula, type Derivation } from "../../lib/derivation";
import {
	compactCount,
	gibibytes,
	grouped,
	inWords,
	ratioText,
	threeDigits,
} from "../../lib/format";
import type { MapMeasure } from "../../lib/settings";
import { useAppState } from "../../lib/state";
import { sizesOf } from "../../lib/sizing/data";
import {
	chosenHardware,
	fitterOf,
	settings,
	verdict,
	GPU_SETTINGS,
	SIZING_SETTINGS,
	type SizingSettings,
} from "../../lib/sizing/fit";
import { shortTitle } from "../../lib/sizing/facts";
import { speedLimits } from "../../lib/sizing/speed_limits";
import { limitDerivation } from "../speed/speed";
import { measuredCells } from "../parameters/measures";

interface Measure {
	name: string;
	note: string;
	color: string;
	values: (Value | null)[];
}

interface Value {
	n: bigint;
	text: string;
	derive: () => Derivation;
}

/** The smaller of the two context lengths; a model without a limit has none. */
function commonContext(): bigint {
	const limits = data.models
		.map((x) => (x.attention as { context: string }).context)
		.filter(Boolean)
		.map(BigInt);
	return limits.length
		? limits.reduce((a, b) => (a < b ? a : b))
		: BigInt((data.models[0]!.sizes as { context: string }).context);
}

function countOf(model: ModelData, name: string): Value | null {
	const count =
		model.counts.find((x) => x.name === name) ?? (name === "active" ? model.counts[0]! : null);
	if (!count) return null;
	const n = BigInt(count.value);
	return {
		n,
		text: grouped(n),
		derive: () => ({
			title: `${model.name}: ${name}`,
			lines: [
				count.says,
				formula(count.symbols, count.numbers, grouped(n)),
				...inShort(name, n, compactCount(n)),
			],
		}),
	};
}

/** The sizes of both, at the smaller context length. */
function useMeasures() {
	const state = useAppState(...SIZING_SETTINGS);
	return useMemo(
		() => measuresAt(state),
		[state.dtype, state.kv, ...GPU_SETTINGS.map((x) => state[x])],
	);
}

function measuresAt(state: SizingSettings) {
	const tokens = commonContext();
	const at: SizingSettings = {
		...state,
		mode: "run",
		context: tokens,
		batch: 1n,
		gpus: "1",
		tp: "",
	};
	const sets = data.models.map((model) => settings(model, at));
	const measured = (map: MapMeasure, unit: string, text: (n: bigint) => string) =>
		data.models.map((model, i): Value => {
			const { whole, cells } = measuredCells(model, { map, by: "part" }, sets[i]!);
			return {
				n: whole,
				text: text(whole),
				derive: () => ({
					title: `${model.name}: ${unit}`,
					lines: [
						sumFormula(
							cells.map((x) => [x.name, x.size]),
							unit,
						),
						unit === "bytes"
							? formula("bytes / 2³⁰", `${grouped(whole)} / 2³⁰`, gibibytes(whole))
							: "",
					],
				}),
			};
		});
	const context = `${grouped(tokens)} tokens`;
	const dtypes = [...new Set(sets.map((x) => x.dtype.title))].join(" and ");
	const measures: Measure[] = [
		{
			name: "Parameters",
			note: "",
			color: "ramp-4",
			values: data.models.map((x) => countOf(x, "total")),
		},
		// of dense models, all
		...(data.models.some((x) => x.counts.some((y) => y.name === "active"))
			? [
					{
						name: "Active",
						note: "for one token",
						color: "ramp-4",
						values: data.models.map((x) => countOf(x, "active")),
					},
				]
			: []),
		{
			name: "Weights",
			note: dtypes,
			color: "ramp-4",
			values: measured("bytes", "bytes", gibibytes),
		},
		{
			name: "KV cache",
			note: `${context}, the smaller context length`,
			color: "c-kv",
			values: measured("cache", "bytes", gibibytes),
		},
		{
			name: "FLOPs",
			note: `of one token, after ${context}`,
			color: "ramp-4",
			values: measured("flops", "FLOPs", grouped),
		},
	];
	const speed = speedOf(at);
	measures.push({
		name: "Decode",
		note: `upper bound on ${speed.on}, ${context}`,
		color: "ramp-4",
		values: speed.values,
	});
	return { measures, speed };
}

const ratioOf = ([a, b]: (Value | null)[]): number | null =>
	a && b && a.n > 0n ? Number(b.n) / Number(a.n) : null;

const FOUND: Partial<Record<string, string>> = {
	Weights: "weight bytes",
	"KV cache": "KV cache",
	FLOPs: "FLOPs",
};

/** What the second model takes, as multiples of the first. */
export function MeasuresFinding() {
	const { measures } = useMeasures();
	const parts = measures.flatMap(({ name, values }) => {
		const [what, ratio] = [FOUND[name], ratioOf(values)];
		if (!what || ratio === null) return [];
		const text = ratioText(ratio);
		return ratio === 1
			? `the same ${what}`
			: `${text}${text.startsWith("1/") ? " of" : ""}\u00a0the ${what}`;
	});
	return (
		parts.length > 0 &&
		`${data.models[1]!.name} takes ${inWords(parts)} of ${data.models[0]!.name}`
	);
}

/** The decode ceilings of both on the same hardware. */
export function SpeedFinding() {
	const { speed } = useMeasures();
	const found = speed.values.map((x, i) => {
		const { name } = data.models[i]!;
		return x ? `${name} ${i ? "" : "decodes "}at most ${x.text}` : `${name} does not fit`;
	});
	return `On ${speed.on}, ${found.join(", ")}`;
}

export function Measures() {
	const { measures } = useMeasures();
	return (
		<table class="measures" role="table">
			<caption class="hidden">Sizes of both models</caption>
			<thead role="rowgroup">
				<tr role="row">
					<th scope="col" role="columnheader">
						<span class="hidden">size</span>
					</th>
					{data.models.map((x, i) => (
						<th key={i} scope="col" role="columnheader" class="n">
							{x.name}
						</th>
					))}
					<th scope="col" role="columnheader" class="n">
						ratio
					</th>
				</tr>
			</thead>
			<tbody role="rowgroup">
				{measures.map((x) => (
					<MeasureRow key={x.name} measure={x} />
				))}
			</tbody>
		</table>
	);
}

function MeasureRow({ measure }: { measure: Measure }) {
	const most = measure.values.reduce((a, x) => (x && x.n > a ? x.n : a), 1n);
	const [a, b] = measure.values;
	const ratio = ratioOf(measure.values);
	return (
		<tr role="row">
			<th scope="row" role="rowheader">
				{measure.name}
				<span class="caption">{measure.note}</span>
			</th>
			{measure.values.map((x, i) => (
				<td key={i} class="n" role="cell" data-label={data.models[i]!.name}>
					{x ? (
						<NumberButton
							derive={x.derive}
							label={`${measure.name} of ${data.models[i]!.name}`}
						>
							{x.text}
						</NumberButton>
					) : (
						"does not fit"
					)}
					{x && (
						<svg class="size-bar data" width="100%" height="10" aria-hidden="true">
							<rect
								x="0"
								y="0"
								height="10"
								rx="2"
								width={`${Math.max(Number((x.n * 10_000n) / most) / 100, 0.3)}%`}
								fill={`var(--${measure.color})`}
							/>
						</svg>
					)}
				</td>
			))}
			<td class="n" role="cell" data-label="ratio">
				{ratio !== null && a && b && (
					<NumberButton
						derive={() => ({
							title: `${measure.name}: ratio`,
							lines: [
								formula(
									`${data.models[1]!.name} / ${data.models[0]!.name}`,
									`${grouped(b.n)} / ${grouped(a.n)}`,
									ratioText(ratio),
								),
							],
						})}
						label={`${measure.name}, ratio`}
					>
						{ratioText(ratio)}
					</NumberButton>
				)}
			</td>
		</tr>
	);
}

/**
 * The decode ceiling of both on the same hardware, the fewest GPUs of one kind that run each; no
 * speed of what does not fit.
 */
function speedOf(at: SizingSettings) {
	const { gpu } = chosenHardware(sizesOf(data.models[0]!), at);
	const counts = data.models.map((x) => Number(fitterOf(sizesOf(x), at).fewest(gpu)));
	const gpus = String(Math.max(...counts));
	const values = data.models.map((model): Value | null => {
		const sized = settings(model, { ...at, gpus, tp: "" });
		if (!verdict(sized, gpu).fits) return null;
		const pass = speedLimits(sized, gpu).passes[0]!;
		return {
			n: pass.values.rate,
			text: `${threeDigits(Number(pass.values.rate) / 1e9)} tokens/s`,
			derive: () => limitDerivation(sized, pass, "rate"),
		};
	});
	return { values, on: `${gpus} × ${shortTitle(gpu)}` };
}
