// Whether the window matches a media query, for parts whose place depends on its width; paper is
// narrower than any wide window and wider than any phone.
import { useLayoutEffect, useState } from "preact/hooks";
import { usePrintedState } from "./printing";

/** Below this width, parts stand below each other and most sections begin folded. */
export const IS_PHONE = "(max-width: 620px)";

export function useMedia(query: string): boolean {
	const [list] = useState(() => matchMedia(query));
	const [matches, set] = usePrintedState(() => list.matches, false);
	useLayoutEffect(() => {
		// a change while the browser lays the page out for paper would come too late
		const listener = () =>
			document.documentElement.dataset.medium !== "paper" && set(list.matches);
		list.addEventListener("change", listener);
		return () => list.removeEventListener("change", listener);
	}, []);
	return matches;
}
