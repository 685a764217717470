// The tour or the quiz, while it is open, is named at the root: what gives way to it is styled by that
// name. A style that looks for the guide itself, by `:has`, costs time at every change of the page.
import { useLayoutEffect } from "preact/hooks";

export function useGuide(name: "quiz" | "tour"): void {
	useLayoutEffect(() => {
		const { dataset } = document.documentElement;
		dataset.guide = name;
		return () => {
			if (dataset.guide === name) delete dataset.guide;
		};
	}, []);
}
