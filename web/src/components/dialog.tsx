// The one dialog of the page: the derivation of a number, the keyboard help, or anything else that
// is asked for.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

interface Content {
	title: string;
	body: ComponentChildren;
}

let show: (content: Content | null) => void = () => {};

export function openDialog(title: string, body: ComponentChildren): void {
	show({ title, body });
}

export const closeDialog = () => show(null);

/** Draws the dialog that `openDialog` opens; the page has one. */
export function DialogHost() {
	const [content, setContent] = useState<Content | null>(null);
	const ref = useRef<HTMLDialogElement>(null);
	show = setContent;
	useLayoutEffect(() => {
		if (content && !ref.current!.open) ref.current!.showModal();
	}, [content]);
	if (!content) return null;
	const closeOnBackdrop = (event: MouseEvent) =>
		event.target === ref.current && ref.current!.close();
	return (
		<>
			<dialog
				ref={ref}
				aria-labelledby="dialog-title"
				onClose={() => ref.current?.open || setContent(null)}
				onClick={closeOnBackdrop}
			>
				<h2 id="dialog-title">{content.title}</h2>
				<div class="dialog-body">{content.body}</div>
				<button type="button" class="button" onClick={() => ref.current!.close()}>
					Close
				</button>
			</dialog>
			{/* a modal dialog would cover the first page: paper gets its contents below the page */}
			<div class="printed wrap">
				<h2>{content.title}</h2>
				<div class="dialog-body">{content.body}</div>
			</div>
		</>
	);
}
