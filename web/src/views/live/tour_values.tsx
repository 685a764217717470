// Beside a stop of the tour: what its steps computed for the chosen token, in a page that runs the
// model, else the shapes of their results.
import type { ModelData } from "../../lib/data";
import { useRoving } from "../../lib/roving";
import { useAppState } from "../../lib/state";
import { percentOf } from "./cells";
import { Tokens } from "./live_bar";
import { HeadMap, shownHead, shownLayer } from "./heads";
import { Cache, HeadSteps, Rotation, Strip, tokenOf } from "./layer_values";
import { DotProduct, productAt } from "./live_matrix";
import { stagesOf } from "../plate/plate_model";
import { largest, shownToken, softmax, type Story, useStory } from "./story";
import { StopExample } from "../tour/tour_example";
import { productOf, StopNumbers } from "../tour/tour_shapes";
import type { TourStop } from "../tour/tour_stops";

const SHOWN_TOKENS = 5;
const SHOWN_STRIPS = 4;

interface StopValues {
	model: ModelData;
	story: Story;
	token: number;
	stop: TourStop;
}

export function TourValues({
	model,
	stop,
	isOnPaper = false,
}: {
	model: ModelData;
	stop: TourStop;
	isOnPaper?: boolean;
}) {
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
			) : stop.name === "scores" && isOnPaper ? (
				<HeadSteps model={model} story={story} />
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
					<Strips model={model} story={story} token={token} stop={stop} />
					<OneOutput model={model} story={story} token={token} stop={stop} />
					{stop.example && !productOf(model, stop) && (
						<StopExample stop={stop} example={stop.example} />
					)}
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
		<table class="tour-likely">
			<thead>
				<tr>
					<th scope="col">next</th>
					<th scope="col" class="n">
						logit
					</th>
					<th scope="col" class="n">
						probability
					</th>
				</tr>
			</thead>
			<tbody>
				{largest(shares, SHOWN_TOKENS).map((id) => (
					<tr key={id}>
						<th scope="row">
							<span class="live-token">{story.model.tokenizer.show(id)}</span>
						</th>
						<td class="n">{logits[id]!.toFixed(2).replace("-", "−")}</td>
						<td class="n">{percentOf(shares[id]!)}</td>
					</tr>
				))}
			</tbody>
		</table>
	);
}

/** The numbers that the stop's steps left for the chosen token. */
function Strips({ model, story, token, stop }: StopValues) {
	const state = useAppState("layer");
	const { values } = story.passes[token]!;
	const prefix = /^\d+$/.test(stop.place) ? `layers.${shownLayer(model, state)}.` : "";
	const shown = stop.steps.filter((x) => values.has(prefix + x)).slice(0, SHOWN_STRIPS);
	const rove = useRoving(shown.length);
	if (!shown.length) return null;
	const steps = stagesOf(model, "prompt").flatMap((x) => x.steps);
	const colorOf = (name: string) => tokenOf(steps.find((x) => x.name === name));
	return (
		<ol class="tour-strips" data-roving>
			{shown.map((x, i) => (
				<Strip
					key={x}
					rove={rove(i)}
					name={x}
					values={values.get(prefix + x)!}
					color={colorOf(x)}
				/>
			))}
		</ol>
	);
}
