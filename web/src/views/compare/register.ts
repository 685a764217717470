// The comparison of a page of two models, for the page's own components.
import { comparisonView } from "../../lib/comparison_view";
import { COMPARISON_SECTIONS, ComparisonPage } from "../comparison_page";

Object.assign(comparisonView, {
	Page: ComparisonPage,
	sections: COMPARISON_SECTIONS,
} satisfies Required<typeof comparisonView>);
