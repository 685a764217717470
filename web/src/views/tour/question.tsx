// The questions of a stop: an answer is typed, and judged.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { ModelData } from "../../lib/data";
import { isAnswer, isExactly, parseAnswer } from "../../lib/answer";
import { grouped } from "../../lib/format";
import type { Question } from "./tour_stops";

function judge(model: ModelData, question: Question, text: string): string {
	const answer = BigInt(question.answer);
	const named = model.letters.map((x): [string, string] => [x.letter, x.value]);
	const letters = Object.fromEntries(
		[...named, ...Object.entries(question.given)].map(([x, n]) => [x, BigInt(n)]),
	);
	const given = parseAnswer(text, letters);
	if (!given)
		return `Not a number: write 16,777,216, 16.8M, or a product of ${Object.keys(letters).join(", ")}`;
	if (isAnswer(given, answer))
		return isExactly(given, answer) ? "Right" : `Right, rounded; exactly ${grouped(answer)}`;
	const found = question.mistakes.find(([n]) => isAnswer(given, BigInt(n)));
	return found ? `Not right: ${found[1]}` : "Not right";
}

/** One question at a time; `solve` tells that its answer is known. */
export function AskedQuestion({
	model,
	question,
	isSolved,
	solve,
	children,
}: {
	model: ModelData;
	question: Question;
	isSolved: boolean;
	solve: (isSolved: boolean) => void;
	children: ComponentChildren;
}) {
	const [text, setText] = useState("");
	const [verdict, setVerdict] = useState("");
	const check = (event: Event) => {
		event.preventDefault();
		if (!text.trim()) return;
		const said = judge(model, question, text);
		setVerdict(said);
		if (said.startsWith("Right")) solve(true);
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
				{verdict}
			</output>
		</form>
	);
}
