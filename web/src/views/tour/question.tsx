// The questions of a stop: an answer is typed, and judged.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { data, type ModelData } from "../../lib/data";
import { judge, type Question } from "../../lib/question";

/** One question at a time; `solve` tells that its answer is known. */
export function AskedQuestion({
	model,
	question,
	soFar,
	isSolved,
	solve,
	children,
}: {
	model: ModelData;
	question: Question;
	/** The count of all stops up to this one. */
	soFar: string;
	isSolved: boolean;
	solve: (isSolved: boolean) => void;
	children: ComponentChildren;
}) {
	const [text, setText] = useState("");
	const [verdict, setVerdict] = useState("");
	const check = (event: Event) => {
		event.preventDefault();
		if (!text.trim()) return;
		const { says, isRight } = judge(model, question, text);
		const isSoFar =
			!isRight &&
			question.kind === "weights" &&
			text.replace(/\D/g, "") === soFar.replace(/\D/g, "");
		setVerdict(isSoFar ? `Not right: ${data.words.so_far as string}` : says);
		if (isRight) solve(true);
	};
	return (
		<form class="tour-asked" onSubmit={check} data-question={question.kind}>
			<label>
				<strong>{question.text}</strong>
				<input
					type="text"
					value={text}
					autocomplete="off"
					spellcheck={false}
					aria-describedby="tour-verdict"
					onInput={(event) => {
						setText(event.currentTarget.value);
						setVerdict("");
						solve(false);
					}}
				/>
			</label>
			<button type="submit" class="button">
				Check
			</button>
			<button
				type="button"
				class="button"
				aria-expanded={isSolved}
				onClick={() => solve(!isSolved)}
			>
				{isSolved ? "Hide the answer" : "Show the answer"}
			</button>
			{children}
			<output id="tour-verdict" class="tour-verdict">
				{verdict && `${verdict.replace(/\.$/, "")}.`}
			</output>
		</form>
	);
}
