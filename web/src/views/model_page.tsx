// The page of one model: the first screen, then a section per question.
import type { ComponentChildren } from "preact";
import type { SectionLink } from "../components/header";
import { InTurn } from "../components/in_turn";
import type { ModelData } from "../lib/data";
import { liveOf, liveViews } from "../lib/live_views";
import { isTiny } from "../lib/sizing/fit";
import { Minor } from "../components/section";
import { AttentionSection } from "./attention/attention";
import { ExpertsSection } from "./experts/experts";
import { Hero } from "./facts/hero";
import { HardwareSection } from "./hardware/hardware";
import { LayoutsSection } from "./layouts/layouts";
import { MemorySection } from "./memory/memory";
import { SettingsBar } from "./memory/settings_bar";
import { Parameters } from "./parameters/parameters";
import { Plate, PlateSkyline } from "./plate/plate";
import { PositionsSection } from "./positions/positions";
import { SpeedSection } from "./speed/speed";
import { Tensors } from "./tensors/tensors";
import { WholeFields } from "./quiz/fields";
import { QuizBar, QuizButton, WithQuiz } from "./quiz/quiz";
import { Tour, TourButton, WithTour } from "./tour/tour";

interface PageSection extends SectionLink {
	/** Whether a model has this section; without it every model does. */
	isShown?: (model: ModelData) => boolean;
	/** Whether it follows the bar of settings. */
	isSized?: boolean;
	draw: (model: ModelData) => ComponentChildren;
}

const SECTIONS: readonly PageSection[] = [
	{
		id: "live",
		name: "At work",
		isShown: (model) => liveOf(model) !== null,
		draw: (model) => liveViews.Section && <liveViews.Section model={model} />,
	},
	{ id: "parameters", name: "Parameters", draw: (model) => <Parameters model={model} /> },
	{
		id: "hardware",
		name: "Hardware",
		isSized: true,
		draw: (model) => <HardwareSection model={model} />,
	},
	{
		id: "memory",
		name: "Memory",
		isSized: true,
		draw: (model) => <MemorySection models={[model]} />,
	},
	{ id: "speed", name: "Speed", isSized: true, draw: (model) => <SpeedSection model={model} /> },
	{
		id: "layouts",
		name: "Layouts",
		isShown: (model) => !!model.parallel,
		draw: (model) => <LayoutsSection model={model} />,
	},
	{
		id: "attention",
		name: "Attention",
		isShown: (model) => (model.attention as { kinds: unknown[] }).kinds.length > 0,
		draw: (model) => <AttentionSection model={model} />,
	},
	{
		id: "positions",
		name: "RoPE",
		isShown: (model) => (model.attention as { ropes: unknown[] }).ropes.length > 0,
		draw: (model) => <PositionsSection model={model} />,
	},
	{
		id: "experts",
		name: "Experts",
		isShown: (model) => model.experts !== null,
		draw: (model) => <ExpertsSection model={model} />,
	},
	{ id: "tensors", name: "Tensors", draw: (model) => <Tensors model={model} /> },
];

const OF_TINY_MODELS = {
	sections: ["hardware", "memory", "speed", "layouts"],
	why: "With less than 10 MB of weights it fits on each of these GPUs; these bounds leave out the launching of kernels, which may be most of so short a step.",
};

export const sectionsOf = (model: ModelData): readonly PageSection[] =>
	SECTIONS.filter((x) => x.isShown?.(model) ?? true);

export function ModelPage({ model }: { model: ModelData }) {
	const all = sectionsOf(model);
	const first = all.findIndex((x) => x.isSized);
	const end = all.findLastIndex((x) => x.isSized) + 1;
	const barHeight = liveViews.Bar ? 36 : 72;
	const drawn = (sections: readonly PageSection[]) =>
		sections.map((x) => (
			<InTurn key={x.id} id={x.id}>
				{x.draw(model)}
			</InTurn>
		));
	return (
		<Minor.Provider value={isTiny(model) ? OF_TINY_MODELS : { sections: [], why: "" }}>
			<WithQuiz model={model}>
				<Hero
					model={model}
					skyline={<PlateSkyline model={model} barHeight={barHeight} />}
					live={liveViews.Bar && <liveViews.Bar model={model} />}
					plate={
						<>
							<WithTour model={model}>
								<Plate
									model={model}
									tour={
										<span class="plate-modes">
											<TourButton model={model} />
											<QuizButton model={model} />
										</span>
									}
									whole={
										<div class="plate-whole-wide">
											<PlateSkyline
												model={model}
												barHeight={barHeight}
												hasLens
											/>
											<WholeFields />
										</div>
									}
								/>
							</WithTour>
							<Tour model={model} />
							<QuizBar />
						</>
					}
				/>
			</WithQuiz>
			{drawn(all.slice(0, first))}
			<div class="sized">
				<SettingsBar model={model} />
				{drawn(all.slice(first, end))}
			</div>
			{drawn(all.slice(end))}
		</Minor.Provider>
	);
}
