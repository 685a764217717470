// The views of a page that runs its model, for the page's own components.
import { liveViews } from "../../lib/live_views";
import { LiveBar } from "./live_bar";
import { WithLiveMarks } from "./live_marks";
import { LiveMatrix } from "./live_matrix";
import { LiveSection, RunsHere } from "./live_section";
import { RunFile } from "./run_file";
import { useStory } from "./story";
import { TourTokens, TourValues } from "./tour_values";

Object.assign(liveViews, {
	Bar: LiveBar,
	Section: LiveSection,
	RunsHere,
	WithMarks: WithLiveMarks,
	Matrix: LiveMatrix,
	RunFile,
	TourTokens,
	TourValues,
	useLength: (model) => useStory(model)?.length ?? 0,
} satisfies Required<typeof liveViews>);
