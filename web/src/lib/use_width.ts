import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** The width of an element in CSS pixels; pictures are laid out for it, never scaled to it. */
export function useWidth<E extends Element>(initial = 1000) {
	const ref = useRef<E>(null);
	const [width, setWidth] = useState(initial);
	useLayoutEffect(() => {
		const element = ref.current!;
		setWidth(Math.round(element.getBoundingClientRect().width));
		const observer = new ResizeObserver(([entry]) => setWidth(Math.round(entry!.contentRect.width)));
		observer.observe(element);
		return () => observer.disconnect();
	}, []);
	return [ref, width] as const;
}
