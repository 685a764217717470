// A question about a model: its answer and what mistakes give, as expressions, and the verdict on
// what is typed.
import { isAnswer, isExactly, parseAnswer, type Answer } from "./answer";
import type { Digits, ModelData } from "./data";
import { value, type Expression, type Variables } from "./expressions";
import { grouped, threeDigits } from "./format";

export interface Question {
	/** What the number is: weights, shape, cache, bytes or flops. */
	kind: string;
	text: string;
	form: Expression;
	/** Letters that are not the model's. */
	given: Record<string, Digits>;
	/** In their expressions `answer` is the right one. */
	mistakes: [wrong: Expression, name: string, says: string][];
	/** Without it, the number alone is asked for. */
	unit?: string;
}

export function lettersOf(model: ModelData, question: Question): Variables<bigint> {
	const named = model.letters.map((x): [string, string] => [x.letter, x.value]);
	return Object.fromEntries(
		[...named, ...Object.entries(question.given)].map(([x, n]) => [x, BigInt(n)]),
	);
}

export const answerTo = (model: ModelData, question: Question): bigint =>
	value(question.form, lettersOf(model, question));

export interface Verdict {
	isRight: boolean;
	says: string;
	/** The name of the mistake, where one gives the number. */
	mistake?: string;
}

/** How far a number is from the answer. */
function distance({ scaled, half, unit }: Answer, answer: bigint): string {
	const off = scaled - answer * unit;
	if (half === 0n && answer > 1000n && (off < 0n ? -off : off) * 1000n < answer * unit)
		return `off by ${off > 0n ? "+" : ""}${grouped(off / unit)}`;
	if (answer <= 0n || scaled <= 0n) return "";
	const [a, b] = off > 0n ? [scaled, answer * unit] : [answer * unit, scaled];
	const ratio = Number((a * 1000n) / b) / 1000;
	return `${threeDigits(ratio)} times too ${off > 0n ? "large" : "small"}`;
}

export function judge(model: ModelData, question: Question, text: string): Verdict {
	const letters = lettersOf(model, question);
	const given = parseAnswer(text, letters, question.unit);
	if (!given)
		return {
			isRight: false,
			says: `Not a number: write 16,777,216, 16.8M, or a product of ${Object.keys(letters).join(", ")}`,
		};
	const answer = value(question.form, letters);
	if (isAnswer(given, answer))
		return {
			isRight: true,
			says: isExactly(given, answer) ? "Right" : `Right, rounded; exactly ${grouped(answer)}`,
		};
	const found = question.mistakes.find(([wrong]) => {
		const n = value(wrong, { ...letters, answer });
		return n !== answer && isAnswer(given, n);
	});
	const why = found?.[2] ?? distance(given, answer);
	return { isRight: false, says: why ? `Not right: ${why}` : "Not right", mistake: found?.[1] };
}
