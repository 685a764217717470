// Printing: a browser prints what is drawn when the event `beforeprint` ends, so changes are drawn
// at once.
import { options } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";

/** Draws what `change` changes before it returns. */
export function drawAtOnce(change: () => void): void {
	const { debounceRendering } = options;
	options.debounceRendering = (draw) => draw();
	try {
		change();
	} finally {
		options.debounceRendering = debounceRendering;
	}
}

/** A state that has another value on paper, if one is given, and its own one again afterwards. */
export function usePrintedState<T>(initial: () => T, printed: T | undefined) {
	const [value, set] = useState(initial);
	useLayoutEffect(() => {
		let own: { value: T } | null = null;
		return whilePrinting(
			() =>
				set((now) => {
					own ??= { value: now };
					return printed ?? now;
				}),
			() => {
				const before = own;
				own = null;
				if (before) set(() => before.value);
			},
		);
	}, []);
	return [value, set] as const;
}

/**
 * Calls `start` before the page is printed and `end` after it; returns a function that stops both.
 */
export function whilePrinting(start: () => void, end: () => void): () => void {
	const [before, after] = [() => drawAtOnce(start), () => drawAtOnce(end)];
	addEventListener("beforeprint", before);
	addEventListener("afterprint", after);
	return () => {
		removeEventListener("beforeprint", before);
		removeEventListener("afterprint", after);
	};
}
