// A question about a model: its answer and what mistakes give, as expressions, and the verdict on
// what is typed.
import { isAnswer, isExactly, parseAnswer, type Answer } from "./answer";
import type { Digits, ModelData } from "./data";
import { notation, value, type Expression, type Operation, type Variables } from "./expressions";
import { grouped, threeDigits } from "./format";

export interface Question {
	/** What the number is: weights, shape, cache, bytes or flops. */
	kind: string;
	text: string;
	/** The reason for the answer, as a sentence. */
	why: string;
	/** What a smaller number left out, and a larger one counted. */
	off?: [below: string, above: string];
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

/** A number that is nearly right is told how much is missing, others how many times. */
const NEAR = 1.05;
/** How many more times do not matter. */
const MANY = 1000;

/** How far a number is from the answer. */
function distance({ scaled, half, unit, digits }: Answer, answer: bigint): string {
	const off = scaled - answer * unit;
	const size = off < 0n ? -off : off;
	if (half === 0n && answer > 1000n && size * 1000n < answer * unit && size >= unit)
		return `about right, but not exact: off by ${off > 0n ? "+" : ""}${grouped(off / unit)}`;
	if (half > 0n && digits < 2 && size <= half)
		return "about right, but rounded to one digit: two or more are needed";
	if (answer <= 0n || scaled <= 0n) return "";
	const [a, b] = off > 0n ? [scaled, answer * unit] : [answer * unit, scaled];
	const ratio = Number((a * 1000n) / b) / 1000;
	const side = off > 0n ? "large" : "small";
	return ratio < NEAR
		? `about right, but not exact: ${threeDigits(Math.max(100 * (ratio - 1), 0.1))}% too ${side}`
		: `${ratio < MANY ? threeDigits(ratio) : "over 1,000"} times too ${side}`;
}

/** What is typed, at the letters of the model and, of a formula, at other values of them. */
interface Typed {
	given: Answer;
	letters: Variables<bigint>;
	elsewhere: { given: Answer; letters: Variables<bigint> } | null;
}

/** A formula of letters alone: one with numbers that are sizes of letters may mean these. */
function namesLetters(text: string, letters: Variables<bigint>): boolean {
	const sizes = new Set(Object.values(letters).map(String));
	const numbers = text.match(/\d[\d,_' ]*/g) ?? [];
	return !parseAnswer(text, {}) && !numbers.some((x) => sizes.has(x.replace(/\D/g, "")));
}

function readTyped(model: ModelData, question: Question, text: string): Typed | null {
	const letters = lettersOf(model, question);
	const given = parseAnswer(text, letters, question.unit);
	if (!given) return null;
	const values = (model.quiz as { elsewhere: Record<string, Digits> }).elsewhere;
	const others = Object.fromEntries(
		Object.entries(letters).map(([x, n]) => {
			const other = x in question.given ? undefined : values[x];
			return [x, other === undefined ? n : BigInt(other)];
		}),
	);
	const there = namesLetters(text, letters) && parseAnswer(text, others);
	// a formula that does not depend on them is as good as its number
	const depends = there && there.scaled * given.unit !== given.scaled * there.unit;
	return { given, letters, elsewhere: depends ? { given: there, letters: others } : null };
}

/** Whether what is typed is an expression, and not only its number by chance. */
function isMeant({ given, letters, elsewhere }: Typed, form: Expression, answer?: Expression) {
	const at = (x: Variables<bigint>) =>
		value(form, answer === undefined ? x : { ...x, answer: value(answer, x) });
	return (
		isAnswer(given, at(letters)) &&
		(!elsewhere || isExactly(elsewhere.given, at(elsewhere.letters)))
	);
}

/** Why a formula has the right number although it is another one. */
function chance(question: Question, text: string, { given, letters }: Typed): string {
	const names = Object.keys(letters);
	const moved = (x: string) => ({ ...letters, [x]: letters[x]! + 1n });
	const typed = names.filter((x) => parseAnswer(text, moved(x))?.scaled !== given.scaled);
	const right = names.filter(
		(x) => value(question.form, moved(x)) !== value(question.form, letters),
	);
	const pairs = typed
		.filter((x) => !right.includes(x))
		.flatMap((x) => right.filter((y) => !typed.includes(y)).map((y) => [x, y] as const));
	const same = pairs.find(([x, y]) => letters[x] === letters[y]);
	const because = same ? ` because ${same[0]} = ${same[1]} here` : " for these sizes";
	return `the number is right, but only${because}; with other sizes the formula gives another one`;
}

const MOST_PRODUCTS = 16;
/** Coarser numbers fit by chance. */
const LEAST_DIGITS = 4;

/** The products of a sum, each by its factors; none where it is more than sums and products. */
function productsOf(form: Expression): Expression[][] {
	if (typeof form !== "object") return [[form]];
	const [name, ...parts] = form as [string, ...Expression[]];
	const each = parts.map(productsOf);
	if (!["+", "*"].includes(name) || each.some((x) => !x.length)) return [];
	const found =
		name === "+"
			? each.flat()
			: each.reduce((all, some) => all.flatMap((x) => some.map((y) => [...x, ...y])), [[]]);
	return found.length <= MOST_PRODUCTS ? found : [];
}

/** Which product of the answer a number is, without none, one or two of its letters. */
function partOf(typed: Typed, form: Expression): string {
	const { given, letters } = typed;
	if (given.half > 0n && given.digits < LEAST_DIGITS) return "";
	const products = productsOf(form);
	for (const product of products) {
		const written = (factors: Expression[]) =>
			notation(["*", ...factors] as Operation, letters, true);
		const isNumber = (factors: Expression[]) =>
			factors.length > 0 && isMeant(typed, ["*", ...factors] as Operation);
		const alone = products.length > 1 ? " alone" : "";
		if (alone && isNumber(product)) return `this is ${written(product)} alone`;
		const others = products.filter((x) => x !== product).map((x) => ["*", ...x]);
		if (alone && isMeant(typed, ["+", ...others] as Operation))
			return `${written(product)} is missing`;
		const places = product.flatMap((x, i) =>
			typeof x === "string" && x in letters ? [i] : [],
		);
		for (const a of places)
			for (const b of places.filter((x) => x >= a)) {
				const left = product.filter((_, i) => i !== a && i !== b);
				const lost = [...new Set([product[a], product[b]])].join(" and ");
				if (isNumber(left)) return `this is ${written(left)}${alone}, without ${lost}`;
			}
	}
	return "";
}

/** What is wrong with a number that no known mistake gives, as it follows "Not right". */
function reasonOf(given: Answer, answer: bigint, { kind, off, why }: Question): string {
	const far = distance(given, answer);
	if (far.startsWith("about")) return `: ${far}`;
	if (!off) return far ? `: ${far}. ${why}` : `. ${why}`;
	const says = off[given.scaled > answer * given.unit ? 1 : 0];
	return `: ${kind === "shape" || !far ? says : `${far}; ${says}`}`;
}

export function judge(model: ModelData, question: Question, text: string): Verdict {
	const typed = readTyped(model, question, text);
	if (!typed)
		return {
			isRight: false,
			says: `Not understood: write 16,777,216, 16.8M, or an expression with + − · / ^, brackets and ${Object.keys(lettersOf(model, question)).join(", ")}`,
		};
	const { given, letters } = typed;
	const answer = value(question.form, letters);
	if (isMeant(typed, question.form))
		return {
			isRight: true,
			says: isExactly(given, answer) ? "Right" : `Right, rounded; exactly ${grouped(answer)}`,
		};
	if (isExactly(given, answer))
		return { isRight: false, says: `Not right: ${chance(question, text, typed)}` };
	const found = question.mistakes.find(
		([wrong]) =>
			value(wrong, { ...letters, answer }) !== answer && isMeant(typed, wrong, question.form),
	);
	const known = found?.[2] || partOf(typed, question.form);
	const says = known ? `: ${known}` : reasonOf(given, answer, question);
	return { isRight: false, says: `Not right${says}`, mistake: found?.[1] };
}
