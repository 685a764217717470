// The comparison of two models. The script of a page of two fills it in before the page is drawn;
// other pages have none.
import type { ComponentType } from "preact";
import type { ChapterLink } from "../components/section";

interface ComparisonView {
	Page: ComponentType;
	chapters: readonly ChapterLink[];
}

export const comparisonView: Partial<ComparisonView> = {};
