// The verdict on the chosen GPUs, as `llamath fit` gives it, with what would fit instead as
// buttons.
import { useMemo } from "preact/hooks";
import { SubHeading } from "../../components/section";
import { NumberButton } from "../../components/number";
import type { ModelData } from "../../lib/data";
import { inBytes } from "../../lib/derivation";
import { gibibytes, grouped, threeDigits } from "../../lib/format";
import { change, useAppState } from "../../lib/state";
import { sizesOf, type Sizes } from "../../lib/sizing/data";
import {
	chosenHardware,
	fitsBarely,
	settings,
	suggestions,
	verdict,
	SIZING_SETTINGS,
} from "../../lib/sizing/fit";
import { formatNote } from "../../lib/sizing/facts";
import { chosenDtypes, memoryPerGpu, splitLabel, splitName } from "../../lib/sizing/gpu_memory";
import { speedLimits } from "../../lib/sizing/speed_limits";
import { duration, passSeconds } from "../speed/speed";
import { totalFormula } from "../memory/memory_derivations";

const amount = (n: bigint | null, unit: string) =>
	n === null ? `any number of ${unit}` : `${grouped(n)} ${unit}`;

/** The longest context that fits; what the model's own exceeds is only memory. */
function room(tokens: bigint | null, { own, stated }: Sizes): string {
	if (!stated || (tokens !== null && tokens <= BigInt(own)))
		return `${amount(tokens, "tokens")} of context`;
	return `its full context of ${grouped(own)} tokens (memory for ${amount(tokens, "tokens")})`;
}

export function Verdict({ model }: { model: ModelData }) {
	const state = useAppState(...SIZING_SETTINGS);
	const sizes = sizesOf(model);
	const { gpu, count } = chosenHardware(sizes, state);
	const { dtype, kv } = chosenDtypes(sizes, state);
	const inference = { ...state, mode: "run" as const };
	const key = [
		gpu.name,
		gpu.memory,
		gpu.bandwidth,
		gpu.flops.bf16,
		count,
		state.tp,
		state.context,
		state.batch,
		dtype.name,
		kv.name,
	].join(" ");
	const found = useMemo(() => verdict(settings(model, inference), gpu), [model, key]);
	const { sized, fits, total, memory } = found;
	// `fit` sizes what it suggests in the split that it chooses
	const instead = useMemo(
		() => (fits ? [] : suggestions(sizes, state, gpu, count)),
		[model, key],
	);
	const where = `${count === "1" ? "" : `${count} × `}${gpu.title}`;
	const { mostLoaded } = memoryPerGpu(sized);
	const deriveTotal = () => ({
		title: `Memory of the most loaded GPU: ${splitLabel(sized.split, count)}`,
		lines: [totalFormula(sized.plan, mostLoaded.values), ...inBytes(total)],
	});
	const deriveMemory = () => ({ title: gpu.title, lines: [...inBytes(memory), gpu.source] });
	const note = formatNote(gpu, dtype);
	const [decode, prefill] = fits && sizes.work ? speedLimits(sized, gpu).passes : [];
	const machines = Math.ceil(Number(count) / gpu.node);
	return (
		<div class="verdict">
			<SubHeading>
				{model.name} {fitsBarely(found) && "just "}
				{fits ? "fits" : "does not fit"} on {where}
			</SubHeading>
			<p>
				<NumberButton derive={deriveTotal} label="needed" data-sizing="total">
					{gibibytes(total)}
				</NumberButton>{" "}
				of{" "}
				<NumberButton derive={deriveMemory} label="memory">
					{gibibytes(memory)}
				</NumberButton>
				{count !== "1" && " on the most loaded GPU"}: {dtype.title} weights, {kv.title}{" "}
				cache, {state.batch === 1n ? "1 sequence" : `${grouped(state.batch)} sequences`} of{" "}
				{grouped(state.context)} tokens
				{count !== "1" && `, ${splitName(sized.split)}`}.
				{fitsBarely(found) &&
					" Less than a tenth is left, of which drivers and other programs take a part."}
			</p>
			{note && <p data-sizing="format">{note}</p>}
			{fits && (
				<p data-sizing="fits">
					Room for {room(found.maxContext, sizes)} at this batch, or{" "}
					{amount(found.maxBatch, "sequences")} at this context
					{decode &&
						`; decode at most ${threeDigits(Number(decode.values.rate) / 1e9)} tokens/s`}
					{prefill &&
						`, no first token before ${duration(passSeconds(prefill))} of prefill`}
					.
				</p>
			)}
			{machines > 1 && (
				<p data-sizing="machines">
					{count} of them need {grouped(BigInt(machines))} machines, with at most{" "}
					{gpu.node} in each; the network between machines is in none of these bounds.
				</p>
			)}
			{!fits && instead.length > 0 && (
				<>
					<p>It fits with any one of these changes:</p>
					<ul class="instead">
						{instead.map((x) => (
							<li key={x.change}>
								<button
									type="button"
									class="button"
									data-change={x.change}
									onClick={() => change(x.to)}
								>
									{x.says}
								</button>
								<small>{gibibytes(x.total)}</small>
							</li>
						))}
					</ul>
				</>
			)}
			{!fits && !instead.length && (
				<p>
					Nothing that this page can change makes it fit: choose a larger GPU or more of
					them.
				</p>
			)}
		</div>
	);
}
