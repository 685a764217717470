// A small menu: a button that shows more buttons below it.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props {
	/** What the button shows, and what it is called. */
	text: string;
	label: string;
	/** How often another control has opened it. */
	opened?: number;
	/** Called when the menu opens. */
	children: (close: () => void) => ComponentChildren;
}

export function Menu({ text, label, opened = 0, children }: Props) {
	const [isOpen, setOpen] = useState(false);
	const ref = useRef<HTMLDivElement>(null);
	const close = () => {
		setOpen(false);
		ref.current?.querySelector("button")?.focus();
	};
	useLayoutEffect(() => {
		if (opened) setOpen(true);
	}, [opened]);
	useEffect(() => {
		if (!isOpen) return;
		const closeOutside = (event: Event) =>
			!ref.current?.contains(event.target as Node) && setOpen(false);
		addEventListener("pointerdown", closeOutside);
		return () => removeEventListener("pointerdown", closeOutside);
	}, [isOpen]);
	const onKeyDown = (event: KeyboardEvent) => {
		if (event.key === "Escape" && isOpen) {
			event.stopPropagation();
			close();
		}
	};
	return (
		<div class="export-menu no-print" ref={ref} onKeyDown={onKeyDown}>
			<button
				type="button"
				class="button icon"
				aria-expanded={isOpen}
				aria-label={label}
				onClick={() => setOpen(!isOpen)}
			>
				{text}
			</button>
			{isOpen && (
				<div class="export-items" role="group" aria-label={label}>
					{children(close)}
				</div>
			)}
		</div>
	);
}
