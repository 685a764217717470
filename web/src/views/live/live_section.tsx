// A model at work: what the steps of its passes computed, for the text over the picture.
import type { ComponentChildren } from "preact";
import { Section, SubHeading } from "../../components/section";
import type { ModelData } from "../../lib/data";
import { useAppState, type State } from "../../lib/state";
import { IS_PHONE, useMedia } from "../../lib/use_media";
import { percentOf } from "./cells";
import { HeadGrid, HeadMap, shownHead } from "./heads";
import { Cache, HeadSteps, LayerValues, Rotation } from "./layer_values";
import { Lens, NextToken } from "./next_token";
import { largest, shownToken, softmax, type Story, useStory } from "./story";

function finding(story: Story, state: Pick<State, "token">): string {
	if (story.status === "failed") return "This model does not run in this browser";
	if (!story.length) return "The model at work";
	const token = shownToken(story, state);
	const show = (id: number) => story.model.tokenizer.show(id);
	if (story.isEnd(story.ids[token]!)) return "The model has ended its text";
	const shares = softmax(story.passes[token]!.logits);
	const [best] = largest(shares, 1);
	return `After “${show(story.ids[token]!)}” it expects “${show(best!)}”, with ${percentOf(shares[best!]!).replace("> ", "more than ")}`;
}

interface RunsHereProps {
	model: ModelData;
	words?: ComponentChildren;
	children: ComponentChildren;
}

export function RunsHere({ model, words, children }: RunsHereProps) {
	if (useStory(model)?.status === "failed") return <>{children}</>;
	if (words) return <>{words}</>;
	return (
		<a class="runs" href="#live">
			<span>
				<small>Runs</small>
				<strong>in this page</strong>
				<small>by the processor of your device</small>
			</span>
			<span aria-hidden="true">→</span>
		</a>
	);
}

export function LiveSection({ model }: { model: ModelData }) {
	const state = useAppState("token", "head", "layer");
	const story = useStory(model);
	if (!story) return null;
	const isPhone = useMedia(IS_PHONE);
	const hasHeads = story.length > 0 && shownHead(model, story, state) !== null;
	return (
		<Section
			id="live"
			topic="The model at work"
			title={finding(story, state)}
			lead={
				story.length
					? "Every number is computed in this page by the model's own weights. Choose a " +
						"token above, a layer in the picture, a head here."
					: story.status === "failed"
						? `The rest of the page needs no engine: ${story.problem}.`
						: "The numbers appear when the model is unpacked."
			}
		>
			{story.length > 0 && (
				<div class="live-grid">
					{hasHeads && !isPhone && <HeadMap model={model} story={story} />}
					{hasHeads && (
						<figure class="live-all-heads">
							<SubHeading>
								All heads; a line joins those that share a key and value head
							</SubHeading>
							<HeadGrid model={model} story={story} />
						</figure>
					)}
					{!isPhone && <NextToken story={story} />}
					{hasHeads && <Rotation model={model} story={story} />}
					{hasHeads && <HeadSteps model={model} story={story} />}
					<Lens story={story} />
					{hasHeads && <Cache model={model} story={story} />}
					<LayerValues model={model} story={story} />
				</div>
			)}
		</Section>
	);
}
