// What hardware the model needs: GPU × number, what fits and how fast it can be at most; the
// verdict on the chosen ones.
import { useMemo } from "preact/hooks";
import { WholeNumber } from "../../components/controls";
import { Section } from "../../components/section";
import type { ModelData } from "../../lib/data";
import { grouped } from "../../lib/format";
import { change, useAppState } from "../../lib/state";
import { GPUS, sizesOf, type Gpu } from "../../lib/sizing/data";
import { shortTitle } from "../../lib/sizing/facts";
import {
	chosenGpu,
	CUSTOM,
	fitterOf,
	GPU_SETTINGS,
	shownCounts,
	type Cell,
	type GpuFigure,
} from "../../lib/sizing/fit";
import { chosenDtypes } from "../../lib/sizing/gpu_memory";
import { ContextWarning } from "../memory/context_warning";
import { GpuSelect, LoadControls, PrecisionControls } from "../memory/settings_controls";
import { HardwareMatrix } from "./matrix";
import { Verdict } from "./verdict";
import "./hardware.css";

const NUMBERS: Record<string, string> = { 1: "One", 2: "Two", 4: "Four", 8: "Eight" };

function finding(smallest: Cell | null, dtype: string, counts: string[]): string {
	if (smallest)
		return `${NUMBERS[smallest.count] ?? smallest.count} ${shortTitle(smallest.gpu)}${smallest.count === "1" ? " runs" : " run"} it in ${dtype}`;
	return `Not even ${counts.at(-1)} of the largest GPU run it in ${dtype} like this`;
}

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

export function HardwareSection({ model }: { model: ModelData }) {
	const state = useAppState("context", "batch", "dtype", "kv", ...GPU_SETTINGS);
	const sizes = sizesOf(model);
	const { dtype, kv } = chosenDtypes(sizes, state);
	const chosen = chosenGpu(state);
	const gpuKey = [chosen.name, chosen.memory, chosen.bandwidth, chosen.flops.bf16].join(" ");
	const { smallest, counts, rows } = useMemo(() => {
		const fitter = fitterOf(sizes, state);
		const counts = shownCounts(sizes, state);
		const also = [fitter.smallest?.gpu.name, chosen.name];
		const shown: Gpu[] = [...GPUS, ...(chosen.name === CUSTOM ? [chosen] : [])]
			.filter((x) => x.shown || also.includes(x.name))
			.toSorted((a, b) => Number(BigInt(a.memory) - BigInt(b.memory)));
		const rows = shown.map((gpu) => counts.map((count) => fitter.cell(gpu, count)));
		return { smallest: fitter.smallest, counts, rows };
	}, [sizes, gpuKey, state.context, state.batch, dtype.name, kv.name]);
	const lead = `How many sequences of ${grouped(state.context)} tokens fit, and the decode ceiling of ${state.batch === 1n ? "one" : `a batch of ${grouped(state.batch)}`}. The stronger the fill, the more room. Hatched: it does not fit, and what each GPU is short of.`;
	return (
		<Section
			id="hardware"
			topic="What hardware do I need?"
			title={finding(smallest, dtype.name, counts)}
			lead={lead}
		>
			<div class="sizing-controls">
				<LoadControls prefix="hardware-" />
				<PrecisionControls models={[model]} prefix="hardware-" />
				<GpuSelect id="hardware-card" />
				<CustomFigures />
			</div>
			<ContextWarning model={model} />
			<HardwareMatrix
				rows={rows}
				counts={counts}
				smallest={smallest}
				context={state.context}
			/>
			<Verdict model={model} />
		</Section>
	);
}
