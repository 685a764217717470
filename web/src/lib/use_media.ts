// Whether the window matches a media query, for parts whose place depends on its width.
import { useLayoutEffect, useState } from "preact/hooks";

export function useMedia(query: string): boolean {
	const [list] = useState(() => matchMedia(query));
	const [matches, set] = useState(list.matches);
	useLayoutEffect(() => {
		const listener = () => set(list.matches);
		list.addEventListener("change", listener);
		return () => list.removeEventListener("change", listener);
	}, []);
	return matches;
}
