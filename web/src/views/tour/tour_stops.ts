// The stops of the tour, as src/llamath/analysis/learn/tour writes them, and which one is shown.
import { createContext } from "preact";
import type { ModelData } from "../../lib/data";
import type { Question } from "../../lib/question";

/** As src/llamath/web/page_data/live/tour_example.py writes it. */
export interface Example {
	/** The model in which it is computed. */
	in: string;
	/** Why it is another model, or another layer of it, than at the other stops; else empty. */
	turn: string;
	says: string;
	/** Of the map of attention, the tokens. */
	columns: string[];
	/** Of the map, the percents of each token. */
	rows: string[][];
	/** One output as the sum of its products. */
	product?: string;
}

export interface TourStop {
	name: string;
	title: string;
	what: string;
	why: string;
	/** Empty if there is none. */
	formula: string;
	/** A layer, or the embedding or head; empty if a token of text does not pass it. */
	place: string;
	steps: string[];
	shapes: { name: string; letters: string; numbers: string }[];
	/** Lines that follow each other, after the number of the first one. */
	code: [line: number, ...texts: string[]][];
	/** What it adds to the count, in letters and numbers; empty if that is too long to be read. */
	symbols: string;
	numbers: string;
	adds: string;
	so_far: string;
	/** The same step in numbers, or null. */
	example: Example | null;
	questions: Question[];
}

/** The stops; none of a model without a known forward pass. */
export const tourOf = (model: ModelData): TourStop[] => (model.tour as TourStop[]) ?? [];

/** The index of the stop that the address asks for; null if there is none. */
export function stopAt(model: ModelData, tour: number | null): number | null {
	return tour !== null && tour - 1 in tourOf(model) ? tour - 1 : null;
}

export const NO_STEPS: ReadonlySet<string> = new Set();
/** The steps that the tour lights in the picture. */
export const LitSteps = createContext(NO_STEPS);
