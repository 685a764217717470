// A place whose width a picture is laid out for: nothing is drawn in it before its width is known.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";
import { waitForTurn } from "../lib/turns";
import { useWidth } from "../lib/use_width";

interface Props {
	class?: string;
	/** Whether what is drawn takes so long that it waits for a turn of its own. */
	isSlow?: boolean;
	children: (width: number) => ComponentChildren;
}

export function Measured({ class: name, isSlow = false, children }: Props) {
	const [ref, width] = useWidth<HTMLDivElement>();
	const [isWaiting, setWaiting] = useState(isSlow);
	useLayoutEffect(() => (isSlow ? waitForTurn(() => setWaiting(false)) : undefined), []);
	return (
		<div ref={ref} class={name}>
			{width > 0 && !isWaiting && children(width)}
		</div>
	);
}
