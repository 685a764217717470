// The sliding window of an edited model: its slider, its questions, and what becomes of the cache.
import type { ModelData } from "../../lib/data";
import type { DesignLetter } from "../../lib/design";
import { setWindow, type Edited } from "../../lib/editing";
import { grouped } from "../../lib/format";
import { Dimension } from "../design/design";

export function WindowSlider({ edited }: { edited: Edited }) {
	const { window } = edited;
	if (!window) return null;
	const { own, key, now, most } = window;
	const x: DesignLetter = {
		...{ letter: "W", key, says: "window", value: String(own) },
		absent: { form: null },
	};
	return (
		<Dimension x={x} n={now ?? own} most={most} move={(n) => setWindow(edited, n, x.letter)} />
	);
}

/** Windows that are asked for: a usual one, and one with which every layer sees all tokens. */
export function WindowQuestions({ edited }: { edited: Edited }) {
	const { window } = edited;
	if (!window) return null;
	const { own, now, most } = window;
	const asked: [name: string, n: bigint, title: string][] = [
		["a window of 1,024", 1024n, ""],
		["all tokens in every layer", most, `a window as long as the context, ${grouped(most)}`],
	];
	return asked
		.filter(([, n]) => n !== own && n <= most)
		.map(([name, n, title]) => (
			<button
				type="button"
				key={name}
				class="button"
				title={title || undefined}
				aria-pressed={now === n}
				onClick={() => setWindow(edited, now === n ? own : n)}
			>
				{name}
			</button>
		));
}

interface Facts {
	rows: { name: string; note: string }[];
}

/** What a fact says of the whole context: the last part of its note. */
const atContext = ({ facts }: ModelData, name: string) =>
	(facts as Facts).rows
		.find((x) => x.name === name)
		?.note.split(" · ")
		.at(-1);

/** What another window changes, or why the page does not follow it. */
export function WindowNote({ edited }: { edited: Edited }) {
	const { window, original, model } = edited;
	if (!window || window.now === window.own) return null;
	if (window.now === null)
		return (
			<p class="edit-note" data-part="window">
				{window.key} is followed from 2 to the context, {grouped(window.most)}: of any
				other, <code>llamath export config.json -o page.html</code> makes the page.
			</p>
		);
	const changed = ["KV cache", "Decode"].map(
		(x) => [x, atContext(original, x), atContext(model, x)] as const,
	);
	return (
		<p class="edit-note" data-part="window">
			A window changes no weight.{" "}
			{window.now === window.most && "Local layers then see all tokens. "}
			{changed.map(
				([name, own, now]) => own !== now && ` ${name}: ${now}, where it was ${own}.`,
			)}
		</p>
	);
}
