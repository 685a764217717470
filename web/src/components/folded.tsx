// Details below a picture: folded until opened, also on paper.
import type { ComponentChildren } from "preact";

export function Folded({
	id,
	says,
	children,
}: {
	id?: string;
	says: ComponentChildren;
	children: ComponentChildren;
}) {
	return (
		<details class="folded" id={id}>
			<summary>{says}</summary>
			{children}
		</details>
	);
}
