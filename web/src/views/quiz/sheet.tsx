// The exercises on paper: one page with lines to write on, and one with the solutions.
import type { ModelData } from "../../lib/data";
import { notation } from "../../lib/expressions";
import { gigabytes, gibibytes, grouped } from "../../lib/format";
import { answerTo, lettersOf, type Question } from "../../lib/question";
import type { Quiz } from "./quiz_data";

/** Longer formulas are not written out. */
const MAX_FORMULA = 160;
/** Bytes that are told in GB as well. */
const LARGE = 10n ** 7n;

/** A formula in letters, in numbers, and its result. */
function linesOf(model: ModelData, question: Question): string[] {
	const letters = lettersOf(model, question);
	const answer = answerTo(model, question);
	const forms = [true, false].map((x) => notation(question.form, letters, x));
	const shown = forms.filter((x) => x.length <= MAX_FORMULA && x !== grouped(answer));
	return [...new Set([...shown, `${grouped(answer)} ${question.unit ?? ""}`.trim()])];
}

export const solutionOf = (model: ModelData, question: Question): string =>
	[...new Set([linesOf(model, question)[0]!, linesOf(model, question).at(-1)!])].join(" = ");

export function Sheet({ quiz }: { quiz: Quiz }) {
	const { model, items } = quiz;
	const exercises = items.filter((x) => !x.part);
	const head = (title: string) => (
		<h2>
			{title}: {model.name}
		</h2>
	);
	return (
		<div class="quiz-sheet">
			<div class="quiz-page">
				{head("Count it yourself")}
				<p class="quiz-line">
					<small>name</small>
				</p>
				<p class="quiz-letters">
					{model.letters.map((x) => (
						<span key={x.letter}>
							<i>{x.letter}</i> = {grouped(x.value)}
						</span>
					))}
				</p>
				<ol>
					{exercises.map((x) => (
						<li key={x.key} value={Number(x.key)}>
							{x.question.text}
							<span class="quiz-line">
								<small>{x.question.unit}</small>
							</span>
						</li>
					))}
				</ol>
			</div>
			<div class="quiz-page">
				{head("Solutions")}
				<ol>
					{exercises.map((x) => (
						<li key={x.key} value={Number(x.key)}>
							{linesOf(model, x.question).map((line, i) => (
								<span key={i} class="quiz-step">
									{i > 0 && "= "}
									{line}
								</span>
							))}
							{x.question.unit === "bytes" &&
								answerTo(model, x.question) >= LARGE && (
									<small>
										{" "}
										= {gigabytes(answerTo(model, x.question))} ={" "}
										{gibibytes(answerTo(model, x.question))}
									</small>
								)}
						</li>
					))}
				</ol>
			</div>
		</div>
	);
}
