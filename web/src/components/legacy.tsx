// Hosts a view that is drawn without Preact: an object with its element and a function that draws it again.
import "../legacy/legacy.css";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { useAppState } from "../lib/state";

interface PlainView {
	element: Element;
	draw?: () => void;
}

export function Legacy({ make }: { make: () => PlainView }) {
	useAppState();
	const ref = useRef<HTMLDivElement>(null);
	const view = useMemo(make, []);
	useLayoutEffect(() => ref.current!.replaceChildren(view.element), [view]);
	useLayoutEffect(() => view.draw?.());
	return <div ref={ref} class="legacy" />;
}
