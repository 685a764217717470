// The comparison of two models. The script of a page of two fills it in before the page is drawn;
// other pages have none.
import type { ComponentType } from "preact";
import type { SectionLink } from "../components/header";

interface ComparisonView {
	Page: ComponentType;
	sections: readonly SectionLink[];
}

export const comparisonView: Partial<ComparisonView> = {};
