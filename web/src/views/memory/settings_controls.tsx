// The controls of the bar of settings: context, sequences, precision, GPUs and layout, or the
// settings of training.
import { useState } from "preact/hooks";
import { Select, Segmented, WholeNumber, type Options } from "../../components/controls";
import { Menu } from "../../components/export/menu";
import type { ModelData } from "../../lib/data";
import { focusNext } from "../../lib/focus_next";
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
function LoadControls() {
	const state = useAppState("context", "batch");
	return (
		<>
			<WholeNumber
				id="context"
				label="Context"
				unit="tokens"
				value={state.context}
				max={CONTEXT_MAX}
				set={(context) => change({ context })}
			/>
			<WholeNumber
				id="batch"
				label="Batch"
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
const WITH_SMALLEST: Options = [["", "Least memory"], ...gpuOptions];

/** The sizes of a GPU that the catalog does not have. */
function CustomFigures() {
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

/** Which GPUs run the model, and how many. */
function InferenceControls({
	models,
	openCustom,
}: {
	models: readonly ModelData[];
	openCustom: () => void;
}) {
	const state = useAppState(...SIZING_SETTINGS);
	const { gpu, count } = chosenHardware(sizesOf(models[0]!), state);
	return (
		<>
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
				choose={(card) => {
					change({ card, gpus: card && count, tp: "" });
					if (card === CUSTOM) openCustom();
				}}
			/>
		</>
	);
}

/** How several GPUs share the model. */
function LayoutControl({ model, count }: { model: ModelData; count: string }) {
	const state = useAppState(...SIZING_SETTINGS);
	const layouts = splitsOf(sizesOf(model), count).filter((x) => x.replicas === 1);
	const automatic = state.tp
		? "as fit chooses"
		: `as fit: ${settings(model, state).split.layout.name}`;
	return (
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
	);
}

/** The GPUs that train the model: others than those that run it. */
function TrainersControl({ models }: { models: readonly ModelData[] }) {
	const state = useAppState(...SIZING_SETTINGS);
	return (
		<Select
			id="choice-trainers"
			label="GPUs that train"
			options={asOptions(sizesOf(models[0]!).training!.gpus)}
			chosen={settings(models[0]!, state).plan.gpus}
			choose={(trainers) => change({ trainers })}
		/>
	);
}

function TrainingControls({ models }: { models: readonly ModelData[] }) {
	const state = useAppState(...SIZING_SETTINGS);
	const plans = models.map((x) => settings(x, state).plan);
	const { tp, dp, chosen } = plans[0]!.training!;
	const ranks = plans[0]!.training!.ranks.filter((x) =>
		plans.every((y) => y.training!.ranks.includes(x)),
	);
	return (
		<>
			<Select
				id="choice-tp"
				label="Tensor parallel"
				options={asOptions(ranks)}
				chosen={tp}
				choose={(x) => change({ tp: x })}
			/>
			{sizesOf(models[0]!).training!.choices.map((x) => (
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

/** The controls of the bar; those that few people change are in a menu. */
export function SettingsControls({ models }: { models: readonly ModelData[] }) {
	const state = useAppState(...SIZING_SETTINGS);
	const { count } = chosenHardware(sizesOf(models[0]!), state);
	const isTraining = state.mode === "train";
	const hasLayout = !isTraining && count !== "1" && models.length === 1;
	const isCustom = !isTraining && state.card === CUSTOM;
	const [opened, setOpened] = useState(0);
	const openCustom = () => {
		setOpened(opened + 1);
		focusNext("#gpumem");
	};
	return (
		<>
			<LoadControls />
			<PrecisionControls models={models} />
			{isTraining ? (
				<TrainersControl models={models} />
			) : (
				<InferenceControls models={models} openCustom={openCustom} />
			)}
			{(isTraining || hasLayout || isCustom) && (
				<Menu
					text="More"
					label={isTraining ? "Settings of training" : "More settings"}
					opened={opened}
				>
					{() => (
						<div class="settings-more">
							{isTraining && <TrainingControls models={models} />}
							{hasLayout && <LayoutControl model={models[0]!} count={count} />}
							{isCustom && <CustomFigures />}
						</div>
					)}
				</Menu>
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

/** The settings in words, for paper. */
export function saidSettings(models: readonly ModelData[], state: SizingSettings): string {
	const { plan, split } = settings(models[0]!, state);
	const { dtype, kv } = chosenDtypes(sizesOf(models[0]!), state);
	const { gpu, count } = chosenHardware(sizesOf(models[0]!), state);
	const ofEach = (title: string, chosen: string) =>
		models.length > 1 && !chosen ? "of each model's own type" : title;
	const training = plan.training;
	return [
		`${grouped(state.context)} tokens`,
		`batch ${grouped(state.batch)}`,
		`weights ${ofEach(dtype.title, state.dtype)}`,
		`KV cache ${ofEach(kv.title, state.kv)}`,
		...(training
			? [
					plan.label,
					...sizesOf(models[0]!).training!.choices.map((x) => {
						const chosen = training.chosen[x.name]!;
						return `${x.label} ${x.options.find(([y]) => y === chosen)?.[1] ?? chosen}`;
					}),
				]
			: [
					`${count} × ${gpu.title}`,
					...(count === "1" || models.length > 1 ? [] : [split.layout.name]),
				]),
	].join(" · ");
}
