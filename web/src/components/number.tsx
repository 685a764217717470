// A number that opens its derivation.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { lettersIn, type Derivation } from "../lib/derivation";
import { joinNumbers, moveToNumber, stopHere } from "../lib/number_stop";
import { openDialog } from "./dialog";

export function openDerivation({ title, lines }: Derivation): void {
	const all = lines.flat(2).filter(Boolean);
	openDialog(
		title,
		[...all, lettersIn(all)]
			.filter(Boolean)
			.map((x) => (typeof x === "string" ? <p>{x}</p> : x)),
	);
}

interface Props {
	/** Called when the number is chosen, not before. */
	derive: () => Derivation;
	/** What the number is, for those who hear the page: "4,096" alone says nothing. */
	label: string;
	children: ComponentChildren;
	/** −1 in a table that is one tab stop; elsewhere the numbers of a section are one. */
	tabIndex?: number;
	[attribute: `data-${string}`]: string | undefined;
}

export function NumberButton({ derive, label, children, ...rest }: Props) {
	const ref = useRef<HTMLButtonElement>(null);
	useLayoutEffect(
		() => (rest.tabIndex === undefined ? joinNumbers(ref.current!) : undefined),
		[],
	);
	return (
		<button
			ref={ref}
			type="button"
			class="number"
			aria-haspopup="dialog"
			onClick={() => openDerivation(derive())}
			onKeyDown={moveToNumber}
			onFocus={stopHere}
			{...rest}
		>
			<span class="hidden">{label}: </span>
			{children}
		</button>
	);
}
