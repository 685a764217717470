// A section that is drawn in its turn, after the first screen: until then its place is kept, and
// links find it.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { Place, PlaceOfSection } from "../lib/place";
import { waitForTurn } from "../lib/turns";

export function InTurn({ id, children }: { id: string; children: ComponentChildren }) {
	const [isDrawn, setDrawn] = useState(false);
	const [place] = useState(() => new Place());
	useLayoutEffect(() => waitForTurn(() => setDrawn(true)), []);
	useEffect(() => (isDrawn ? place.watch(document.getElementById(id)!) : undefined), [isDrawn]);
	if (!isDrawn) return <section id={id} class="waiting" />;
	return <PlaceOfSection.Provider value={place}>{children}</PlaceOfSection.Provider>;
}
