// What the page says where it shows another model than the one that is asked for.
import type { Edited } from "../../lib/editing";

export function StaleNote({ edited }: { edited: Edited }) {
	const { unfollowed, model, original, opened } = edited;
	const shown =
		model === original ? `${original.name} as published` : "the last edit that is a model";
	return (
		<p class="stale-note">
			<span>
				{unfollowed
					? `${opened || "This edit"} is not shown below: ${unfollowed}. `
					: "This is no model. "}
				What follows is {shown}.
			</span>
		</p>
	);
}
