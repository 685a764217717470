// Roving tabindex: one tab stop for many elements; arrow keys, Home and End move between them.
import { useState } from "preact/hooks";

const STEPS: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** Where a key leads from the i-th of `count` elements; undefined where it leads nowhere. */
export function placeAfter(key: string, i: number, count: number): number | undefined {
	const next = key === "Home" ? 0 : key === "End" ? count - 1 : i + (STEPS[key] ?? Number.NaN);
	return next >= 0 && next < count ? next : undefined;
}

/**
 * Properties for the i-th of `count` elements, which have to be descendants of the element that
 * `[data-roving]` marks.
 */
export function useRoving(count: number) {
	const [current, setCurrent] = useState(0);
	const shown = Math.min(current, count - 1);
	const onKeyDown = (event: KeyboardEvent) => {
		const all = [
			...(event.currentTarget as Element)
				.closest("[data-roving]")!
				.querySelectorAll<HTMLElement>("[data-rover]"),
		];
		const next = placeAfter(
			event.key,
			all.indexOf(event.currentTarget as HTMLElement),
			all.length,
		);
		if (next === undefined) return;
		event.preventDefault();
		all[next]!.focus();
	};
	return (i: number) => ({
		tabindex: i === shown ? 0 : -1,
		"data-rover": i,
		onFocus: () => setCurrent(i),
		onKeyDown,
	});
}

/** Lets Enter and Space act on an SVG element as on a button. */
export const onActivate = (act: () => void) => (event: KeyboardEvent) => {
	if (event.key !== "Enter" && event.key !== " ") return;
	event.preventDefault();
	act();
};
