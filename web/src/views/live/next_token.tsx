// What a model that runs in the page may say next, and what it would say after each layer.
import { useRef } from "preact/hooks";
import { SubHeading } from "../../components/section";
import { NumberButton } from "../../components/number";
import { SETTINGS } from "../../lib/settings";
import { change, useAppState, type State } from "../../lib/state";
import { percentOf, rootMeanSquare, shortNumber } from "./cells";
import { layerOfStep } from "./heads";
import { largest, shownToken, softmax, type Story } from "./story";

const SHOWN = 8;

/** The tokens that sampling with top-p keeps: the most likely ones, until they have that share. */
function keptByTopP(shares: Float64Array, order: readonly number[], topP: number): Set<number> {
	const kept = new Set<number>();
	let sum = 0;
	for (const i of order) {
		kept.add(i);
		sum += shares[i]!;
		if (sum >= topP) break;
	}
	return kept;
}

/** How the next token is chosen; `kept` is how many top-p leaves. */
function saysOf(
	tokens: number,
	kept: number | null,
	state: Pick<State, "temperature" | "top_p">,
): string {
	if (state.temperature === 0)
		return `softmax(logits) over ${tokens} tokens; at temperature 0 the first one is taken.`;
	const drawn = kept
		? `${kept}, the fewest that together have ${state.top_p} or more`
		: `${tokens} tokens`;
	return `softmax(logits / ${state.temperature}); the next token is drawn from ${drawn}.`;
}

/** A setting of the page, with the values that it may have. */
function Choice({ id, label }: { id: "temperature" | "top_p"; label: string }) {
	const state = useAppState(id);
	return (
		<span class="control">
			<label class="control-label" for={`live-${id}`}>
				{label}
			</label>
			<select
				id={`live-${id}`}
				value={state[id]}
				onChange={(event) => change({ [id]: Number(event.currentTarget.value) })}
			>
				{SETTINGS[id].values!.map((x) => (
					<option key={x}>{x}</option>
				))}
			</select>
		</span>
	);
}

export function NextToken({ story }: { story: Story }) {
	const state = useAppState("token", "temperature", "top_p");
	const token = shownToken(story, state);
	const isLast = token === story.length - 1;
	const { logits } = story.passes[token]!;
	const temperature = state.temperature;
	const shares = softmax(logits, temperature || 1);
	const topP = state.top_p;
	const isCutting = temperature > 0 && topP < 1;
	const order = largest(shares, isCutting ? shares.length : SHOWN);
	// without sampling the most likely token is taken, and nothing is cut
	const kept = isCutting ? keptByTopP(shares, order, topP) : null;
	const total = kept ? [...kept].reduce((n, i) => n + shares[i]!, 0) : 1;
	const show = (id: number) => story.model.tokenizer.show(id);
	const list = useRef<HTMLOListElement>(null);
	return (
		<figure class="live-next">
			<SubHeading>Next after “{show(story.ids[token]!)}”</SubHeading>
			<ol class="live-bars" ref={list}>
				{order.slice(0, SHOWN).map((id) => {
					const isCut = kept !== null && !kept.has(id);
					const share = isCut ? 0 : shares[id]! / total;
					return (
						<li key={id} class={isCut ? "cut" : ""}>
							<button
								type="button"
								disabled={!isLast || story.end !== ""}
								title={isLast ? `continue with “${show(id)}”` : undefined}
								onClick={() => {
									story.pause();
									story.append(id);
									// the button that was chosen may be gone
									setTimeout(() =>
										list.current?.querySelector("button")?.focus(),
									);
								}}
							>
								<span class="live-token">{show(id)}</span>
								<span class="live-bar-line data">
									<i style={{ width: `${100 * share}%` }} />
								</span>
								<span class="n">{isCut ? "cut" : percentOf(share)}</span>
							</button>
						</li>
					);
				})}
			</ol>
			<div class="section-controls">
				<Choice id="temperature" label="Temperature" />
				{temperature > 0 && <Choice id="top_p" label="top-p" />}
			</div>
			<figcaption class="caption">
				{saysOf(logits.length, kept && kept.size, state)}
			</figcaption>
		</figure>
	);
}

/** The stream after the embedding and after each layer, read by the final norm and head. */
export function Lens({ story }: { story: Story }) {
	const state = useAppState("token");
	if (!story.data.lens) return null;
	const token = shownToken(story, state);
	const { values } = story.passes[token]!;
	const ends = new Map<number, string>();
	const first = story.data.results[0]!;
	for (const step of story.data.results) {
		const layer = layerOfStep(step);
		if (!Number.isNaN(layer)) ends.set(layer, step);
	}
	const rows: [string, string][] = [
		["the embedding", first],
		...[...ends].map(([layer, step]): [string, string] => [`layer ${layer}`, step]),
	];
	const show = (id: number) => story.model.tokenizer.show(id);
	return (
		<figure class="live-lens">
			<SubHeading>What it would say after each layer</SubHeading>
			<table>
				<thead>
					<tr>
						<th scope="col">after</th>
						<th scope="col">first</th>
						<th scope="col">second</th>
						<th scope="col" class="n">
							rms
						</th>
					</tr>
				</thead>
				<tbody>
					{rows.map(([name, step]) => {
						const stream = values.get(step)!;
						const shares = softmax(story.model.lens(stream));
						const rms = rootMeanSquare(stream);
						return (
							<tr key={step} data-lens={step}>
								<th scope="row">{name}</th>
								{largest(shares, 2).map((id) => (
									<td key={id}>
										<b>{show(id)}</b> {percentOf(shares[id]!)}
									</td>
								))}
								<td class="n">
									<NumberButton
										label="root mean square of the stream"
										derive={() => ({
											title: "Root mean square of the residual stream",
											lines: [
												`√(Σ x² / ${stream.length}) = ${rms.toPrecision(6)}`,
												"RMSNorm divides by it, so that what a layer reads " +
													"has the same size however long the stream has grown.",
											],
										})}
									>
										{shortNumber(rms)}
									</NumberButton>
								</td>
							</tr>
						);
					})}
				</tbody>
			</table>
			<figcaption class="caption">
				The final norm and the head, applied to the residual stream after each layer
				{story.data.lens.isTied &&
					"; after the embedding it is the token itself, since head and embedding share their weights"}
				.
			</figcaption>
		</figure>
	);
}
