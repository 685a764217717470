// The first screen: the fact sheet, and beside it the picture of the model.
import type { ComponentChildren } from "preact";
import type { ModelData } from "../../lib/data";
import { FactRows, Intro, Source } from "./fact_sheet";
import { RunsOn } from "./runs_on";

interface Props {
	model: ModelData;
	/** The picture of the whole model, on phones between the name and the facts. */
	skyline?: ComponentChildren;
	/** The picture beside the sheet; on phones below it. */
	plate?: ComponentChildren;
}

export function Hero({ model, skyline, plate }: Props) {
	return (
		<div class={`wrap hero ${plate ? "with-plate" : ""}`}>
			<div class="sheet" data-numbers>
				<Intro model={model} />
				{skyline && <div class="hero-skyline">{skyline}</div>}
				<FactRows model={model} />
				<div class="sheet-foot">
					<RunsOn model={model} />
					<Source model={model} />
				</div>
			</div>
			{plate && <div class="hero-plate">{plate}</div>}
		</div>
	);
}
