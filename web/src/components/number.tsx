// A number that opens its derivation.
import type { ComponentChildren } from "preact";
import type { Derivation } from "../lib/derivation";
import { openDialog } from "./dialog";

export function openDerivation({ title, lines }: Derivation): void {
	openDialog(title, lines.flat(2).filter(Boolean).map((x) => (typeof x === "string" ? <p>{x}</p> : x)));
}

interface Props {
	/** Called when the number is chosen, not before. */
	derive: () => Derivation;
	/** What the number is, for those who hear the page: "4,096" alone says nothing. */
	label: string;
	children: ComponentChildren;
	/** −1 where another element of the same group is the tab stop. */
	tabIndex?: number;
	[attribute: `data-${string}`]: string | undefined;
}

export function NumberButton({ derive, label, children, ...rest }: Props) {
	return (
		<button type="button" class="number" aria-haspopup="dialog" onClick={() => openDerivation(derive())} {...rest}>
			<span class="hidden">{label}: </span>
			{children}
		</button>
	);
}
