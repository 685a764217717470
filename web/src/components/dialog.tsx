// The one dialog of the page: the derivation of a number, the keyboard help, or anything else that
// is asked for.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { addEntry, isElsewhere } from "../lib/state";

interface Content {
	title: string;
	body: ComponentChildren;
}

let show: (content: Content | null) => void = () => {};

/** The history has an entry for the open dialog, so that Back closes it. */
const ENTRY = "dialog";
/** Whether the entry of a dialog that was closed by other means is being left. */
let isLeaving = false;

export function openDialog(title: string, body: ComponentChildren): void {
	if (!isLeaving) addEntry(ENTRY);
	show({ title, body });
}

function leaveEntry(): void {
	if (isLeaving || history.state !== ENTRY) return;
	isLeaving = true;
	history.back();
}

/** Draws the dialog that `openDialog` opens; the page has one. */
export function DialogHost() {
	const [content, setContent] = useState<Content | null>(null);
	const ref = useRef<HTMLDialogElement>(null);
	show = setContent;
	useLayoutEffect(() => {
		if (content && !ref.current!.open) ref.current!.showModal();
	}, [content]);
	useLayoutEffect(() => {
		const listener = (event: PopStateEvent) => {
			const isOpen = ref.current?.open;
			// below the dialog the page is as it was
			if (isLeaving || (isOpen && !isElsewhere())) event.stopImmediatePropagation();
			if (!isLeaving) ref.current?.close();
			else if (isOpen) addEntry(ENTRY);
			isLeaving = false;
		};
		addEventListener("popstate", listener, true);
		return () => removeEventListener("popstate", listener, true);
	}, []);
	if (!content) return null;
	const closeOnBackdrop = (event: MouseEvent) =>
		event.target === ref.current && ref.current!.close();
	return (
		<>
			<dialog
				ref={ref}
				aria-labelledby="dialog-title"
				onClose={() => {
					if (ref.current?.open) return;
					setContent(null);
					leaveEntry();
				}}
				onClick={closeOnBackdrop}
			>
				<h2 id="dialog-title">{content.title}</h2>
				<div class="dialog-body">{content.body}</div>
				<p class="dialog-foot">
					<button type="button" class="button" onClick={() => ref.current!.close()}>
						Close
					</button>
				</p>
			</dialog>
			{/* a modal dialog would cover the first page: paper gets its contents below the page */}
			<div class="printed wrap">
				<h2>{content.title}</h2>
				<div class="dialog-body">{content.body}</div>
			</div>
		</>
	);
}
