// Light or dark: the reader's choice, else the system's; forced colours are the system's.
import { state } from "./state";

const dark = matchMedia("(prefers-color-scheme: dark)");
const forced = matchMedia("(forced-colors: active)");

export const shownTheme = (): string =>
	(!forced.matches && state.theme) || (dark.matches ? "dark" : "light");

export function applyTheme(): void {
	document.documentElement.dataset.theme = shownTheme();
}

for (const x of [dark, forced]) x.addEventListener("change", applyTheme);
