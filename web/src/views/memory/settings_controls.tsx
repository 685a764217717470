// The controls of memory and hardware: context, sequences, precision, GPUs and layout, or the
// settings of training.
import { Select, Segmented, WholeNumber, type Options } from "../../components/controls";
import type { ModelData } from "../../lib/data";
import { grouped } from "../../lib/format";
import { change, useAppState } from "../../lib/state";
import { plainTitle } from "../../lib/sizing/facts";
import { GPUS, sizesOf } from "../../lib/sizing/data";
import {
	chosenHardware,
	CUSTOM,
	GPU_SETTINGS,
	settings,
	SIZING_SETTINGS,
	type GpuFigure,
	type SizingSettings,
} from "../../lib/sizing/fit";
import { chosenDtypes, splitsOf } from "../../lib/sizing/gpu_memory";
import "./memory.css";

const asOptions = (names: readonly string[]): Options => names.map((x) => [x, x]);
const CONTEXT_MAX = 2 ** 21;
const BATCH_MAX = 2 ** 12;

/** Names that all models share, in the order of the first. */
function commonNames(
	models: readonly ModelData[],
	names: (model: ModelData) => string[],
): string[] {
	const [first, ...rest] = models.map(names);
	return first!.filter((x) => rest.every((y) => y.includes(x)));
}

/** The formats that all models share, in the order of the first. */
function commonFormats(models: readonly ModelData[], of: "dtypes" | "kvs"): Options {
	const names = commonNames(models, (x) => sizesOf(x)[of].map((y) => y.name));
	const titles = new Map(sizesOf(models[0]!)[of].map((x) => [x.name, x.title]));
	return names.map((x) => [x, titles.get(x)!]);
}

/** The sliders of tokens and sequences. */
export function LoadControls({ training = false }: { training?: boolean }) {
	const state = useAppState("context", "batch");
	return (
		<>
			<WholeNumber
				id="context"
				label={training ? "Sequence length" : "Context"}
				unit="tokens"
				value={state.context}
				max={CONTEXT_MAX}
				set={(context) => change({ context })}
			/>
			<WholeNumber
				id="batch"
				label={training ? "Micro-batch" : "Batch"}
				unit="sequences"
				value={state.batch}
				max={BATCH_MAX}
				set={(batch) => change({ batch })}
			/>
		</>
	);
}

/** The precision of the weights and of the KV cache. */
function PrecisionControls({ models }: { models: readonly ModelData[] }) {
	const state = useAppState("dtype", "kv");
	const several = models.length > 1;
	const own: Options = several ? [["", "each model's own"]] : [];
	const { dtype, kv } = chosenDtypes(sizesOf(models[0]!), state);
	return (
		<>
			<Select
				id="choice-dtype"
				label="Weights"
				options={[...own, ...commonFormats(models, "dtypes")]}
				chosen={several ? state.dtype : dtype.name}
				choose={(x) => change({ dtype: x })}
			/>
			<Select
				id="choice-kv"
				label="KV cache"
				options={[...own, ...commonFormats(models, "kvs")]}
				chosen={several ? state.kv : kv.name}
				choose={(x) => change({ kv: x })}
			/>
		</>
	);
}

const gpuOptions: Options = [
	...GPUS.map((x): [string, string] => [x.name, plainTitle(x)]),
	[CUSTOM, "Custom GPU…"],
];
/** Of one model, the answer may choose. */
const WITH_SMALLEST: Options = [["", "Smallest"], ...gpuOptions];

/** The sizes of a GPU that the catalog does not have. */
export function CustomFigures() {
	const state = useAppState(...GPU_SETTINGS);
	if (state.card !== CUSTOM) return null;
	const figures: [name: GpuFigure, label: string, unit: string, max: number][] = [
		["gpumem", "Memory, GiB", "GiB", 512],
		["gpubw", "Bandwidth, GB/s", "GB/s", 16384],
		["gpuflops", "bf16, TFLOP/s", "TFLOP/s", 8192],
	];
	return (
		<>
			{figures.map(([name, label, unit, max]) => (
				<WholeNumber
					key={name}
					id={name}
					label={label}
					unit={unit}
					value={state[name]}
					max={max}
					set={(x) => change({ [name]: x })}
				/>
			))}
		</>
	);
}

export function InferenceControls({ models }: { models: readonly ModelData[] }) {
	const state = useAppState(...SIZING_SETTINGS);
	const [model] = models;
	const { gpu, count } = chosenHardware(sizesOf(model!), state);
	const layouts = splitsOf(sizesOf(model!), count).filter((x) => x.replicas === 1);
	const automatic = state.tp
		? "as fit chooses"
		: `as fit: ${settings(model!, state).split.layout.name}`;
	// training has GPUs of its own; a cell of the hardware chooses those that run the model
	if (state.mode === "train") return <PrecisionControls models={models} />;
	return (
		<>
			<PrecisionControls models={models} />
			<Select
				id="choice-gpus"
				label="GPUs"
				options={asOptions(commonNames(models, (x) => sizesOf(x).gpus.map((y) => y.count)))}
				chosen={count}
				choose={(gpus) => change({ gpus, card: gpu.name, tp: "" })}
			/>
			<Select
				id="choice-card"
				label="GPU"
				options={models.length === 1 && state.card ? WITH_SMALLEST : gpuOptions}
				chosen={gpu.name}
				choose={(card) => change({ card, gpus: card && count, tp: "" })}
			/>
			{count !== "1" && models.length === 1 && (
				<Select
					id="choice-tp"
					label="Layout"
					options={[
						["", automatic],
						...layouts.map((x): [string, string] => [x.layout.tp, x.layout.name]),
					]}
					chosen={state.tp}
					choose={(tp) => change({ tp })}
				/>
			)}
		</>
	);
}

function TrainingControls({ models }: { models: readonly ModelData[] }) {
	const state = useAppState(...SIZING_SETTINGS);
	const plans = models.map((x) => settings(x, state).plan);
	const { tp, dp, chosen } = plans[0]!.training!;
	const ranks = plans[0]!.training!.ranks.filter((x) =>
		plans.every((y) => y.training!.ranks.includes(x)),
	);
	const { training } = sizesOf(models[0]!);
	return (
		<>
			<Select
				id="choice-trainers"
				label="GPUs that train"
				options={asOptions(training.gpus)}
				chosen={plans[0]!.gpus}
				choose={(trainers) => change({ trainers })}
			/>
			<Select
				id="choice-tp"
				label="Tensor parallel"
				options={asOptions(ranks)}
				chosen={tp}
				choose={(x) => change({ tp: x })}
			/>
			{training.choices.map((x) => (
				<Select
					key={x.name}
					id={`choice-${x.name}`}
					label={x.label}
					options={x.options}
					chosen={chosen[x.name]!}
					choose={(y) => change({ [x.name]: y })}
				/>
			))}
			{dp === "1" && chosen.zero !== "0" && (
				<span class="control-note">
					With one data-parallel rank, ZeRO has nothing to shard over.
				</span>
			)}
		</>
	);
}

export function ModeControl() {
	const { mode } = useAppState("mode");
	return (
		<Segmented
			id="mode"
			label="What it is for"
			labelHidden
			options={[
				["run", "Inference"],
				["train", "Training"],
			]}
			chosen={mode}
			choose={(x) => change({ mode: x })}
		/>
	);
}

export const saidLoad = (state: SizingSettings): string[] => [
	`${grouped(state.context)} tokens`,
	`batch ${grouped(state.batch)}`,
];

/** The settings in words, for paper. */
function saidSizing(models: readonly ModelData[], state: SizingSettings): string {
	const { plan } = settings(models[0]!, state);
	const { dtype, kv } = chosenDtypes(sizesOf(models[0]!), state);
	const said = plan.training
		? sizesOf(models[0]!).training.choices.map((x) => {
				const chosen = plan.training!.chosen[x.name]!;
				return `${x.label} ${x.options.find(([y]) => y === chosen)?.[1] ?? chosen}`;
			})
		: [
				`weights ${state.dtype ? dtype.title : "of each model's own type"}`,
				`KV cache ${state.kv ? kv.title : "of each model's own type"}`,
			];
	return [...saidLoad(state), plan.label, ...said].join(" · ");
}

/** What the memory section asks beside the bar of settings; of two models, which have none, all. */
export function SizingControls({ models }: { models: readonly ModelData[] }) {
	const state = useAppState(...SIZING_SETTINGS);
	const training = state.mode === "train";
	if (models.length === 1 && !training) return null;
	return (
		<>
			<p class="settings-said">{saidSizing(models, state)}</p>
			<div class="sizing-controls">
				{models.length > 1 && <LoadControls training={training} />}
				{training ? (
					<TrainingControls models={models} />
				) : (
					<InferenceControls models={models} />
				)}
			</div>
		</>
	);
}
