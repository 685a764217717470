import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** The width of an element in CSS pixels; pictures are laid out for it, never scaled to it. */
export function useWidth<E extends Element>(initial = 1000) {
	const ref = useRef<E>(null);
	const [width, setWidth] = useState(initial);
	useLayoutEffect(() => {
		const element = ref.current!;
		// an element that is not shown has no width: the last one stands
		const set = (n: number) => n && setWidth(Math.round(n));
		set(element.getBoundingClientRect().width);
		const observer = new ResizeObserver(([entry]) => set(entry!.contentRect.width));
		observer.observe(element);
		return () => observer.disconnect();
	}, []);
	return [ref, width] as const;
}
