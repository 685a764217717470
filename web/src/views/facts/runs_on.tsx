// The smallest hardware that runs the model under the settings of the page, with a link to all that
// does.
import type { ModelData } from "../../lib/data";
import { orRunsHere } from "../../lib/live_views";
import { grouped, shortTokens, threeDigits } from "../../lib/format";
import { sizesOf } from "../../lib/sizing/data";
import { shortTitle } from "../../lib/sizing/facts";
import { fitsBarely, fitterOf, isTiny, verdict, type Cell } from "../../lib/sizing/fit";
import { chosenDtypes, sizedIn, type Load } from "../../lib/sizing/gpu_memory";
import { useAppState, type State } from "../../lib/state";
import { beyondContext } from "../memory/context_warning";
import { factsOf } from "./fact_sheet";

export const hardwareName = (x: Cell) => `${x.count} × ${shortTitle(x.gpu)}`;

type HardwareState = Pick<State, Load>;

/** The settings with which a page of this model alone begins. */
export const ownSettings = (model: ModelData): HardwareState => ({
	context: BigInt(sizesOf(model).context),
	batch: 1n,
	dtype: "",
	kv: "",
});

/** What it runs in, for how many tokens, and how fast it can be. */
export function hardwareLoad(
	model: ModelData,
	state: HardwareState,
	smallest: Cell | null,
): string[] {
	const { title } = chosenDtypes(sizesOf(model), state).dtype;
	const users = state.batch === 1n ? "" : `${grouped(state.batch)} × `;
	return [
		`${title}, ${users}${grouped(state.context)} tokens`,
		...(smallest ? [`≤\u00a0${threeDigits(smallest.decode!)}\u00a0tokens/s`] : []),
	];
}

export const RunsOn = ({ model }: { model: ModelData }) => (
	<>{orRunsHere(model, null, <RunsOnHardware model={model} />)}</>
);

function RunsOnHardware({ model }: { model: ModelData }) {
	const state = useAppState("context", "batch", "dtype", "kv");
	const sizes = sizesOf(model);
	const { smallest, tightest } = fitterOf(sizes, state);
	const [load, speed] = hardwareLoad(model, state, smallest);
	const beyond = beyondContext(model, state.context);
	const least = factsOf(model).weights.at(-1)!;
	const smaller =
		sizes.dtypes.some((x) => x.name === least.dtype) &&
		fitterOf(sizes, { ...state, dtype: least.dtype }).smallest;
	return (
		<a class="runs" href="#hardware">
			<span>
				<small>
					{smallest && fitsBarely(verdictOn(model, state, smallest))
						? "Just runs on"
						: "Runs on"}
					{smallest?.gpu.common && ", of common GPUs"}
				</small>
				<strong>
					{smallest
						? hardwareName(smallest)
						: `more than ${sizes.gpus.at(-1)!.count} GPUs of any kind`}
				</strong>
				<small>
					{[
						load,
						smallest && usedMemory(model, state, smallest),
						// so short a step is mostly the launching of kernels
						isTiny(model) ? "" : speed,
					]
						.filter(Boolean)
						.join(" · ")}
				</small>
				{smallest && (
					<small>
						{beyond
							? `${shortTokens(state.context)} tokens are ${beyond}`
							: `Holds ${longestContext(model, state, smallest)}`}
					</small>
				)}
				{tightest && !isSame(tightest, smallest) && (
					<small>
						Just fits {hardwareName(tightest)}, {usedMemory(model, state, tightest)}
					</small>
				)}
				{smaller && !isSame(smaller, smallest) && (
					<small>
						In {least.name}: {hardwareName(smaller)}
					</small>
				)}
			</span>
			<span aria-hidden="true">→</span>
		</a>
	);
}

const isSame = (x: Cell, y: Cell | null) => !!y && hardwareName(x) === hardwareName(y);

const verdictOn = (model: ModelData, state: HardwareState, { gpu, split, count }: Cell) =>
	verdict(sizedIn(sizesOf(model), state, split, count), gpu);

function usedMemory(model: ModelData, state: HardwareState, smallest: Cell): string {
	const { total, memory } = verdictOn(model, state, smallest);
	const [used, all] = [total, memory].map((x) => (Number(x) / 2 ** 30).toFixed(1));
	return `${used} of ${all} GiB${smallest.count === "1" ? "" : " each"}`;
}

/** The context that it has memory for, and what the model's own would take if that is longer. */
function longestContext(model: ModelData, state: HardwareState, smallest: Cell): string {
	const sizes = sizesOf(model);
	const { own, stated } = sizes;
	const { maxContext } = verdictOn(model, state, smallest);
	const full = `its full context of ${shortTokens(own)}`;
	const onFull = stated && fitterOf(sizes, { ...state, context: BigInt(own) }).smallest;
	const isEnough = maxContext === null || maxContext >= BigInt(own);
	if (onFull && !isSame(onFull, smallest))
		return `${isEnough ? full : `up to ${grouped(maxContext)} tokens`}; ${isEnough ? "with memory to spare" : full}: ${hardwareName(onFull)}`;
	if (maxContext === null) return "any context";
	return stated && isEnough ? full : `up to ${grouped(maxContext)} tokens`;
}
