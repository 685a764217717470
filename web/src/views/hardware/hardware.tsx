// What hardware the model needs: GPU × number, what fits and how fast it can be at most; the
// verdict on the chosen ones.
import { useMemo } from "preact/hooks";
import { Section } from "../../components/section";
import type { ModelData } from "../../lib/data";
import { orRunsHere } from "../../lib/live_views";
import { grouped, threeDigits } from "../../lib/format";
import { useAppState } from "../../lib/state";
import { GPUS, sizesOf, type Gpu } from "../../lib/sizing/data";
import { shortTitle } from "../../lib/sizing/facts";
import {
	chosenHardware,
	CUSTOM,
	fitterOf,
	settings,
	shownCounts,
	SIZING_SETTINGS,
	verdict,
	type Cell,
	type Hardware,
} from "../../lib/sizing/fit";
import { chosenDtypes, splitName } from "../../lib/sizing/gpu_memory";
import { hardwareName } from "../facts/runs_on";
import { ContextWarning } from "../memory/context_warning";
import { HardwareMatrix } from "./matrix";
import { Verdict } from "./verdict";
import "./hardware.css";

const NUMBERS: Record<string, string> = { 1: "One", 2: "Two", 4: "Four", 8: "Eight" };

/** The GPUs of a matrix: common ones, the chosen one and the smallest that run. */
export function shownGpus(chosen: Gpu, smallest: (Cell | null)[]): Gpu[] {
	const also = [chosen.name, ...smallest.map((x) => x?.gpu.name)];
	return [...GPUS, ...(chosen.name === CUSTOM ? [chosen] : [])]
		.filter((x) => x.shown || also.includes(x.name))
		.toSorted((a, b) => Number(BigInt(a.memory) - BigInt(b.memory)));
}

const named = ({ gpu, count }: Hardware) => `${NUMBERS[count] ?? count} ${shortTitle(gpu)}`;

/** What runs the model: the chosen hardware, else the best fit. */
function finding(
	chosen: Hardware,
	fits: boolean,
	smallest: Cell | null,
	dtype: string,
	counts: string[],
): string {
	const how = dtype.startsWith("as ") ? dtype : `in ${dtype}`;
	const [run, does] = chosen.count === "1" ? ["runs", "does"] : ["run", "do"];
	if (fits) return `${named(chosen)} ${run} it ${how}`;
	if (smallest) {
		const other = named(smallest);
		return `${named(chosen)} ${does} not run it ${how}; ${other[0]!.toLowerCase()}${other.slice(1)} ${smallest.count === "1" ? "does" : "do"}`;
	}
	return `Not even ${counts.at(-1)} of the largest GPU run it ${how} like this`;
}

/**
 * Why more of a GPU are no faster, where that is so: they have the tensor parallelism of fewer. Of
 * the chosen GPU, if it is one.
 */
function explainPlateau(rows: Cell[][], chosen: Gpu): string {
	const plateaus = rows.map((row) => {
		const last = row.at(-1)!;
		return row.filter(
			(x) =>
				x.fits &&
				last.fits &&
				last.decode !== null &&
				x.split.layout.tp === last.split.layout.tp &&
				threeDigits(x.decode!) === threeDigits(last.decode!),
		);
	});
	const found =
		plateaus.find((x) => x.length > 1 && x[0]!.gpu.name === chosen.name) ??
		plateaus.find((x) => x.length > 1);
	if (!found) return "";
	const [first, last] = [found[0]!, found.at(-1)!];
	return `${last.count} × ${shortTitle(last.gpu)} (${splitName(last.split)}) decode no faster than ${first.count} × (${splitName(first.split)}): tensor parallelism (TP) makes each token faster; stages of a pipeline (PP) run one after the other, and replicas take other sequences.`;
}

export function HardwareSection({ model }: { model: ModelData }) {
	const state = useAppState(...SIZING_SETTINGS);
	const sizes = sizesOf(model);
	const { dtype, kv } = chosenDtypes(sizes, state);
	const { gpu: chosen, count } = chosenHardware(sizes, state);
	const gpuKey = [chosen.name, chosen.memory, chosen.bandwidth, chosen.flops.bf16].join(" ");
	const { smallest, counts, rows } = useMemo(() => {
		const fitter = fitterOf(sizes, state);
		const counts = shownCounts(sizes, state);
		const rows = shownGpus(chosen, [fitter.smallest]).map((gpu) =>
			counts.map((count) => fitter.cell(gpu, count)),
		);
		return { smallest: fitter.smallest, counts, rows };
	}, [sizes, gpuKey, state.context, state.batch, dtype.name, kv.name]);
	const inference = { ...state, mode: "run" as const };
	const { fits } = verdict(settings(model, inference), chosen);
	const found = finding({ gpu: chosen, count }, fits, smallest, dtype.title, counts);
	const plateau = explainPlateau(rows, chosen);
	const speed = sizes.work
		? `; below, the upper bound of decode speed for ${state.batch === 1n ? "one" : `a batch of ${grouped(state.batch)}`}`
		: "";
	const lead = `How many sequences of ${grouped(state.context)} tokens fit${speed}. Hatched: the memory that each GPU lacks.`;
	return (
		<Section
			id="hardware"
			topic="What hardware do I need?"
			title={
				smallest
					? orRunsHere(
							model,
							`It runs in this page; ${found[0]!.toLowerCase()}${found.slice(1)}, too`,
							found,
						)
					: found
			}
			lead={lead}
		>
			<ContextWarning model={model} isQuiet />
			<HardwareMatrix
				rows={rows}
				heads={counts.map((n) => `${n} ×`)}
				label="GPUs and how many of them: sequences that fit, and tokens per second at most"
				chosen={{ gpu: chosen, count }}
				smallest={counts.map(() => smallest)}
				context={state.context}
				lacks={(x) =>
					dtype.dequantized.includes(x.name) ? dtype.rates[0]!.toUpperCase() : ""
				}
			/>
			<div class="hardware-notes">
				<Verdict model={model} />
				<div>
					{smallest?.gpu.common && (
						<p class="caption">
							Best fit: {hardwareName(smallest)}, of common GPUs, which clouds rent or
							Steam's hardware survey lists: the fewest GPUs that leave a tenth of
							their memory free, then the smallest, then the fastest.{" "}
							{shortTitle(smallest.gpu)} is {smallest.gpu.common}.
						</p>
					)}
					{plateau && <p class="caption plateau">{plateau}</p>}
					{(sizes.notes[dtype.name] ?? []).map((x) => (
						<p class="caption" key={x}>
							{x}
						</p>
					))}
				</div>
			</div>
		</Section>
	);
}
