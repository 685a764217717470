// The memory section: what grows with the context, where a GPU is full, and every part to the byte.
import { Folded } from "../../components/folded";
import { NumberButton } from "../../components/number";
import { Section } from "../../components/section";
import { derivation } from "../../lib/derivation";
import type { ModelData } from "../../lib/data";
import { gibibytes, grouped, onEachGpu, percent } from "../../lib/format";
import { useAppState } from "../../lib/state";
import { GPUS, sizesOf, type Gpu } from "../../lib/sizing/data";
import { memoryFacts, shortTitle } from "../../lib/sizing/facts";
import {
	chosenHardware,
	fitterOf,
	settings,
	type Fitter,
	SIZING_SETTINGS,
	type SizingSettings,
} from "../../lib/sizing/fit";
import {
	ApproximateMemory,
	MemoryLimit,
	memoryPerGpu,
	namedSplit,
	sizedIn,
	type GpuMemory,
	type Part,
	type Sized,
} from "../../lib/sizing/gpu_memory";
import { ContextWarning } from "./context_warning";
import { MemoryChart, chartRange, chartTokens, type ChartRange } from "./memory_chart";
import {
	contextDerivation,
	contextText,
	isFixedCache,
	partDerivation,
	PART_NAMES,
	remainderDerivation,
	STATES,
} from "./memory_derivations";
import { MemoryMap } from "./memory_map";
import { PartSwatch } from "./patterns";
import { ModeControl } from "./settings_controls";
import "./memory.css";

interface Shown {
	model: ModelData;
	sized: Sized;
	memory: GpuMemory;
}

/** The GPUs of the pictures, and the chosen one. */
function shownGpus({ model }: Shown, state: SizingSettings): Gpu[] {
	const { gpu: chosen } = chosenHardware(sizesOf(model), state);
	const shown = GPUS.filter((x) => x.shown);
	return (shown.some((x) => x.name === chosen.name) ? shown : [...shown, chosen]).toSorted(
		(a, b) => Number(BigInt(a.memory) - BigInt(b.memory)),
	);
}

function finding({ model, sized, memory }: Shown): string {
	const { values } = memory;
	const { own, stated } = sizesOf(model);
	const share = (n: bigint) => (Number(n) / Number(values.total)) * 100;
	if (sized.plan.mode === "train") {
		const times = Number(values.total) / Number(values.weights || 1n);
		return `A training step takes ${gibibytes(values.total)} on ${sized.plan.gpus === "1" ? "one GPU" : "each GPU"}, ${times >= 10 ? Math.round(times) : times.toFixed(1)} times its weights`;
	}
	const batch = grouped(values.B! * BigInt(sized.split.replicas));
	const at = stated && values.T === BigInt(own) ? "full context" : `${grouped(values.T!)} tokens`;
	const cache = share(values.cache!);
	if (!values.cache)
		return `At batch ${batch} and ${at} nothing is cached: memory does not grow with the context`;
	const ofMemory = `${cache < 1 ? "under 1" : Math.round(cache)}% of the memory`;
	const what = isFixedCache(sizesOf(model)) ? "recurrent states are" : "KV cache is";
	return `At batch ${batch} and ${at} the ${what} ${ofMemory}`;
}

function topic(all: Shown[]): string {
	const { plan } = all[0]!.sized;
	if (plan.mode === "train") return `Memory for training, ${plan.label}`;
	const dtypes = [...new Set(all.map((x) => x.sized.dtype.title))].join(" and ");
	return `Memory for inference, ${plan.label}, ${dtypes}`;
}

/** The parts on the most loaded GPU, to the byte. */
function PartsTable({
	shown,
	index,
	isComparison,
}: {
	shown: Shown;
	index: number;
	isComparison: boolean;
}) {
	const { model, sized, memory } = shown;
	const { values, stage } = memory;
	const { plan } = sized;
	const derive = (part: Part | "total") => () => partDerivation(part, memory, sized);
	const where = [
		isComparison && `${model.name}: `,
		`on ${plan.label}`,
		stage.where &&
			sized.count !== "1" &&
			plan.mode === "run" &&
			`, most loaded: ${stage.where}`,
	]
		.filter(Boolean)
		.join("");
	const paddedTokens = plan.tokens && values.T !== plan.variables.T;
	const derivePadding = () => ({
		title: "Tokens of a sequence",
		lines: [
			...derivation(plan.tokens!, plan.variables, "tokens"),
			"Sequences are padded to the next length that tensor parallelism splits evenly.",
		],
	});
	const row = (part: Part | "total") => {
		const n = values[part]!;
		const isState = part === "cache" && isFixedCache(sizesOf(model));
		const [name, isPart] =
			part === "total" ? ["Total", false] : [isState ? STATES : PART_NAMES[part], true];
		return (
			<tr key={part} class={isPart ? undefined : "total"}>
				<th scope="row">
					{part !== "total" && <PartSwatch part={part} />}
					{name}
					{part === "overhead" && <span class="estimate"> (estimate)</span>}
				</th>
				<td class="n">
					<NumberButton
						derive={derive(part)}
						label={`${name}, bytes`}
						data-part={index ? undefined : part}
					>
						{grouped(n)}
					</NumberButton>
				</td>
				<td class="n">
					<NumberButton derive={derive(part)} label={`${name} in GiB`}>
						{gibibytes(n)}
					</NumberButton>
				</td>
				<td class="n share">
					{isPart && (
						<NumberButton derive={derive(part)} label={`share of ${name}`}>
							{percent(n, values.total)}
						</NumberButton>
					)}
				</td>
			</tr>
		);
	};
	return (
		<table class="parts">
			<caption>
				<span class="set">{where}</span>
				{paddedTokens && (
					<span>
						; sequences are padded to{" "}
						<NumberButton derive={derivePadding} label="tokens of a sequence">
							{grouped(values.T!)}
						</NumberButton>{" "}
						tokens
					</span>
				)}
			</caption>
			<thead>
				<tr>
					<th scope="col">
						<span class="hidden">component</span>
					</th>
					<th scope="col" class="n">
						bytes
					</th>
					<th scope="col" class="n">
						GiB
					</th>
					<th scope="col" class="n share">
						share
					</th>
				</tr>
			</thead>
			<tbody>
				{[...plan.parts].toReversed().map(row)}
				{row("total")}
			</tbody>
		</table>
	);
}

/** The model on a GPU, in the split that `fit` chooses for it. */
function sizedOn(
	model: ModelData,
	state: SizingSettings,
	sized: Sized,
	fitter: Fitter,
	gpu: Gpu,
): Sized {
	const sizes = sizesOf(model);
	if (sized.plan.mode === "train" || namedSplit(sizes, state, sized.count)) return sized;
	const { split } = fitter.choose(gpu, sized.count);
	return split.layout === sized.split.layout && split.replicas === sized.split.replicas
		? sized
		: sizedIn(sizes, state, split, sized.count);
}

function GpuTable({ all, gpus, state }: { all: Shown[]; gpus: Gpu[]; state: SizingSettings }) {
	const fitters = all.map((x) => fitterOf(sizesOf(x.model), state));
	const prefix = (x: Shown) => (all.length > 1 ? `${x.model.name}, ` : "");
	return (
		<table class="gpus">
			<caption>
				GPUs, by the memory of the most loaded one
				{all.some((x) => x.sized.sizes.stated) && (
					<>
						; <i>italic</i>: beyond the model’s own context of{" "}
						{all.map((x) => grouped(x.sized.sizes.own)).join(" and ")} tokens
					</>
				)}
			</caption>
			<thead>
				<tr>
					<th scope="col">GPU</th>
					<th scope="col" class="n">
						memory
					</th>
					{all.map((x) => [
						<th scope="col">{prefix(x)}at these settings</th>,
						<th scope="col" class="n">
							{prefix(x)}longest context
						</th>,
					])}
				</tr>
			</thead>
			<tbody>
				{gpus.map((gpu) => (
					<tr key={gpu.name}>
						<th scope="row">{shortTitle(gpu)}</th>
						<td class="n">
							<NumberButton
								derive={() => ({ title: gpu.title, lines: memoryFacts(gpu) })}
								label={`memory of ${gpu.title}`}
							>
								{gibibytes(gpu.memory)}
							</NumberButton>
						</td>
						{all.map((x, i) => (
							<GpuCells
								key={x.model.name}
								gpu={gpu}
								shown={x}
								sized={sizedOn(x.model, state, x.sized, fitters[i]!, gpu)}
								index={i}
							/>
						))}
					</tr>
				))}
			</tbody>
		</table>
	);
}

function GpuCells({
	gpu,
	shown,
	sized,
	index,
}: {
	gpu: Gpu;
	shown: Shown;
	sized: Sized;
	index: number;
}) {
	const { name } = shown.model;
	const memory = sized === shown.sized ? shown.memory : memoryPerGpu(sized).mostLoaded;
	const left = BigInt(gpu.memory) - memory.values.total;
	const at = new MemoryLimit(sized.plan).longestContext(BigInt(gpu.memory));
	const own = BigInt(sized.sizes.own);
	const isBeyond = sized.sizes.stated && at !== 0n && (at === null || at > own);
	return (
		<>
			<td class={left < 0n ? "lacking" : undefined}>
				<NumberButton
					derive={() => remainderDerivation(gpu, memory.values.total, name)}
					label={`${name} on ${gpu.title}`}
				>
					{left >= 0n
						? `fits, ${gibibytes(left)} left`
						: `${gibibytes(-left)} too little`}
				</NumberButton>
			</td>
			<td class={isBeyond ? "n beyond" : "n"}>
				<NumberButton
					derive={() => contextDerivation(gpu, at, sized, name)}
					label={`longest context on ${gpu.title}`}
					data-card={index ? undefined : gpu.name}
				>
					{contextText(at)}
				</NumberButton>
			</td>
		</>
	);
}

/** The memory of one model, or of two beside each other. */
export function MemorySection({ models }: { models: readonly ModelData[] }) {
	const state = useAppState(...SIZING_SETTINGS);
	const all = models.map((model): Shown => {
		const sized = settings(model, state);
		return { model, sized, memory: memoryPerGpu(sized).mostLoaded };
	});
	const gpus = shownGpus(all[0]!, state);
	const ranges = all.map((x): ChartRange =>
		chartRange(
			new ApproximateMemory(x.sized.plan),
			chartTokens(Number(x.sized.sizes.own), Number(state.context)),
			gpus,
		),
	);
	const range = {
		tokens: Math.max(...ranges.map((x) => x.tokens)),
		bytes: Math.max(...ranges.map((x) => x.bytes)),
	};
	const first = all[0]!;
	const title =
		models.length === 1
			? finding(first)
			: all
					.map(
						(x) =>
							`${x.model.name} takes ${gibibytes(x.memory.values.total)}${onEachGpu(x.sized.plan.gpus)}`,
					)
					.join(", ");
	return (
		<Section
			id="memory"
			topic={topic(all)}
			title={title}
			controls={first.sized.sizes.training && <ModeControl />}
		>
			{models.map((x) => (
				<ContextWarning key={x.name} model={x} />
			))}
			<div class={models.length === 1 ? "memory-one" : "memory-two"}>
				{all.map((x) => (
					<figure key={x.model.name}>
						{models.length > 1 && <figcaption class="bold">{x.model.name}</figcaption>}
						<MemoryChart
							name={x.model.name}
							sizes={x.sized.sizes}
							sized={x.sized}
							context={Number(state.context)}
							range={range}
							gpus={gpus}
						/>
					</figure>
				))}
				{all.map((x, i) => (
					<div
						class="scroll"
						tabIndex={0}
						role="region"
						aria-label={`memory of ${x.model.name}, in bytes`}
					>
						<PartsTable
							key={x.model.name}
							shown={x}
							index={i}
							isComparison={models.length > 1}
						/>
					</div>
				))}
			</div>
			<p class="caption">
				The strip at the left edge divides the weights by component. Hatched or dotted:
				estimates, and contexts beyond the model's own. Circles: where a GPU is full.
			</p>
			<Folded says="Where each GPU is full: by context and batch, and what is left on it">
				<div class="memory-lower">
					{models.length === 1 && state.mode === "run" && (
						<MemoryMap
							model={first.model}
							sized={first.sized}
							gpus={gpus}
							state={state}
						/>
					)}
					<div class="scroll" tabIndex={0} role="region" aria-label="table of GPUs">
						<GpuTable all={all} gpus={gpus} state={state} />
					</div>
				</div>
			</Folded>
		</Section>
	);
}
