// Short messages below the header, which screen readers hear: what was copied or saved.
import { useState } from "preact/hooks";

let show: (text: string) => void = () => {};
let timer = 0;

export function announce(text: string): void {
	clearTimeout(timer);
	show(text);
	timer = setTimeout(() => show(""), 6000);
}

export function StatusLine() {
	const [text, setText] = useState("");
	show = setText;
	return (
		<p class="status-line" role="status">
			{text || null}
		</p>
	);
}
