// The heads of a model that runs in the page: how much each token reads of those before it, for all
// heads in small and for the chosen one in large.
import { useState } from "preact/hooks";
import { SubHeading } from "../../components/section";
import type { ModelData } from "../../lib/data";
import { useRoving } from "../../lib/roving";
import { change, useAppState, type State } from "../../lib/state";
import type { HeadFacts } from "../../live/live_model";
import { openPlace } from "../plate/plate";
import { Cells, percentOf } from "./cells";
import { largest, shownToken, type Story } from "./story";

/** More heads than this are shown for the opened layer alone. */
const MAX_THUMBNAILS = 64;
/** Cells of a small map on each side. */
const MAX_CELLS = 92;
/** Tokens that the large map shows; of a longer text, those around the chosen one. */
const MAX_NAMED = 40;

export interface ChosenHead {
	facts: HeadFacts;
	layer: number;
	head: number;
}

export const layerOfStep = (step: string): number => Number(/^layers\.(\d+)\./.exec(step)?.[1]);

/** Whether a layer is opened in the picture, and not the embedding or the head. */
export const isLayerOpen = (model: ModelData, state: Pick<State, "layer">): boolean =>
	typeof openPlace(model, state.layer) === "number";

/** The layer that is opened in the picture; the first one while none is. */
export function shownLayer(model: ModelData, state: Pick<State, "layer">): number {
	const open = openPlace(model, state.layer);
	return typeof open === "number" ? open : 0;
}

/** The chosen head: of the opened layer, or of the nearest one before it that has heads. */
export function shownHead(
	model: ModelData,
	story: Story,
	state: Pick<State, "layer" | "head">,
): ChosenHead | null {
	const layer = shownLayer(model, state);
	const all = story.data.attention;
	const facts = all.findLast((x) => layerOfStep(x.step) <= layer) ?? all[0];
	if (!facts) return null;
	return { facts, layer: layerOfStep(facts.step), head: Math.min(state.head, facts.heads - 1) };
}

/** A head's weights for the keys up to a query's own. */
export const rowOfHead = (
	story: Story,
	facts: HeadFacts,
	head: number,
	query: number,
): Float32Array =>
	story.passes[query]!.attention.get(facts.step)!.subarray(
		head * (query + 1),
		(head + 1) * (query + 1),
	);

/** Paints the weights of a head for some tokens, with `fold` tokens in each cell: their largest. */
const paintHead =
	(
		story: Story,
		facts: HeadFacts,
		head: number,
		[first, end]: readonly [number, number],
		fold = 1,
	) =>
	(put: (x: number, y: number, value: number) => void): void => {
		for (let cell = 0, query = first; query < end; cell++, query += fold) {
			const most = new Float32Array(cell + 1);
			for (let q = query; q < Math.min(query + fold, end); q++) {
				const row = rowOfHead(story, facts, head, q);
				for (let key = first; key <= q; key++) {
					const x = Math.floor((key - first) / fold);
					most[x] = Math.max(most[x]!, row[key]!);
				}
			}
			most.forEach((weight, x) => put(x, cell, Math.sqrt(weight)));
		}
	};

export function HeadGrid({ model, story }: { model: ModelData; story: Story }) {
	const chosen = shownHead(model, story, useAppState("layer", "head"))!;
	const { attention } = story.data;
	const all = attention.reduce((n, x) => n + x.heads, 0);
	const fold = Math.ceil(story.length / MAX_CELLS);
	const cells = Math.ceil(story.length / fold);
	const shown = all > MAX_THUMBNAILS ? [chosen.facts] : attention;
	const rove = useRoving(shown.reduce((n, x) => n + x.heads, 0));
	let place = 0;
	return (
		<div
			class="live-heads"
			data-roving
			role="group"
			aria-label="Heads"
			style={{ "--heads": Math.max(...shown.map((x) => x.heads)) }}
		>
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
											onClick={() => change({ layer, head })}
										>
											<Cells
												columns={cells}
												rows={cells}
												paint={paintHead(
													story,
													facts,
													head,
													[0, story.length],
													fold,
												)}
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

/** `isBrief`: beside a text that says what is drawn, with the caption above. */
export function HeadMap({
	model,
	story,
	isBrief = false,
}: {
	model: ModelData;
	story: Story;
	isBrief?: boolean;
}) {
	const [hovered, setHovered] = useState<readonly [key: number, query: number] | null>(null);
	const state = useAppState("layer", "head", "token");
	const { facts, layer, head } = shownHead(model, story, state)!;
	const token = shownToken(story, state);
	const first = Math.max(0, Math.min(token - MAX_NAMED + 8, story.length - MAX_NAMED));
	const end = Math.min(story.length, first + MAX_NAMED);
	const shown = story.ids.slice(first, end);
	const show = (i: number) => story.model.tokenizer.show(story.ids[i]!);
	const row = rowOfHead(story, facts, head, token);
	const most = largest(row, 4).filter((i, place) => place === 0 || row[i]! >= 0.005);
	const reads = most.map((i) => `${show(i)} ${percentOf(row[i]!)}`).join(", ");
	const under =
		hovered && hovered[0] <= hovered[1] && hovered[1] < story.length
			? `“${show(hovered[1])}” reads ${show(hovered[0])} ` +
				`${percentOf(rowOfHead(story, facts, head, hovered[1])[hovered[0]]!)}`
			: `“${show(token)}” reads ${reads}`;
	const caption = (
		<figcaption class="caption">
			{isBrief && `Layer ${layer}, head ${head}: `}
			{under}.
			{shown.length < story.length &&
				` Shown are tokens ${first} to ${end - 1} of ${story.length}.`}
		</figcaption>
	);
	return (
		<figure class="live-map">
			{isBrief ? (
				caption
			) : (
				<SubHeading>
					Layer {layer}, head {head}: what each token reads
				</SubHeading>
			)}
			<div
				class="live-map-grid"
				style={{ "--tokens": shown.length, "--row": token - first }}
				onPointerLeave={() => setHovered(null)}
			>
				<div class="live-map-keys" aria-hidden="true">
					{shown.map((_, i) => (
						<span key={i}>
							<i>{show(first + i)}</i>
						</span>
					))}
				</div>
				<div class="live-map-queries" aria-hidden="true">
					{shown.map((_, i) => (
						<span key={i} class={first + i === token ? "on" : ""}>
							{show(first + i)}
						</span>
					))}
				</div>
				<div class="live-map-cells">
					<Cells
						columns={shown.length}
						rows={shown.length}
						paint={paintHead(story, facts, head, [first, end])}
						label={`${show(token)} reads ${reads}`}
						color="--c-attn"
						of={[story.passes.at(-1), story.length, facts, head, first]}
						hover={(key, query) => setHovered([first + key, first + query])}
						choose={(_, query) =>
							change({
								token: first + query === story.length - 1 ? null : first + query,
							})
						}
					/>
					<span class="live-map-row" />
				</div>
			</div>
			{!isBrief && caption}
		</figure>
	);
}
