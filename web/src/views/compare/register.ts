// The comparison of a page of two models, for the page's own components.
import { comparisonView } from "../../lib/comparison_view";
import { COMPARISON_CHAPTERS, ComparisonPage } from "../comparison_page";

Object.assign(comparisonView, {
	Page: ComparisonPage,
	chapters: COMPARISON_CHAPTERS,
} satisfies Required<typeof comparisonView>);
