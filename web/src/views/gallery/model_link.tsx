// The name of a model as a link to its page, or to its comparison with the model that was chosen first.
import { change, useAppState } from "../../lib/state";
import { comparedName, linkTo, type Entry } from "./entries";

export function ModelLink({ entry }: { entry: Entry }) {
	const state = useAppState();
	return <a class="model" href={linkTo(entry.id, state)}>{entry.name}</a>;
}

export function CompareButton({ entry }: { entry: Entry }) {
	const state = useAppState();
	if (comparedName(state.with!) !== null) return null;
	const choose = () => {
		change({ with: entry.id });
		document.getElementById("find")?.focus();
	};
	return <button type="button" class="compare-button no-print" aria-label={`Compare ${entry.name} with another`} onClick={choose}>compare</button>;
}
