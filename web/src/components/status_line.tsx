// Short messages below the header, which screen readers hear: what was copied or saved, and what
// an address asks for in vain.
import { useState } from "preact/hooks";

const SHOWN_MS = 6000;
const MS_OF_A_CHARACTER = 60;
let said = "";
let show: (text: string) => void = () => {};
let timer = 0;

/** Shows a text for as long as it takes to be read. */
export function announce(text: string): void {
	clearTimeout(timer);
	show((said = text));
	timer = setTimeout(
		() => show((said = "")),
		Math.max(SHOWN_MS, MS_OF_A_CHARACTER * text.length),
	);
}

export function StatusLine() {
	const [text, setText] = useState(said);
	show = setText;
	return (
		<p class="status-line" role="status">
			{text || null}
		</p>
	);
}
