// Copying text to the clipboard, and saving files.
import { useEffect, useRef } from "preact/hooks";
import { openDialog } from "../dialog";
import { announce } from "../status_line";

/** The text, selected, for where there is no clipboard. */
function Selected({ text, title }: { text: string; title: string }) {
	const ref = useRef<HTMLTextAreaElement>(null);
	useEffect(() => ref.current!.select(), []);
	return (
		<>
			<p>The clipboard is not available: copy the selected text.</p>
			<textarea ref={ref} readOnly rows={12} aria-label={title} value={text} />
		</>
	);
}

export function copyText(text: string, title: string): void {
	const done = () => announce(`Copied: ${title}, ${text.length.toLocaleString("en")} characters`);
	(navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("no clipboard"))).then(
		done,
		() => openDialog(title, <Selected text={text} title={title} />),
	);
}

const safeName = (name: string) =>
	name
		.replace(/[^A-Za-z0-9._-]+/g, "-")
		.replace(/^[-.]+|[-.]+$/g, "")
		.slice(-80) || "llamath";

export function saveFile(name: string, content: string | Blob, type: string): void {
	const file = safeName(name);
	const address = URL.createObjectURL(
		typeof content === "string" ? new Blob([content], { type }) : content,
	);
	Object.assign(document.createElement("a"), { href: address, download: file }).click();
	setTimeout(() => URL.revokeObjectURL(address), 20_000);
	announce(`Saved: ${file}`);
}
