// The config.json of an edited model as text, whose lines are checked while they are typed.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { copyText } from "../../components/export/clipboard";
import { data } from "../../lib/data";
import { encodeEdit, type Edited } from "../../lib/editing";
import { encodeKeys, keepTyped } from "../../lib/files/config";
import { brokenRules, readTyped, type LineNote } from "../../lib/files/config_notes";
import type { FormatData } from "../../lib/files/headers";
import { change, state, useAppState } from "../../lib/state";

const REST_MS = 150;
/** Scrolls to the first marked line, unless that would move the line that is being typed. */
function showMarked(numbers: HTMLElement): void {
	const field = numbers.nextElementSibling as HTMLTextAreaElement;
	const line = field.value.slice(0, field.selectionStart).split("\n").length - 1;
	const box = numbers.parentElement!.getBoundingClientRect();
	const [top, bottom] = [Math.max(box.top, 0), Math.min(box.bottom, innerHeight)];
	const typed = numbers.children[line]!.getBoundingClientRect();
	const isTyping = document.activeElement === field && typed.top >= top && typed.bottom <= bottom;
	if (!isTyping) numbers.querySelector(".marked")?.scrollIntoView({ block: "center" });
}

/** Puts the caret at a line of the text. */
export function goToLine(line: number): void {
	const field = document.getElementById("config-text") as HTMLTextAreaElement;
	const at = field.value.split("\n", line).join("\n").length + Math.min(line, 1);
	field.focus({ preventScroll: true });
	field.setSelectionRange(at, at);
	const numbers = field.previousElementSibling!;
	numbers.children[line]?.scrollIntoView({ block: "center" });
}

/** The config.json as text: the last sound state stays while a line is half typed. */
export function ConfigText({
	edited,
	notes,
	setNotes,
}: {
	edited: Edited;
	notes: readonly LineNote[];
	setNotes: (notes: readonly LineNote[]) => void;
}) {
	const { design, original, counts, dimensions } = edited;
	const [text, setText] = useState(counts.config);
	const { keys } = useAppState("keys");
	const now = `${encodeEdit(design, dimensions)} ${keys}`;
	const typed = useRef(now);
	const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
	useEffect(() => {
		// a slider, a question or Back has changed what the text should say
		if (now === typed.current) return;
		typed.current = now;
		setText(counts.config);
		setNotes(brokenRules(counts.config, design, dimensions));
	}, [now]);
	useEffect(() => {
		setNotes(brokenRules(text, design, dimensions));
		return () => setNotes([]);
	}, []);
	const read = (content: string) => {
		const found = readTyped(content, design, original.name, data.files as FormatData);
		setNotes(found.notes);
		if (!found.dimensions) return;
		const sizes = encodeEdit(design, found.dimensions);
		const keys = encodeKeys(found.others, design);
		typed.current = `${sizes} ${keys}`;
		keepTyped(state.view === "b" ? "b" : "a", sizes, found.others);
		change({ sizes, keys });
	};
	const type = (content: string) => {
		setText(content);
		clearTimeout(timer.current);
		timer.current = setTimeout(() => read(content), REST_MS);
	};
	const lines = text.split("\n");
	const marked = notes[0]?.line;
	const numbers = useRef<HTMLDivElement>(null);
	useLayoutEffect(() => {
		if (marked !== undefined) showMarked(numbers.current!);
	}, [marked]);
	const noted = new Map(notes.map((x) => [x.line, x]));
	return (
		<div class="config-text">
			<button type="button" class="button" onClick={() => copyText(text, "config.json")}>
				Copy config.json
			</button>
			<div class="config-lines" aria-hidden="true" ref={numbers}>
				{lines.map((_, i) => (
					<span key={i} class={noted.has(i) ? "marked" : undefined}>
						{i + 1}
					</span>
				))}
			</div>
			<textarea
				id="config-text"
				aria-label="config.json"
				aria-invalid={notes.length > 0}
				aria-describedby="config-notes"
				spellcheck={false}
				wrap="off"
				rows={lines.length}
				value={text}
				onInput={(event) => type(event.currentTarget.value)}
			/>
			{edited.opened && (
				<p class="caption">Keys that change no weight are those of {edited.opened}.</p>
			)}
		</div>
	);
}
