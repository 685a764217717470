// The heads of a model that runs in the page: how much each token reads of those before it, for all
// heads in small and for the chosen one in large.
import type { ModelData } from "../../lib/data";
import { useRoving } from "../../lib/roving";
import { change, state } from "../../lib/state";
import type { HeadFacts } from "../../live/live_model";
import { openPlace } from "../plate/plate";
import { Cells, percentOf } from "./cells";
import { largest, shownToken, type Story } from "./story";

/** More heads than this are shown for the opened layer alone. */
const MAX_THUMBNAILS = 64;
/** More tokens than this have no names beside the large map. */
const MAX_NAMED = 48;

export interface ChosenHead {
	facts: HeadFacts;
	layer: number;
	head: number;
}

export const layerOfStep = (step: string): number => Number(/^layers\.(\d+)\./.exec(step)?.[1]);

/** The layer that is opened in the picture; the first one while none is. */
export function shownLayer(model: ModelData): number {
	const open = openPlace(model, state.layer!);
	return typeof open === "number" ? open : 0;
}

/** The chosen head: of the opened layer, or of the nearest one before it that has heads. */
export function shownHead(model: ModelData, story: Story): ChosenHead | null {
	const layer = shownLayer(model);
	const all = story.data.attention;
	const facts = all.find((x) => layerOfStep(x.step) === layer) ?? all[0];
	if (!facts) return null;
	return {
		facts,
		layer: layerOfStep(facts.step),
		head: Math.min(Number(state.head), facts.heads - 1),
	};
}

const weightAt = (story: Story, facts: HeadFacts, head: number, query: number, key: number) =>
	key > query
		? Number.NaN
		: story.passes[query]!.attention.get(facts.step)![head * (query + 1) + key]!;

const shade = (weight: number): number => (Number.isNaN(weight) ? weight : Math.sqrt(weight));

export function HeadGrid({ model, story }: { model: ModelData; story: Story }) {
	const chosen = shownHead(model, story)!;
	const { attention } = story.data;
	const all = attention.reduce((n, x) => n + x.heads, 0);
	const shown = all > MAX_THUMBNAILS ? [chosen.facts] : attention;
	const rove = useRoving(shown.reduce((n, x) => n + x.heads, 0));
	let place = 0;
	return (
		<div class="live-heads" data-roving role="group" aria-label="Heads">
			{shown.map((facts) => {
				const layer = layerOfStep(facts.step);
				const group = facts.heads / facts.kvHeads;
				return (
					<div class="live-heads-row" key={facts.step}>
						<span class="control-label">layer {layer}</span>
						{Array.from({ length: facts.kvHeads }, (_, kv) => (
							<span
								class="live-group"
								key={kv}
								title={`key and value head ${kv}, which ${group} ${group === 1 ? "query head reads" : "query heads share"}`}
							>
								{Array.from({ length: group }, (_, i) => {
									const head = kv * group + i;
									const isOn = layer === chosen.layer && head === chosen.head;
									return (
										<button
											type="button"
											key={head}
											{...rove(place++)}
											aria-pressed={isOn}
											aria-label={`layer ${layer}, head ${head}`}
											onClick={() =>
												change({ layer: String(layer), head: String(head) })
											}
										>
											<Cells
												columns={story.length}
												rows={story.length}
												at={(key, query) =>
													shade(weightAt(story, facts, head, query, key))
												}
												label=""
												color="--c-attn"
												of={[story.passes.at(-1), story.length]}
											/>
										</button>
									);
								})}
							</span>
						))}
					</div>
				);
			})}
		</div>
	);
}

export function HeadMap({ model, story }: { model: ModelData; story: Story }) {
	const { facts, layer, head } = shownHead(model, story)!;
	const token = shownToken(story);
	const named = story.length <= MAX_NAMED;
	const show = (i: number) => story.model.tokenizer.show(story.ids[i]!);
	const row = Array.from({ length: token + 1 }, (_, key) =>
		weightAt(story, facts, head, token, key),
	);
	const most = largest(row, 4).filter((i, place) => place === 0 || row[i]! >= 0.005);
	const reads = most.map((i) => `${show(i)} ${percentOf(row[i]!)}`).join(", ");
	return (
		<figure class="live-map">
			<h3>
				Layer {layer}, head {head}: what each token reads of those up to itself
			</h3>
			<div
				class={`live-map-grid${named ? "" : " unnamed"}`}
				style={{ "--tokens": story.length, "--row": token }}
			>
				{named && (
					<div class="live-map-keys" aria-hidden="true">
						{story.ids.map((_, i) => (
							<span key={i}>
								<i>{show(i)}</i>
							</span>
						))}
					</div>
				)}
				{named && (
					<div class="live-map-queries" aria-hidden="true">
						{story.ids.map((_, i) => (
							<span key={i} class={i === token ? "on" : ""}>
								{show(i)}
							</span>
						))}
					</div>
				)}
				<div class="live-map-cells">
					<Cells
						columns={story.length}
						rows={story.length}
						at={(key, query) => shade(weightAt(story, facts, head, query, key))}
						label={`${show(token)} reads ${reads}`}
						color="--c-attn"
						of={[story.passes.at(-1), story.length, facts, head]}
					/>
					<span class="live-map-row" />
				</div>
			</div>
			<figcaption class="caption">
				“{show(token)}” reads {reads}.
			</figcaption>
		</figure>
	);
}
