// The quiz on paper: the parts and the exercises with room to calculate, then the solutions.
import type { ComponentChildren } from "preact";
import type { ModelData } from "../../lib/data";
import { notation } from "../../lib/expressions";
import { gibibytes, gigabytes, grouped, shortBytes, shortFileSize } from "../../lib/format";
import { answerTo, lettersOf, type Question } from "../../lib/question";
import type { Item, Quiz } from "./quiz_data";

/** Longer formulas are not written out. */
const MAX_FORMULA = 400;
/** Bytes that are told in larger units as well. */
const LARGE = 10n ** 7n;
const inUnits = (n: bigint): string[] =>
	n < 10n ** 9n ? [shortFileSize(n), shortBytes(n)] : [gigabytes(n), gibibytes(n)];

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

function Solution({ model, item: { question } }: { model: ModelData; item: Item }) {
	const answer = answerTo(model, question);
	return (
		<>
			{linesOf(model, question).map((line, i) => (
				<span key={i} class="quiz-step">
					{i > 0 && "= "}
					{line}
				</span>
			))}
			{question.unit === "bytes" && answer >= LARGE && (
				<small> = {inUnits(answer).join(" = ")}</small>
			)}
		</>
	);
}

/** The parts in two columns, then the exercises. */
function Lists({
	items,
	write,
}: {
	items: readonly Item[];
	write: (item: Item) => ComponentChildren;
}) {
	const listed = (of: readonly Item[]) =>
		of.map((x) => (
			<li key={x.key} value={Number(x.key.replace("p", ""))}>
				{write(x)}
			</li>
		));
	const parts = items.filter((x) => x.part);
	return (
		<>
			{parts.length > 0 && (
				<>
					<h3>Parts</h3>
					<ol class="quiz-parts">{listed(parts)}</ol>
				</>
			)}
			<h3>Exercises</h3>
			<ol>{listed(items.filter((x) => !x.part))}</ol>
		</>
	);
}

export function Sheet({ quiz }: { quiz: Quiz }) {
	const { model, items } = quiz;
	const head = (title: string) => (
		<h2>
			{title}: {model.name}
		</h2>
	);
	return (
		<div class="quiz-sheet">
			<div class="quiz-page">
				{head("Count it yourself")}
				<p class="quiz-head">
					{["name", "class", "date"].map((x) => (
						<span key={x} class="quiz-line">
							<small>{x}</small>
						</span>
					))}
				</p>
				<p class="quiz-letters">
					{model.letters.map((x) => (
						<span key={x.letter}>
							<i>{x.letter}</i> = {grouped(x.value)}{" "}
							{x.says && <small>{x.says}</small>}
						</span>
					))}
				</p>
				<Lists
					items={items}
					write={({ question }) => (
						<>
							{question.text}
							<span class="quiz-line">
								<small>{question.unit}</small>
							</span>
						</>
					)}
				/>
			</div>
			<div class="quiz-page">
				{head("Solutions")}
				<div class="quiz-solutions">
					<Lists items={items} write={(x) => <Solution model={model} item={x} />} />
				</div>
			</div>
		</div>
	);
}
