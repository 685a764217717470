// Beside a stop of the tour: what its steps computed for the chosen token, in a page that runs the
// model, else the shapes of their results.
import type { ModelData } from "../../lib/data";
import { useAppState } from "../../lib/state";
import { FIRST, percentOf, rootMeanSquare, shortNumber } from "./cells";
import { Tokens } from "./live_bar";
import { HeadMap, rowOfHead, shownHead, shownLayer, type ChosenHead } from "./heads";
import { Cache, HeadSteps, Rotation } from "./layer_values";
import { DotProduct, productAt } from "./live_matrix";
import { leafOf, stageAt, stagesOf } from "../plate/plate_model";
import { enteringStep, largest, shownToken, softmax, type Story, useStory } from "./story";
import { NumberTable, StopExample } from "../tour/tour_example";
import { productOf, StopNumbers } from "../tour/tour_shapes";
import type { TourStop } from "../tour/tour_stops";

const SHOWN_TOKENS = 5;
const MIXED = 3;

interface StopValues {
	model: ModelData;
	story: Story;
	token: number;
	stop: TourStop;
}

export function TourValues({ model, stop }: { model: ModelData; stop: TourStop }) {
	const state = useAppState("token", "temperature", "layer", "head");
	const story = useStory(model);
	if (!story?.length) return <StopNumbers model={model} stop={stop} />;
	const token = shownToken(story, state);
	const temperature = state.temperature || 1;
	return (
		<div class="tour-values">
			{stop.name === "token" ? (
				<Cut story={story} token={token} />
			) : stop.name === "rope" ? (
				<Rotation model={model} story={story} />
			) : stop.name === "scores" ? (
				<HeadSteps model={model} story={story} />
			) : stop.name === "softmax" ? (
				shownHead(model, story, state) && <HeadMap model={model} story={story} isBrief />
			) : stop.name === "cache" ? (
				<Cache model={model} story={story} />
			) : stop.name === "logits" || stop.name === "next_token" ? (
				<Likely story={story} token={token} temperature={temperature} />
			) : (
				<>
					<Numbers model={model} story={story} token={token} stop={stop} />
					<OneOutput model={model} story={story} token={token} stop={stop} />
				</>
			)}
		</div>
	);
}

/** The text as tokens, with their ids. */
function Cut({ story, token }: { story: Story; token: number }) {
	const { tokenizer } = story.model;
	return (
		<>
			<p>
				The text is {story.length} tokens; “{tokenizer.show(story.ids[token]!)}” is token{" "}
				{story.ids[token]}, at position {token}.
			</p>
			<ol class="tour-ids" aria-label="Tokens and their ids">
				{story.ids.map((id, i) => (
					<li key={i} aria-current={i === token ? "true" : undefined}>
						<span class="live-token">{tokenizer.show(id)}</span>
						<small>{id}</small>
					</li>
				))}
			</ol>
		</>
	);
}

/** The tokens of the text in one line, above what is said of the chosen one. */
export function TourTokens({ model }: { model: ModelData }) {
	const story = useStory(model);
	return story?.length ? <Tokens model={model} story={story} isLine /> : null;
}

/** The first numbers of what the steps read and computed for the chosen token. */
function Numbers({ model, story, token, stop }: StopValues) {
	const state = useAppState("layer", "head");
	const layer = shownLayer(model, state);
	const isInLayer = /^\d+$/.test(stop.place);
	const prefix = isInLayer ? `layers.${layer}.` : "";
	const stages = stagesOf(model, "prompt");
	const steps =
		(isInLayer ? stageAt(stages, layer)?.steps : null) ?? stages.flatMap((x) => x.steps);
	const { values } = story.passes[token]!;
	const chosen = isInLayer ? shownHead(model, story, state) : null;
	const rows: [name: string, numbers: Float32Array][] = [];
	const add = (name: string) => {
		const found = values.get(name === "x" ? enteringStep(story, layer) : prefix + name);
		if (found) rows.push([leafOf(name), ofHead(story, chosen, prefix + name, found)]);
	};
	// of two norms the first one
	for (const name of stop.name === "norm" ? stop.steps.slice(0, 1) : stop.steps) {
		const step = steps.find((x) => x.name === name);
		if (step?.kind !== "linear")
			step?.takes.filter((x) => !stop.steps.includes(x)).forEach(add);
		if (stop.title === "RMSNorm" && rows[0]) {
			const rms = rootMeanSquare(rows[0][1]);
			rows.push(["x / rms", rows[0][1].map((x) => x / rms)]);
		}
		if (step?.does.includes("silu(gate)") && rows[0])
			rows.push(["silu(gate)", rows[0][1].map((x) => x / (1 + Math.exp(-x)))]);
		add(name);
	}
	if (!rows.length) return stop.example && <StopExample stop={stop} example={stop.example} />;
	const places = Array.from({ length: FIRST }, (_, i) => `[${i}]`);
	const isMix = stop.name === "mix" && chosen?.facts;
	return (
		<figure class="tour-example">
			<figcaption class="caption">
				“{story.model.tokenizer.show(story.ids[token]!)}”{isInLayer && ` in layer ${layer}`}
				{chosen && (isMix || stop.name === "qkv") && `, head ${chosen.head}`}
			</figcaption>
			{isMix ? (
				<NumberTable
					columns={["value of", "share", ...places]}
					rows={mixedRows(story, chosen, token, rows.at(-1)![1])}
				/>
			) : (
				<NumberTable
					columns={["", ...places, "", "rms of all"]}
					rows={rows.map(([name, x]) => [
						name,
						...firstOf(x),
						"…",
						shortNumber(rootMeanSquare(x)),
					])}
				/>
			)}
		</figure>
	);
}

const firstOf = (list: Float32Array) => Array.from(list.subarray(0, FIRST), shortNumber);

/** Of queries, keys and values, what the chosen head has. */
function ofHead(story: Story, chosen: ChosenHead | null, step: string, list: Float32Array) {
	if (!chosen) return list;
	const { facts, head } = chosen;
	const turned = (x: string) => story.data.rotations.find((y) => y.step === x)?.from;
	const [own, count] = [facts.queries, turned(facts.queries)].includes(step)
		? [head, facts.heads]
		: [facts.keys, facts.values, turned(facts.keys)].includes(step)
			? [Math.floor((head * facts.kvHeads) / facts.heads), facts.kvHeads]
			: [0, 1];
	const size = list.length / count;
	return list.subarray(own * size, (own + 1) * size);
}

/** The values of the keys that the head reads most, and what it makes of all of them. */
function mixedRows(story: Story, chosen: ChosenHead, token: number, all: Float32Array): string[][] {
	const { facts, head } = chosen;
	const shares = rowOfHead(story, facts, head, token);
	const valuesAt = (i: number) =>
		ofHead(story, chosen, facts.values, story.passes[i]!.values.get(facts.values)!);
	const shown = largest(shares, MIXED);
	const others = token + 1 - shown.length;
	const rest = 1 - shown.reduce((n, i) => n + shares[i]!, 0);
	return [
		...shown.map((i) => [
			`${i} ${story.model.tokenizer.show(story.ids[i]!)}`,
			percentOf(shares[i]!),
			...firstOf(valuesAt(i)),
		]),
		...(others > 0 ? [[`${others} others`, percentOf(Math.max(0, rest))]] : []),
		["all: y", "100%", ...firstOf(ofHead(story, chosen, facts.queries, all))],
	];
}

/** The first output of the stop's first product, as the sum of its products. */
function OneOutput({ model, story, token, stop }: StopValues) {
	const state = useAppState("layer");
	const step = productOf(model, stop);
	if (!step || !/^\d+$/.test(stop.place)) return null;
	const product = productAt(story, shownLayer(model, state), step, token);
	return product && <DotProduct step={step} product={product} row={0} />;
}

/** The most likely next tokens. */
function Likely({
	story,
	token,
	temperature,
}: {
	story: Story;
	token: number;
	temperature: number;
}) {
	const { logits } = story.passes[token]!;
	const shares = softmax(logits, temperature);
	return (
		<figure class="tour-example">
			<NumberTable
				columns={["next", "logit", "probability"]}
				rows={largest(shares, SHOWN_TOKENS).map((id) => [
					story.model.tokenizer.show(id),
					shortNumber(logits[id]!),
					percentOf(shares[id]!),
				])}
			/>
		</figure>
	);
}
