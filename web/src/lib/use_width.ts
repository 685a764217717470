import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { whilePrinting } from "./printing";

const measures = new Set<() => void>();

/**
 * The width of an element in CSS pixels, 0 before it is known; pictures are laid out for it, never
 * scaled to it.
 */
export function useWidth<E extends Element>() {
	const ref = useRef<E>(null);
	const [width, setWidth] = useState(0);
	useLayoutEffect(() => {
		const element = ref.current!;
		// an element that is not shown has no width: the last one stands
		const set = (n: number) => n && setWidth(Math.round(n));
		// on paper the page is zoomed, and pictures are laid out in its own pixels
		const zoomed = element as { currentCSSZoom?: number };
		const measure = () =>
			set(element.getBoundingClientRect().width / (zoomed.currentCSSZoom ?? 1));
		measure();
		measures.add(measure);
		const observer = new ResizeObserver(([entry]) => set(entry!.contentRect.width));
		observer.observe(element);
		return () => {
			measures.delete(measure);
			observer.disconnect();
		};
	}, []);
	return [ref, width] as const;
}

/** Pictures are laid out again for the width of paper. */
function drawFor(medium: "paper" | "screen"): void {
	document.documentElement.dataset.medium = medium;
	for (const measure of measures) measure();
}

whilePrinting(
	() => drawFor("paper"),
	() => drawFor("screen"),
);
