// Where the focus goes when what had it is gone.

/** Moves the focus to an element of what is drawn next, without scrolling. */
export const focusNext = (selector: string): void =>
	void setTimeout(() => {
		const next = document.querySelector<HTMLElement>(selector);
		if (next?.tabIndex === -1) next.tabIndex = -1; // a heading takes the focus with this attribute
		next?.focus({ preventScroll: true });
	});
