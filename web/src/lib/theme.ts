// Light or dark: the reader's choice, else the system's.
import { state } from "./state";

const dark = matchMedia("(prefers-color-scheme: dark)");

export const shownTheme = (): string => state.theme || (dark.matches ? "dark" : "light");

export function applyTheme(): void {
	document.documentElement.dataset.theme = shownTheme();
}

dark.addEventListener("change", applyTheme);
