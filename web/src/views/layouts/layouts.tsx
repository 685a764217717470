// How the model is laid out over many GPUs for training and for serving, from the plans of the
// library.
import { useState } from "preact/hooks";
import { Segmented } from "../../components/controls";
import { NumberButton } from "../../components/number";
import { Section, SubHeading } from "../../components/section";
import { formula, inBytes, sumFormula, type Derivation } from "../../lib/derivation";
import type { ModelData } from "../../lib/data";
import { gibibytes, grouped, percent, shortTokens, sum, threeDigits } from "../../lib/format";
import { change, useAppState, type State } from "../../lib/state";
import { GPUS, type Gpu } from "../../lib/sizing/data";
import { shortTitle } from "../../lib/sizing/facts";
import type { Part } from "../../lib/sizing/gpu_memory";
import { PART_NAMES } from "../memory/memory_derivations";
import { PartSwatch } from "../memory/patterns";
import { duration } from "../speed/speed";
import {
	parallelOf,
	type Parallel,
	type ServingPlan,
	type TrainingPlan,
	type TrainingPlans,
} from "./data";
import { GpuGrid } from "./gpu_grid";
import { SequenceParts } from "./sequence_parts";
import { ScheduleChart } from "./schedule_chart";
import "./layouts.css";

const TIMES: Record<string, string> = {
	arithmetic: "compute and memory",
	tensor: "tensor parallelism",
	context: "context parallelism",
	expert: "expert parallelism",
	pipeline: "sends between stages",
	bubble: "pipeline bubble",
	data: "data parallelism, ZeRO",
	update: "optimizer",
};
const shareText = (x: number) => `${(100 * x).toFixed(1)}%`;
const total = (x: TrainingPlan) => Object.values(x.seconds).reduce((a, b) => a + b, 0);

/** A number of a plan, which opens how it follows. */
function Fact({
	name,
	text,
	derive,
	part,
}: {
	name: string;
	text: string;
	derive: () => Derivation;
	part: string;
}) {
	return (
		<div>
			<dt>{name}</dt>
			<dd>
				<NumberButton derive={derive} label={name} data-plan={part}>
					{text}
				</NumberButton>
			</dd>
		</div>
	);
}

const PREDICTED =
	"A prediction: matrix products and attention at shares of the peak that were measured " +
	"elsewhere, links at a share of their bandwidth.";

function TrainingFacts({
	plan,
	training,
	gpu,
}: {
	plan: TrainingPlan;
	training: TrainingPlans;
	gpu: Gpu;
}) {
	const step = total(plan);
	const seconds = (): Derivation => ({
		title: "Seconds of a step",
		lines: [
			formula(
				"sum of its parts",
				Object.entries(plan.seconds)
					.filter((x) => x[1])
					.map(([name, n]) => `${TIMES[name]} ${duration(n)}`)
					.join(" + "),
				duration(step),
			),
			PREDICTED,
		],
	});
	const tokens = BigInt(training.sequences) * BigInt(training.context);
	const rate = (): Derivation => ({
		title: "Tokens per second",
		lines: [
			formula(
				"sequences · tokens / seconds of a step",
				`${grouped(training.sequences)}·${grouped(training.context)} / ${duration(step)}`,
				`${grouped(Math.round(plan.tokens))} tokens/s`,
			),
			PREDICTED,
		],
	});
	const mfu = (): Derivation => ({
		title: "MFU",
		lines: [
			formula(
				"model FLOP/s of a GPU / peak FLOP/s",
				`${threeDigits(plan.rate / 1e12)} TFLOP/s / ` +
					`${threeDigits(Number(training.peak) / 1e12)} TFLOP/s`,
				shareText(plan.mfu),
			),
			PREDICTED,
		],
	});
	const bubble = (): Derivation => ({
		title: "Pipeline bubble",
		lines: [
			formula(
				"bubble / step",
				`${duration(plan.seconds.bubble!)} / ${duration(step)}`,
				shareText(plan.seconds.bubble! / step),
			),
			"Each stage waits for PP − 1 microbatches at the start and the end of a step.",
		],
	});
	const memory = (): Derivation => ({
		title: "Memory of the most loaded GPU",
		lines: [sumFormula(Object.entries(plan.parts), "bytes"), ...inBytes(plan.memory)],
	});
	return (
		<dl class="plan-facts">
			<Fact name="MFU, predicted" text={shareText(plan.mfu)} derive={mfu} part="mfu" />
			<Fact
				name="tokens/s"
				text={grouped(Math.round(plan.tokens))}
				derive={rate}
				part="tokens"
			/>
			<Fact
				name={`a step of ${grouped(tokens)} tokens`}
				text={duration(step)}
				derive={seconds}
				part="step"
			/>
			<Fact
				name="pipeline bubble"
				text={shareText(plan.seconds.bubble! / step)}
				derive={bubble}
				part="bubble"
			/>
			<Fact
				name={`GiB per GPU, of ${(Number(gpu.memory) / 2 ** 30).toFixed(1)}`}
				text={gibibytes(plan.memory)}
				derive={memory}
				part="memory"
			/>
		</dl>
	);
}

function Contents({ plan, index }: { plan: TrainingPlan; index: number }) {
	const stage = plan.stages[index]!;
	const whole = sum(Object.values(stage.parts));
	const parts = Object.entries(stage.parts).filter((x) => x[1] !== "0") as [Part, string][];
	return (
		<table class="parts">
			<caption>
				{plan.stages.length > 1
					? `What each GPU of stage ${index} holds${index === plan.fullest ? ", the most of all" : ""}: `
					: "What each GPU holds: "}
				{`layers ${stage.layers}`}
				{plan.axes.tp === "1"
					? ""
					: `, TP ${plan.axes.tp} splits the matrices${plan.experts ? " outside the experts" : ""}`}
				{plan.experts &&
					`, ${grouped(plan.experts.each)} of ${grouped(plan.experts.all)} experts`}
			</caption>
			<tbody>
				{parts.map(([part, n]) => {
					const derive = () => ({
						title: PART_NAMES[part],
						lines: [
							formula(
								`${part} / all`,
								`${grouped(n)} / ${grouped(whole)}`,
								percent(BigInt(n), whole),
							),
							...inBytes(n),
						],
					});
					return (
						<tr key={part}>
							<th scope="row">
								<PartSwatch part={part} />
								{PART_NAMES[part]}
							</th>
							<td class="n">
								<NumberButton derive={derive} label={`${PART_NAMES[part]} in GiB`}>
									{gibibytes(n)}
								</NumberButton>
							</td>
							<td class="bar-cell">
								<svg width="100%" height="12" class="data" aria-hidden="true">
									<rect
										width={`${Number((BigInt(n) * 1000n) / whole) / 10}%`}
										height="12"
										rx="2"
										fill="var(--ramp-3)"
									/>
								</svg>
							</td>
						</tr>
					);
				})}
				<tr class="total">
					<th scope="row">Total</th>
					<td class="n">
						<NumberButton
							derive={() => ({
								title: `Memory of a GPU of stage ${index}`,
								lines: [sumFormula(parts, "bytes"), ...inBytes(whole)],
							})}
							label="all, in GiB"
							data-plan="stage"
						>
							{gibibytes(whole)}
						</NumberButton>
					</td>
					<td />
				</tr>
			</tbody>
		</table>
	);
}

function TrainingLayout({
	training,
	plan,
	gpu,
}: {
	training: TrainingPlans;
	plan: TrainingPlan;
	gpu: Gpu;
}) {
	const { tp, cp, ep, dp } = plan.axes;
	const [chosen, choose] = useState<number | null>(null);
	const index = chosen === null || chosen >= plan.stages.length ? plan.fullest : chosen;
	return (
		<>
			<TrainingFacts plan={plan} training={training} gpu={gpu} />
			<div class="layout-pictures">
				<figure>
					<SubHeading>GPU by GPU</SubHeading>
					<GpuGrid
						tp={Number(tp)}
						cp={Number(cp)}
						stages={plan.stages}
						replicas={Number(dp)}
						name={dp === "1" ? "data-parallel replica" : "data-parallel replicas"}
						chosen={index}
						choose={plan.stages.length > 1 ? choose : undefined}
						experts={plan.experts}
					/>
					<p class="caption">
						A box is a GPU with its part of the stage's layers; the edge at the first
						layer is the embedding, the edge at the last the head.
						{plan.zero !== "0" &&
							` ZeRO-${plan.zero} shards ${["", "optimizer states", "optimizer states and gradients", "optimizer states, gradients and weights"][Number(plan.zero)]} over the ${cp === "1" ? "replicas" : `${grouped(BigInt(dp) * BigInt(cp))} ranks of DP × CP`}.`}
						{cp !== "1" &&
							` CP ${cp}: the ranks of a stage have the same weights, and each ` +
								"has a part of every sequence."}
						{plan.experts &&
							` EP ${ep}: the ${grouped(plan.experts.all)} experts of a layer ` +
								`are spread over ${ep} GPUs, ${grouped(plan.experts.each)} on ` +
								"each."}
						{plan.recompute !== "none" &&
							` Activation checkpointing: ${plan.recompute}.`}
					</p>
				</figure>
				<Contents plan={plan} index={index} />
			</div>
			{plan.parts_of_sequence && (
				<SequenceParts parts={plan.parts_of_sequence} plan={plan} training={training} />
			)}
			{plan.schedule && (
				<figure class="schedule">
					<SubHeading>
						The pipeline's schedule: {shareText(plan.seconds.bubble! / total(plan))} of
						a step is bubble
					</SubHeading>
					<ScheduleChart schedule={plan.schedule} />
					<p class="caption">
						1F1B. Short: the forward pass of a microbatch; long: its backward pass,
						which takes twice as long; hatched: idle.
						{(plan.schedule.stages !== Number(plan.axes.pp) ||
							plan.schedule.microbatches !== Number(plan.microbatches)) &&
							` Drawn for ${plan.schedule.stages} stages and ` +
								`${plan.schedule.microbatches} microbatches; the plan has ` +
								`${plan.axes.pp} and ${grouped(plan.microbatches)}, and as large ` +
								"a share of bubble."}
					</p>
				</figure>
			)}
		</>
	);
}

function ServingLayout({ plan, gpu, context }: { plan: ServingPlan; gpu: Gpu; context: string }) {
	const memory = (): Derivation => ({
		title: "Memory of the most loaded GPU",
		lines: [
			formula("all parts at this batch", `${grouped(plan.memory)} bytes`),
			...inBytes(plan.memory),
		],
	});
	const rate = (): Derivation => ({
		title: "Tokens per second of all replicas, at most",
		lines: [
			formula(
				"replicas · sequences / time per token",
				`${plan.replicas}·${grouped(plan.batch)} / ${duration(plan.seconds)} for ` +
					"each group of sequences",
				`${grouped(Math.round(plan.rate))} tokens/s`,
			),
			`${plan.bound === "memory" ? "Memory" : "Compute"}-bound. With a pipeline, as many groups of sequences as stages are in flight.`,
		],
	});
	return (
		<>
			<dl class="plan-facts">
				<Fact
					name="tokens/s, at most"
					text={grouped(Math.round(plan.rate))}
					derive={rate}
					part="rate"
				/>
				<Fact
					name="time per token, at least"
					text={duration(plan.seconds)}
					derive={rate}
					part="seconds"
				/>
				<Fact
					name={`sequences of ${grouped(context)} tokens, each replica`}
					text={grouped(plan.batch)}
					derive={rate}
					part="batch"
				/>
				<Fact
					name={`GiB per GPU, of ${(Number(gpu.memory) / 2 ** 30).toFixed(1)}`}
					text={gibibytes(plan.memory)}
					derive={memory}
					part="memory"
				/>
			</dl>
			<figure>
				<SubHeading>GPU by GPU</SubHeading>
				<GpuGrid
					tp={Number(plan.tp)}
					cp={1}
					stages={plan.stages}
					replicas={Number(plan.replicas)}
					name={plan.replicas === "1" ? "replica" : "replicas"}
				/>
			</figure>
		</>
	);
}

function finding(parallel: Parallel, job: string, index: number, gpu: Gpu): string {
	const { training, serving } = parallel;
	if (job === "serving") {
		const plan = serving.plans[index];
		return plan
			? `${serving.gpus} ${shortTitle(gpu)} serve at most ` +
					`${grouped(Math.round(plan.rate))} tokens/s as ${plan.name}`
			: `No split serves it on ${serving.gpus} ${shortTitle(gpu)}`;
	}
	const trained = job === "long" ? parallel.long : training;
	const plan = trained?.plans[index];
	if (!trained) return "The library has no plan to train this model";
	return plan
		? `${grouped(trained.gpus)} ${shortTitle(gpu)} train it as ${plan.name}, at a ` +
				`predicted MFU of ${Math.round(100 * plan.mfu)}%`
		: `No layout trains it on ${grouped(trained.gpus)} ${shortTitle(gpu)}`;
}

export function LayoutsSection({ model }: { model: ModelData }) {
	const state = useAppState("job", "plan");
	const parallel = parallelOf(model);
	const gpu = GPUS.find((x) => x.name === parallel.gpu) ?? GPUS[0]!;
	const { training, serving } = parallel;
	const job = !training
		? "serving"
		: state.job === "long" && !parallel.long
			? "training"
			: state.job;
	const trainings = job === "long" ? parallel.long! : training;
	const plans: { name: string }[] = job === "serving" ? serving.plans : trainings!.plans;
	const index = Math.min(state.plan, Math.max(plans.length - 1, 0));
	const trained = job === "serving" ? undefined : trainings!.plans[index];
	const served = job === "serving" ? serving.plans[index] : undefined;
	const lead =
		job !== "serving"
			? `A step of ${grouped(trainings!.sequences)} sequences of ${grouped(trainings!.context)} tokens in ${trainings!.dtype}, AdamW, gradients in fp32. The best of the plans with ${job === "long" ? "" : "CP 1, "}micro-batch 1 and no interleaving; llamath plan tries all.${job === "long" && trained?.axes.cp === "1" && trainings!.undivided ? ` No context parallelism: ${trainings!.undivided}.` : ""}`
			: `Sequences of ${grouped(serving.context)} tokens, ${serving.dtype} weights; as ` +
				"many of them as fit. Upper bounds: communication is free.";
	return (
		<Section
			id="layouts"
			topic="Training and serving layouts"
			title={finding(parallel, job, index, gpu)}
			lead={lead}
			controls={
				training && (
					<Segmented
						id="job"
						label="Job"
						labelHidden
						options={[
							["training", "Training"],
							...(parallel.long
								? [
										[
											"long",
											`Training, ${shortTokens(parallel.long.context)} ` +
												"context",
										] as [State["job"], string],
									]
								: []),
							["serving", "Serving"],
						]}
						chosen={job}
						choose={(x) => change({ job: x, plan: 0 })}
					/>
				)
			}
		>
			{plans.length > 1 && (
				<div class="plans">
					<Segmented
						id="plan"
						label="Plans, fastest first"
						options={plans.map((x, i): [number, string] => [i, x.name])}
						chosen={index}
						choose={(x) => change({ plan: x })}
					/>
				</div>
			)}
			{trained && (
				<TrainingLayout
					key={`${job} ${index}`}
					training={trainings!}
					plan={trained}
					gpu={gpu}
				/>
			)}
			{served && <ServingLayout plan={served} gpu={gpu} context={serving.context} />}
		</Section>
	);
}
