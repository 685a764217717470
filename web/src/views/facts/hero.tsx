// The first screen: the fact sheet, and beside it the picture of the model.
import type { ComponentChildren } from "preact";
import type { ModelData } from "../../lib/data";
import { useMedia } from "../../lib/use_media";
import { useIsAsking } from "../quiz/quiz_data";
import { FactRows, Intro, Source } from "./fact_sheet";
import { RunsOn } from "./runs_on";

interface Props {
	model: ModelData;
	/** The picture of the whole model, on phones between the name and the facts. */
	skyline?: ComponentChildren;
	/** The picture beside the sheet; on phones below it. */
	plate?: ComponentChildren;
	/** The text of a model that runs here: over the plate beside the sheet, else under the title. */
	live?: ComponentChildren;
}

const IS_BESIDE = "(min-width: 1400px)";

export function Hero({ model, skyline, plate, live }: Props) {
	const isAsking = useIsAsking();
	const isBeside = useMedia(IS_BESIDE);
	// beside a plate, the columns end at about the same height; a live model is before its facts
	const isSourceUnder = isBeside ? !live : !!live;
	const areFactsUnder = isSourceUnder && !isBeside;
	const liveInSheet = !isBeside && live;
	const source = <Source model={model} />;
	return (
		<div class={`wrap hero ${plate ? "with-plate" : ""}`}>
			<div class={liveInSheet ? "sheet with-live" : "sheet"} data-numbers>
				<Intro model={model} />
				{liveInSheet && <div class="sheet-live">{live}</div>}
				{skyline && <div class="hero-skyline">{skyline}</div>}
				{!isAsking && <RunsOn model={model} />}
				{!areFactsUnder && <FactRows model={model} />}
				{!isSourceUnder && source}
			</div>
			{plate && (
				<div class="hero-plate">
					{isBeside && live}
					{plate}
					{isSourceUnder && (
						<div class="under-plate" data-numbers>
							{areFactsUnder && <FactRows model={model} />}
							{source}
						</div>
					)}
				</div>
			)}
		</div>
	);
}
