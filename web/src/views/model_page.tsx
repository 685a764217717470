// The page of one model: the first screen, then three chapters under one bar of settings.
import type { ComponentChildren } from "preact";
import {
	Chapter,
	Part,
	type ChapterLink,
	type Fold,
	type SectionLink,
} from "../components/section";
import { InTurn } from "../components/in_turn";
import type { ModelData } from "../lib/data";
import { liveOf, liveViews } from "../lib/live_views";
import { isTiny, SIZING_SETTINGS } from "../lib/sizing/fit";
import { useAppState } from "../lib/state";
import { AttentionSection } from "./attention/attention";
import { needsFinding, sizeFinding, worksFinding } from "./chapter_findings";
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

interface PagePart extends SectionLink {
	/** Whether a model has this part; without it every model does. */
	isShown?: (model: ModelData) => boolean;
	fold?: Fold;
	/** Whether it says little of a model whose steps are so short that their bounds mean little. */
	isMinorIfTiny?: boolean;
	draw: (model: ModelData) => ComponentChildren;
}

interface PageChapter extends ChapterLink {
	parts: readonly PagePart[];
	Finding: (props: { model: ModelData }) => ComponentChildren;
}

function NeedsFinding({ model }: { model: ModelData }) {
	return needsFinding(model, useAppState(...SIZING_SETTINGS));
}

const CHAPTERS: readonly PageChapter[] = [
	{
		id: "how-it-works",
		name: "How it works",
		Finding: ({ model }) => worksFinding(model),
		parts: [
			{
				id: "live",
				name: "At work",
				fold: "on phones",
				isShown: (model) => liveOf(model) !== null,
				draw: (model) => liveViews.Section && <liveViews.Section model={model} />,
			},
			{
				id: "attention",
				name: "Attention",
				fold: "on phones",
				isShown: (model) => (model.attention as { kinds: unknown[] }).kinds.length > 0,
				draw: (model) => <AttentionSection model={model} />,
			},
			{
				id: "experts",
				name: "Experts",
				fold: "on phones",
				isShown: (model) => model.experts !== null,
				draw: (model) => <ExpertsSection model={model} />,
			},
			{
				id: "positions",
				name: "RoPE",
				fold: "always",
				isShown: (model) => (model.attention as { ropes: unknown[] }).ropes.length > 0,
				draw: (model) => <PositionsSection model={model} />,
			},
		],
	},
	{
		id: "how-large",
		name: "How large",
		Finding: ({ model }) => sizeFinding(model),
		parts: [
			{ id: "parameters", name: "Parameters", draw: (model) => <Parameters model={model} /> },
			{
				id: "tensors",
				name: "Tensors",
				fold: "always",
				draw: (model) => <Tensors model={model} />,
			},
		],
	},
	{
		id: "what-it-needs",
		name: "What it needs",
		Finding: NeedsFinding,
		parts: [
			{
				id: "hardware",
				name: "Hardware",
				isMinorIfTiny: true,
				draw: (model) => <HardwareSection model={model} />,
			},
			{
				id: "memory",
				name: "Memory",
				fold: "on phones",
				isMinorIfTiny: true,
				draw: (model) => <MemorySection models={[model]} />,
			},
			{
				id: "speed",
				name: "Speed",
				fold: "always",
				isMinorIfTiny: true,
				draw: (model) => <SpeedSection model={model} />,
			},
			{
				id: "layouts",
				name: "Layouts",
				fold: "always",
				isShown: (model) => !!model.parallel,
				isMinorIfTiny: true,
				draw: (model) => <LayoutsSection model={model} />,
			},
		],
	},
];

const WHY_MINOR =
	"With less than 10 MB of weights it fits on each of these GPUs. The bounds leave out kernel " +
	"launches, which may be most of so short a step.";

export const chaptersOf = (model: ModelData): readonly PageChapter[] =>
	CHAPTERS.map((x) => ({ ...x, parts: x.parts.filter((y) => y.isShown?.(model) ?? true) }));

export function ModelPage({ model }: { model: ModelData }) {
	const barHeight = liveViews.Bar ? 36 : 60;
	const isSmall = isTiny(model);
	return (
		<>
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
			<div class="sized">
				<SettingsBar models={[model]} />
				{chaptersOf(model).map(({ Finding, ...chapter }) => (
					<Chapter
						key={chapter.id}
						{...chapter}
						title={<Finding model={model} />}
						lead={isSmall && chapter.parts.some((x) => x.isMinorIfTiny) && WHY_MINOR}
					>
						{chapter.parts.map((x) => (
							<InTurn key={x.id} id={x.id}>
								<Part fold={isSmall && x.isMinorIfTiny ? "always" : x.fold}>
									{x.draw(model)}
								</Part>
							</InTurn>
						))}
					</Chapter>
				))}
			</div>
		</>
	);
}
