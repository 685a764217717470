// Data flow: a walk through the steps of the layer, in prefill or decode, with the bytes that it
// has read so far.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ModelData } from "../../lib/data";
import { grouped, shortBytes } from "../../lib/format";
import { reveal } from "../../lib/reveal";
import { change } from "../../lib/state";
import { Segmented } from "../../components/controls";
import { NumberButton } from "../../components/number";
import { derivation, formula, sumFormula, type Derivation } from "../../lib/derivation";
import { activeBytes, cacheBytes, cacheForm, cacheStep, dtypeOf, kvName } from "./bytes";
import { hasPass, type PlateState, type Stage } from "./plate_model";

const WALK_MS = 5200;
const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export interface Walk {
	index: number | null;
	playing: boolean;
	set: (index: number | null, playing?: boolean) => void;
}

/** Where the walk is; it plays only on request. */
export function useWalk(numSteps: number, key: string): Walk {
	const [at, setAt] = useState<{ index: number | null; playing: boolean; key: string }>({
		index: null,
		playing: false,
		key,
	});
	const current = at.key === key ? at : { index: null, playing: false, key };
	const set = (index: number | null, playing = false) => setAt({ index, playing, key });
	useEffect(() => {
		if (!current.playing) return;
		const timer = setTimeout(
			() =>
				set(
					Math.min((current.index ?? -1) + 1, numSteps - 1),
					(current.index ?? -1) + 1 < numSteps - 1,
				),
			WALK_MS / numSteps,
		);
		return () => clearTimeout(timer);
	});
	return { index: current.index, playing: current.playing, set };
}

export interface BytesRead {
	weights: bigint | null;
	cache: bigint | null;
}

/**
 * The bytes of one layer that a pass has read after some of its steps: the active weights of one
 * token, and in decode the cache.
 */
export function bytesRead(
	model: ModelData,
	layer: number,
	stage: Stage,
	steps: number,
	state: PlateState,
): BytesRead {
	const dtype = dtypeOf(model, state);
	let weights: bigint | null = 0n;
	for (const step of stage.steps.slice(0, steps)) {
		const bytes = activeBytes(model, layer, step, dtype);
		weights = bytes === null || weights === null ? null : weights + bytes;
	}
	const reads = cacheStep(stage);
	const isRead = reads !== undefined && stage.steps.slice(0, steps).some((x) => x.name === reads);
	const tokens = state.context;
	return {
		weights,
		cache: state.pass === "next" && isRead ? cacheBytes(model, layer, state, tokens) : 0n,
	};
}

const binary = (bytes: bigint) =>
	BINARY.filter(([n]) => bytes >= n)
		.slice(0, 1)
		.map(([n, name]) =>
			formula(`bytes / ${name}`, `${grouped(bytes)} / ${grouped(n)}`, shortBytes(bytes)),
		);
const BINARY: readonly [bigint, string][] = [
	[2n ** 40n, "TiB"],
	[2n ** 30n, "GiB"],
	[2n ** 20n, "MiB"],
	[2n ** 10n, "KiB"],
];

function weightsDerivation(
	model: ModelData,
	layer: number,
	stage: Stage,
	steps: number,
	state: PlateState,
): Derivation {
	const dtype = dtypeOf(model, state);
	const parts = stage.steps
		.slice(0, steps)
		.map((x): [string, bigint] => [x.name, activeBytes(model, layer, x, dtype) ?? 0n])
		.filter((x) => x[1] > 0n);
	const whole = parts.reduce((n, x) => n + x[1], 0n);
	return {
		title: `Weights read, in ${dtype}`,
		lines: [
			"The weights that one token uses, of the steps so far:",
			sumFormula(parts.length ? parts : [["none", 0n]], "bytes"),
			...binary(whole),
		],
	};
}

function cacheDerivation(model: ModelData, layer: number, state: PlateState): Derivation {
	const { form, variables } = cacheForm(model, layer, state, state.context)!;
	return {
		title: `Cache read in this layer, in ${kvName(model, state)}`,
		lines: [
			"For one sequence:",
			...derivation(form, variables, "bytes"),
			...binary(cacheBytes(model, layer, state, state.context)!),
		],
	};
}

/** What the walk will show. */
function introduction(model: ModelData, stage: Stage, state: PlateState): string {
	const kept = stage.steps.some((x) => x.kind === "cache")
		? "cache"
		: stage.steps.some((x) => x.kind === "state" || x.kind === "conv")
			? "state"
			: "";
	const tokens = `${grouped(state.context)} ${state.context === 1n ? "token" : "tokens"}`;
	if (state.pass !== "next")
		return `Prefill: ${tokens} pass at once and share one reading of the weights${kept === "cache" ? ", and their keys and values fill the cache" : kept ? ", and leave one state" : ""}.`;
	const read =
		kept === "cache"
			? ` and the cache (${kvName(model, state)}) of ${tokens}, and adds one cell to it`
			: kept
				? " and the state, and updates it: its size does not depend on the context"
				: "";
	return `Decode: one new token passes, reads the weights (${dtypeOf(model, state)})${read}.`;
}

export function Flow({
	model,
	stage,
	layer,
	walk,
	state,
}: {
	model: ModelData;
	stage: Stage;
	layer: number;
	walk: Walk;
	state: PlateState;
}) {
	const { steps } = stage;
	const isDecode = state.pass === "next";
	const last = steps.length - 1;
	const next = () => walk.set(walk.index === null || walk.index >= last ? 0 : walk.index + 1);
	const step = walk.index === null ? null : steps[walk.index]!;
	const read = walk.index === null ? null : bytesRead(model, layer, stage, walk.index + 1, state);
	const ref = useRef<HTMLDivElement>(null);
	useLayoutEffect(() => {
		if (walk.index !== null) reveal(ref.current!);
	}, [walk.index]);
	const hasExperts = steps.some((x) => x.kind === "choice");
	return (
		<div
			ref={ref}
			class={`flow no-export${walk.index === null ? "" : " walking"}`}
			role="group"
			aria-label="Data flow"
		>
			<div class="flow-controls">
				{hasPass(model, "next") && (
					<Segmented
						id="choice-pass"
						label="Data flow"
						options={[
							["prompt", "Prefill"],
							["next", "Decode"],
						]}
						chosen={state.pass}
						choose={(pass) => change({ pass })}
					/>
				)}
				{!isStill() && (
					<button
						type="button"
						class="button"
						data-flow="play"
						onClick={() =>
							walk.set(
								walk.playing ? walk.index : walk.index === last ? null : walk.index,
								!walk.playing,
							)
						}
					>
						{walk.playing ? "❚❚ Pause" : "▶ Play"}
					</button>
				)}
				<button type="button" class="button" data-flow="next" onClick={next}>
					{walk.index === null
						? "First step"
						: walk.index >= last
							? "Start again"
							: "Next step"}
				</button>
				{walk.index !== null && (
					<button
						type="button"
						class="button"
						data-flow="stop"
						onClick={() => walk.set(null)}
					>
						End
					</button>
				)}
			</div>
			<p class="flow-text" role="status" aria-live={walk.playing ? "off" : "polite"}>
				{step && read ? (
					<>
						<strong>
							{walk.index! + 1} of {steps.length}: {step.name}
						</strong>{" "}
						{step.does}.{" "}
						{read.weights !== null && (
							<>
								Read so far in this layer:{" "}
								<NumberButton
									derive={() =>
										weightsDerivation(
											model,
											layer,
											stage,
											walk.index! + 1,
											state,
										)
									}
									label="weights read"
									data-flow="weights"
								>
									{shortBytes(read.weights)}
								</NumberButton>{" "}
								of weights
								{isDecode && read.cache !== null && read.cache > 0n && (
									<>
										{" "}
										and{" "}
										<NumberButton
											derive={() => cacheDerivation(model, layer, state)}
											label="cache read"
											data-flow="cache"
										>
											{shortBytes(read.cache)}
										</NumberButton>{" "}
										of{" "}
										{stage.steps.some((x) => x.kind === "state")
											? "state"
											: "KV cache"}
									</>
								)}
								,{" "}
								{isDecode
									? "for one token"
									: `once for ${grouped(state.context)} tokens`}
								{hasExperts && !isDecode ? "; more tokens use more experts" : ""}.
							</>
						)}
					</>
				) : (
					introduction(model, stage, state)
				)}
			</p>
		</div>
	);
}

/** How many of the eight cells of the pictured cache are filled: one of decode's is new. */
export function filledCells(stage: Stage, index: number | null, isDecode: boolean): number {
	const written =
		index !== null && stage.steps.slice(0, index + 1).some((x) => x.kind === "cache");
	if (index === null) return 7;
	return isDecode ? (written ? 8 : 7) : written ? 8 : 0;
}
