// The button that changes between the light and the dark theme.
import { useEffect } from "preact/hooks";
import { change, useAppState } from "../lib/state";
import { applyTheme, shownTheme } from "../lib/theme";

export function ThemeButton() {
	const { theme } = useAppState("theme");
	useEffect(applyTheme, [theme]);
	const other = shownTheme() === "dark" ? "light" : "dark";
	return (
		<button
			type="button"
			class="button icon"
			aria-label={other === "light" ? "Light theme" : "Dark theme"}
			onClick={() => change({ theme: other })}
		>
			<svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">
				<circle cx="7" cy="7" r="6" fill="none" stroke="currentColor" stroke-width="1.6" />
				<path d="M7 1a6 6 0 0 1 0 12z" fill="currentColor" />
			</svg>
		</button>
	);
}
