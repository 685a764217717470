// The views of a page that runs its model. The script of such a page fills them in before the page is
// drawn; other pages have none.
import { createContext, h, type ComponentChildren, type ComponentType } from "preact";
import type { LiveData } from "../live/live_model";
import type { LayerLayout, Placed } from "../views/plate/layout";
import type { Step } from "../views/plate/plate_model";
import type { TourStop } from "../views/tour/tour_stops";
import type { ModelData } from "./data";
import type { Header } from "./files/headers";

interface LiveViews {
	/** The text, over the picture. */
	Bar: ComponentType<{ model: ModelData }>;
	Section: ComponentType<{ model: ModelData }>;
	/** That the model runs in its page, in words of its own or in these; else the children. */
	RunsHere: ComponentType<{
		model: ModelData;
		words?: ComponentChildren;
		children: ComponentChildren;
	}>;
	/** Gives the numbers of the opened layer to its picture. */
	WithMarks: ComponentType<{
		model: ModelData;
		open: number | string;
		children: ComponentChildren;
	}>;
	/** The values of a matrix or of a part of it, else the children. */
	Matrix: ComponentType<MatrixProps>;
	RunFile: ComponentType<{ model: ModelData; file: File; header: Header }>;
	TourTokens: ComponentType<{ model: ModelData }>;
	TourValues: ComponentType<{ model: ModelData; stop: TourStop }>;
	/** A hook: the number of tokens of the text; 0 before it is read. */
	useLength: (model: ModelData) => number;
}

/** Some rows (axis 0) or columns (axis 1) of a matrix. */
export interface MatrixProps {
	model: ModelData;
	layer: number;
	step: Step;
	width: number;
	part?: MatrixPart;
	/** Links to the heads, along the edge of the matrix. */
	heads?: ComponentChildren;
	children: ComponentChildren;
}

export interface MatrixPart {
	name: string;
	axis: number;
	start: number;
	size: number;
}

/** What is drawn on the picture of the opened layer. */
export interface LiveMarks {
	ofNode: (placed: Placed) => ComponentChildren;
	ofStream: (layout: LayerLayout) => ComponentChildren;
	/** The first numbers of a step's result. */
	ofStep: (name: string) => string;
}

export const liveViews: Partial<LiveViews> = {};
export const LiveMarksOfLayer = createContext<LiveMarks | null>(null);
/** That a model runs in its page, in these words or in others; else the children. */
export function orRunsHere(
	model: ModelData,
	words: ComponentChildren,
	children: ComponentChildren,
): ComponentChildren {
	const { RunsHere } = liveViews;
	return RunsHere && liveOf(model) ? h(RunsHere, { model, words, children }) : children;
}
export const liveOf = (model: ModelData): LiveData | null => (model.live as LiveData) ?? null;
