// The name of a model as a link to its page, or to its comparison with the model that was chosen
// first.
import { useState } from "preact/hooks";
import { change, useAppState } from "../../lib/state";
import { comparedName, linkTo, type Entry } from "./entries";

export interface Stop {
	tabIndex: number;
	onFocus: () => void;
}

/**
 * The models are one tab stop: Arrow up and down move between them, and what has the focus is the
 * stop.
 */
export function useModelStop(models: Entry[]): (entry: Entry) => Stop {
	const [current, setCurrent] = useState("");
	const stop = models.some((x) => x.id === current) ? current : models[0]?.id;
	return (x) => ({ tabIndex: x.id === stop ? 0 : -1, onFocus: () => setCurrent(x.id) });
}

export function ModelLink({ entry, stop }: { entry: Entry; stop: Stop }) {
	const state = useAppState("with");
	return (
		<a class="model" href={linkTo(entry.id, state)} {...stop}>
			{entry.name}
		</a>
	);
}

export function CompareButton({ entry, stop }: { entry: Entry; stop: Stop }) {
	const state = useAppState("with");
	if (comparedName(state.with) !== null) return null;
	const choose = () => {
		change({ with: entry.id });
		document.getElementById("find")?.focus();
	};
	return (
		<button
			type="button"
			{...stop}
			class="compare-button no-print"
			aria-label={`Compare ${entry.name} with another`}
			onClick={choose}
		>
			compare
		</button>
	);
}
