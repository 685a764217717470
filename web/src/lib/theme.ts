// Light or dark: the reader's choice, else the system's; forced colours are the system's.
import { whilePrinting } from "./printing";
import { state } from "./state";

const dark = matchMedia("(prefers-color-scheme: dark)");
const forced = matchMedia("(forced-colors: active)");

export const shownTheme = (): "light" | "dark" =>
	(!forced.matches && state.theme) || (dark.matches ? "dark" : "light");

const listeners = new Set<() => void>();

/** Calls a function when another theme is shown; returns a function that stops it. */
export function onTheme(listener: () => void): () => void {
	listeners.add(listener);
	return () => void listeners.delete(listener);
}

function show(theme: string): void {
	const { dataset } = document.documentElement;
	if (dataset.theme === theme) return;
	dataset.theme = theme;
	for (const x of listeners) x();
}

export const applyTheme = (): void => show(shownTheme());

/** Calls `make` with the page in a theme. */
export function inTheme<T>(theme: string, make: () => T): T {
	document.documentElement.dataset.theme = theme;
	try {
		return make();
	} finally {
		applyTheme();
	}
}

for (const x of [dark, forced]) x.addEventListener("change", applyTheme);
// paper is white
whilePrinting(() => show("light"), applyTheme);
