// Over the picture of a model that runs in the page: its text, the tokens as they stand on the
// residual stream, and what writes on.
import "./live.css";
import { Segmented } from "../../components/controls";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { ModelData } from "../../lib/data";
import { groupedNumber, threeDigits } from "../../lib/format";
import { useRoving } from "../../lib/roving";
import { MAX_TEXT } from "../../lib/settings";
import { change, useAppState } from "../../lib/state";
import { IS_PHONE, useMedia } from "../../lib/use_media";
import { percentOf } from "./cells";
import { HeadMap, isLayerOpen, shownHead } from "./heads";
import { NextToken } from "./next_token";
import { largest, shownToken, softmax, type Story, useStory } from "./story";

export function LiveBar({ model }: { model: ModelData }) {
	const story = useStory(model);
	const state = useAppState("token", "temperature");
	const field = useRef<HTMLTextAreaElement>(null);
	const isPhone = useMedia(IS_PHONE);
	const written = story?.written ?? 0;
	useLayoutEffect(() => {
		if (written && field.current) field.current.scrollTop = field.current.scrollHeight;
	}, [written]);
	useEffect(() => void story?.open(), [story]);
	if (!story) return null;
	const isReady = story.status === "ready";
	const isAtEnd = story.end !== "" && !story.beginsAgain;
	return (
		<div class="live-bar" data-live={story.status}>
			<label class="hidden" for="live-text">
				Text that the model reads
			</label>
			<textarea
				id="live-text"
				ref={field}
				rows={1}
				aria-describedby="live-knows"
				maxLength={MAX_TEXT}
				spellcheck={false}
				value={story.text}
				onInput={(event) => story.setText(event.currentTarget.value)}
			/>
			<div class="live-buttons">
				{story.data.chat && (
					<Segmented
						id="live-chat"
						label="What the model does with the text"
						labelHidden
						options={[
							["", "Continue"],
							["on", "Answer"],
						]}
						chosen={story.isChat ? "on" : ""}
						choose={(x) => story.setChat(x)}
					/>
				)}
				<button
					type="button"
					class="button primary"
					aria-disabled={isAtEnd}
					aria-describedby="live-end"
					onClick={() => {
						story.pause();
						story.step();
					}}
				>
					Step
				</button>
				<button
					type="button"
					class="button primary"
					aria-disabled={isAtEnd && !story.isWriting}
					aria-describedby="live-end"
					aria-pressed={story.isWriting}
					onClick={() => story.writeOn()}
				>
					{story.isWriting ? "Pause" : "Write on"}
				</button>
				{story.written > 0 && state.temperature !== 0 && (
					<button type="button" class="button" onClick={() => story.tryAgain()}>
						Try again
					</button>
				)}
			</div>
			{isReady && <Tokens model={model} story={story} />}
			{story.answer && (
				<p class="live-answer" role={story.isWriting ? undefined : "status"}>
					<small>Answer</small> {story.answer}
				</p>
			)}
			<div class="live-foot">
				<p class="caption live-note" role={story.isWriting ? undefined : "status"}>
					{noteOf(story)}
				</p>
				<span id="live-end" class="caption" role="status">
					{story.end} {hintOf(story)}
				</span>
				<details class="live-knows">
					<summary>What it reads</summary>
					<p class="caption" id="live-knows">
						Tokens, pieces of words: · is a space, &lt;s&gt; the beginning.{" "}
						{story.data.knows}
					</p>
				</details>
				<Prompts story={story} />
			</div>
			{isReady && isPhone && <Reading model={model} story={story} />}
		</div>
	);
}

/** What follows and what is read, which a phone has right below the text. */
function Reading({ model, story }: { model: ModelData; story: Story }) {
	const state = useAppState("token", "layer", "head");
	if (!story.length) return null;
	return (
		<div class="live-reading">
			<NextToken story={story} />
			{shownHead(model, story, state) && <HeadMap model={model} story={story} />}
		</div>
	);
}

type Prompt = Story["data"]["prompts"][number];
/** The last sentence of a text. */
const endOf = (text: string) => text.replace(/^.*[.!?] (?=\S)/, "… ");

/** Texts to try: one tab stop. */
function Prompts({ story }: { story: Story }) {
	const rove = useRoving(story.data.prompts.length);
	if (!story.data.prompts.length) return null;
	return (
		<span class="live-prompts" data-roving role="group" aria-label="Texts to try">
			{story.data.prompts.map((x, i) => (
				<button
					type="button"
					{...rove(i)}
					key={x.text}
					class="button"
					title={x.says}
					aria-label={x.text}
					aria-pressed={isShown(story, x)}
					onClick={() => {
						change({ layer: x.layer, head: x.head });
						story.setText(x.text, x.chat ? "on" : "");
					}}
				>
					{endOf(x.text)}
				</button>
			))}
		</span>
	);
}

const isShown = (story: Story, x: Prompt) =>
	story.text === x.text && story.isChat === (x.chat ?? false);

/** What to do where a text has ended. */
function hintOf(story: Story): string {
	if (!story.end || story.status !== "ready") return "";
	const isFull = story.ids.length >= story.data.context;
	const asks =
		story.data.chat && !story.isChat && !isFull
			? "For an answer to a question, choose Answer. "
			: "";
	return asks + (story.beginsAgain ? "Step and Write on begin again." : "");
}

function noteOf(story: Story): string {
	if (story.status === "failed")
		return (
			`The reason: ${story.problem}. ` +
			"The picture below is of its weights alone; another text tries again."
		);
	if (story.status !== "ready") return "";
	const { tokens, ms } = story.lastPass;
	const count = `${groupedNumber(story.ids.length)} ${story.ids.length === 1 ? "token" : "tokens"}`;
	const last = tokens === 1 ? "the last one" : `the last ${groupedNumber(tokens)} of them`;
	const read = tokens < story.ids.length ? `; ${last} took` : ", read in";
	const speed = tokens ? `${read} ${threeDigits(ms)} ms` : "";
	const left = story.left ? ` ${groupedNumber(story.left)} more are not read.` : "";
	const says = story.data.prompts.find((x) => isShown(story, x))?.says ?? "";
	return `${says} ${count}${speed}.${left}`.trim();
}

const LIKELY = 3;
const LEAST_LIKELY = 0.001;

/** The most likely next tokens, of those that one would see drawn. */
function likelyNext(story: Story): [id: number, share: number][] {
	const shares = softmax(story.passes.at(-1)!.logits);
	return largest(shares, LIKELY)
		.map((id): [number, number] => [id, shares[id]!])
		.filter(([, share], i) => i === 0 || share >= LEAST_LIKELY);
}

/**
 * Tokens on the residual stream, shaded by what the chosen head reads at the chosen token; in a line,
 * those of the text alone.
 */
export function Tokens({
	model,
	story,
	isLine = false,
}: {
	model: ModelData;
	story: Story;
	isLine?: boolean;
}) {
	const rove = useRoving(story.ids.length + LIKELY);
	const state = useAppState("token", "layer", "head");
	const chosen = shownToken(story, state);
	// outside of a layer nothing is read
	const head = isLayerOpen(model, state) ? shownHead(model, story, state) : null;
	const keys = chosen + 1;
	const weights = head && story.passes[chosen]?.attention.get(head.facts.step);
	const list = useRef<HTMLOListElement>(null);
	useLayoutEffect(() => {
		// what is chosen is seen, without moving the page
		const chip = list.current!.children[chosen] as HTMLElement | undefined;
		if (!chip) return;
		list.current!.scrollTop = chip.offsetTop - list.current!.offsetTop - 40;
		list.current!.scrollLeft = chip.offsetLeft - list.current!.offsetLeft - 40;
	}, [chosen, story.ids.length]);
	const hasLikely = !isLine && chosen === story.length - 1 && !story.end;
	const likely = hasLikely ? likelyNext(story) : [];
	return (
		<ol
			class={`live-tokens ${isLine ? "in-line" : ""}`}
			data-roving
			aria-label="Tokens"
			ref={list}
		>
			{story.ids.map((id, i) => {
				const weight = weights && i <= chosen ? weights[head.head * keys + i]! : null;
				const says =
					`token ${i}, id ${id}` +
					(weight === null ? "" : `, read with ${percentOf(weight)}`);
				return (
					<li key={i}>
						<button
							type="button"
							{...rove(i)}
							class={i > chosen ? "later" : ""}
							aria-pressed={i === chosen}
							aria-label={`${story.model.tokenizer.show(id)}: ${says}`}
							title={says}
							data-written={i >= story.ids.length - story.written ? "" : undefined}
							style={
								weight === null
									? undefined
									: {
											borderColor:
												weight < 0.25 ? undefined : "var(--c-attn)",
											background: `color-mix(in srgb, var(--c-attn) ${Math.round(45 * weight)}%, var(--panel))`,
										}
							}
							onClick={() => {
								story.pause();
								change({ token: i === story.length - 1 ? null : i });
							}}
						>
							{story.model.tokenizer.show(id)}
						</button>
					</li>
				);
			})}
			{likely.map(([id, share], i) => (
				<li key={`next ${i}`} class="likely">
					<button
						type="button"
						{...rove(story.ids.length + i)}
						title={`continue with it: ${percentOf(share)}`}
						onClick={() => {
							story.pause();
							story.append(id);
						}}
					>
						{story.model.tokenizer.show(id)} <small>{percentOf(share)}</small>
					</button>
				</li>
			))}
		</ol>
	);
}
