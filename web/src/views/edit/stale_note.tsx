// What the page says where it shows another model than the one that is asked for.
import type { Edited } from "../../lib/editing";

export function StaleNote({ edited }: { edited: Edited }) {
	const { unfollowed, model, original, opened } = edited;
	const shown = model === original ? `${original.name} as published` : "the last valid edit";
	return (
		<p class="stale-note">
			<span>
				{unfollowed
					? `${opened || "This edit"} is not shown below: ${unfollowed}. `
					: "The edit has errors and is not shown. "}
				What follows is {shown}.
			</span>
		</p>
	);
}
