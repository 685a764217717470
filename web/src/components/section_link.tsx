// A link to a section of this page in its present state; Back returns to where one came from.
import type { ComponentChildren } from "preact";
import { change, linkTo, useAppState } from "../lib/state";
import { drawAtOnce } from "../lib/printing";
import { takeAllTurns } from "../lib/turns";

/** Scrolls to a section and moves the focus to its heading. */
export function showSection(id: string): void {
	takeAllTurns();
	const section = document.getElementById(id);
	// of a part that shows its finding alone, all is drawn first
	const head = ":scope > .wrap > .section-head";
	drawAtOnce(() => section?.querySelector<HTMLElement>(`${head} .unfold`)?.click());
	section?.scrollIntoView();
	(document.getElementById(`${id}-title`) ?? section)?.focus({ preventScroll: true });
}

interface Props {
	id: string;
	/** Called before the section is shown. */
	onFollow?: () => void;
	children: ComponentChildren;
}

export function SectionAnchor({ id, onFollow, children }: Props) {
	useAppState();
	const follow = (event: MouseEvent) => {
		if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
		event.preventDefault();
		onFollow?.();
		change({ section: id });
		showSection(id);
	};
	return (
		<a href={linkTo(id)} onClick={follow}>
			{children}
		</a>
	);
}
