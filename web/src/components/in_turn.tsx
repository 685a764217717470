// A section that is drawn in its turn, after the first screen: until then its place is kept, and
// links find it. What it shows of another model waits, too, where it is not on the screen.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Place, PlaceOfSection } from "../lib/place";
import { waitForTurn } from "../lib/turns";

export function InTurn({ id, children }: { id: string; children: ComponentChildren }) {
	const [isDrawn, setDrawn] = useState(false);
	const [place] = useState(() => new Place());
	const [, redraw] = useState({});
	const newest = useRef(children);
	newest.current = children;
	const shown = useRef(children);
	if (place.isNear) shown.current = children;
	const [catchUp] = useState(() => () => {
		shown.current = newest.current;
		redraw({});
	});
	useLayoutEffect(() => waitForTurn(() => setDrawn(true)), []);
	useLayoutEffect(() => {
		if (shown.current !== children) place.draw(catchUp);
	}, [children]);
	useEffect(() => (isDrawn ? place.watch(document.getElementById(id)!) : undefined), [isDrawn]);
	if (!isDrawn) return <section id={id} class="waiting" />;
	return <PlaceOfSection.Provider value={place}>{shown.current}</PlaceOfSection.Provider>;
}
