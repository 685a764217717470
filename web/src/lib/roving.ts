// Roving tabindex: one tab stop for many elements; arrow keys, Home and End move between them.
import { useState } from "preact/hooks";

const STEPS: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** Properties for the i-th of `count` elements, which have to be descendants of the element that `[data-roving]` marks. */
export function useRoving(count: number) {
	const [current, setCurrent] = useState(0);
	const shown = Math.min(current, count - 1);
	const onKeyDown = (event: KeyboardEvent) => {
		const all = [...(event.currentTarget as Element).closest("[data-roving]")!.querySelectorAll<HTMLElement>("[data-rover]")];
		const at = all.indexOf(event.currentTarget as HTMLElement);
		const next = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : at + (STEPS[event.key] ?? Number.NaN);
		if (!all[next]) return;
		event.preventDefault();
		all[next].focus();
	};
	return (i: number) => ({ tabindex: i === shown ? 0 : -1, "data-rover": i, onFocus: () => setCurrent(i), onKeyDown });
}

/** Lets Enter and Space act on an SVG element as on a button. */
export const onActivate = (act: () => void) => (event: KeyboardEvent) => {
	if (event.key !== "Enter" && event.key !== " ") return;
	event.preventDefault();
	act();
};
