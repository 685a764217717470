// Where a component stands: in a section that is on the screen, changes are drawn at once, and
// elsewhere in a turn of their own.
import { createContext } from "preact";
import { waitForTurn } from "./turns";

/** How far beyond the screen sections follow at once, so that none is seen before it is drawn. */
const MARGIN = "50%";

export class Place {
	isNear = true;
	private readonly waiting = new Set<() => void>();

	/** Draws a change, now or in a turn. */
	draw(redraw: () => void): void {
		if (this.isNear) return redraw();
		this.waiting.add(redraw);
		waitForTurn(this.drawWaiting);
	}

	/** Looks whether an element is on the screen; returns a function that stops it. */
	watch(element: Element): () => void {
		const observer = new IntersectionObserver(
			(entries) => {
				this.isNear = entries.at(-1)!.isIntersecting;
				if (this.isNear) this.drawWaiting();
			},
			{ rootMargin: MARGIN },
		);
		observer.observe(element);
		return () => {
			observer.disconnect();
			this.isNear = true;
		};
	}

	private readonly drawWaiting = () => {
		for (const redraw of this.waiting) {
			this.waiting.delete(redraw);
			redraw();
		}
	};
}

/** The place of a section; what is in none stands where it is always seen. */
export const PlaceOfSection = createContext(new Place());
