// The questions of "Count it yourself", those that a link asks for, and the answers so far.
import { createContext } from "preact";
import { useContext, useMemo } from "preact/hooks";
import type { ModelData } from "../../lib/data";
import { Original } from "../../lib/editing";
import type { Expression } from "../../lib/expressions";
import { judge, type Question, type Verdict } from "../../lib/question";
import { change, state as appState, useAppState } from "../../lib/state";

export interface Part extends Question {
	name: string;
	/** A layer that has it, or embedding or head; empty: the whole model. */
	layer: string;
	/** The first of each kind of layers that has it in this size. */
	layers: string[];
	/** Of its weights; without any, a layer or the whole model. */
	paths: string[];
	/** The parameters that it adds to the total, in all layers. */
	adds: Expression;
}

interface QuizData {
	/** The model as a link names it. */
	id: string;
	/** Says that only the text model is counted; else empty. */
	note: string;
	exercises: Question[];
	parts: Part[];
}

export const quizOf = (model: ModelData) => model.quiz as QuizData;

/** A part or an exercise, by a key that the address can hold. */
export interface Item {
	/** p1, p2, … of parts, 1, 2, … of exercises. */
	key: string;
	question: Question;
	part: Part | null;
}

/** Which exercises a link asks for, in its order; without any, all. */
interface Link {
	chosen: number[];
	isNamed: boolean;
	/** What in it this page has not. */
	wrong: string[];
}

export function readLink(model: ModelData, link: string): Link {
	const { id, exercises } = quizOf(model);
	const count = exercises.length;
	const wrong: string[] = [];
	const chosen = new Set<number>();
	const words = link.split(",").map((x) => x.trim());
	for (const [i, word] of words.entries()) {
		const [, from, to] = /^(\d{1,4})(?:[-–](\d{1,4}))?$/.exec(word) ?? [];
		if (from === undefined) {
			const isModel = [id, model.name.toLowerCase()].includes(word.toLowerCase());
			if (i === 0 && isModel) continue;
			wrong.push(
				i === 0
					? `The link asks about ${quoted(word)}; this page is about ${model.name} (${id}).`
					: `${quoted(word)} is no number of an exercise.`,
			);
			continue;
		}
		const [first, last] = [Number(from), Number(to ?? from)];
		if (first < 1 || last > count || first > last)
			wrong.push(`${quoted(word)}: the exercises are 1 to ${count}.`);
		for (let n = Math.max(1, first); n <= Math.min(last, count); n++) chosen.add(n);
	}
	const isNamed = chosen.size > 0;
	const all = Array.from({ length: count }, (_, i) => i + 1);
	return { chosen: isNamed ? [...chosen] : all, isNamed, wrong };
}

const quoted = (word: string) => `“${word || " "}”`;

/** Numbers as a link has them: 1-3,7. */
export function asRanges(numbers: readonly number[]): string {
	const runs: [number, number][] = [];
	for (const n of numbers) {
		const last = runs.at(-1);
		if (last && n === last[1] + 1) last[1] = n;
		else runs.push([n, n]);
	}
	return runs.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(",");
}

// what was answered: key-text_key-text, in the order of the tries

const LONGEST_LOG = 3000;
const LONGEST_ANSWER = 60;
/** In the place of an answer that was shown. */
const SHOWN = "shown";

type Try = readonly [key: string, text: string];

const readLog = (log: string): Try[] =>
	log.split("_").flatMap((x): Try[] => {
		const [, key, text] = /^(p?\d{1,3})-(.+)$/.exec(x) ?? [];
		return key && text ? [[key, text]] : [];
	});

function add(key: string, text: string): void {
	// an underscore groups digits
	const answer = text.replaceAll("_", "").trim();
	if (!answer) return;
	const next: Try[] = [...readLog(appState.answers), [key, answer]];
	const write = () => next.map((x) => x.join("-")).join("_");
	while (write().length > LONGEST_LOG) next.shift();
	change({ answers: write() });
}

export interface Done {
	/** The wrong tries, each with its verdict. */
	wrong: { text: string; verdict: Verdict }[];
	isRight: boolean;
	isShown: boolean;
	last: Verdict | null;
}

const NOTHING: Done = { wrong: [], isRight: false, isShown: false, last: null };

export interface Quiz {
	model: ModelData;
	items: readonly Item[];
	/** Words of the link that this page does not have. */
	wrong: readonly string[];
	chosen: readonly number[];
	done: (item: Item) => Done;
	/** Whether the number may be seen. */
	isKnown: (item: Item) => boolean;
	check: (item: Item, text: string) => Verdict;
	show: (item: Item) => void;
	forget: () => void;
}

/** Null while nobody counts. */
export function useQuiz(model: ModelData): Quiz | null {
	const { quiz, answers } = useAppState("quiz", "answers");
	const isEdited = useContext(Original) !== null;
	return useMemo(
		() => (quiz ? made(model, quiz, answers, isEdited) : null),
		[model, quiz, answers, isEdited],
	);
}

/**
 * The parts and all exercises, or the exercises that the link names; of an edited model the parts
 * alone: sentences have the numbers of its original.
 */
function made(model: ModelData, link: string, log: string, isEdited: boolean): Quiz {
	const { exercises, parts } = quizOf(model);
	const { chosen: linked, isNamed, wrong } = readLink(model, link);
	const chosen = isEdited ? [] : linked;
	const asked = isNamed && !isEdited ? [] : parts;
	const judged = (question: Question, text: string): Verdict => {
		const verdict = judge(model, question, text);
		const isTold = isEdited && verdict.mistake;
		return isTold ? { ...verdict, says: "Not right" } : verdict;
	};
	const items: Item[] = [
		...asked.map((x, i) => ({ key: `p${i + 1}`, question: x, part: x })),
		...chosen.map((n) => ({ key: `${n}`, question: exercises[n - 1]!, part: null })),
	];
	const all = new Map<string, Done>();
	for (const [key, text] of readLog(log)) {
		const item = items.find((x) => x.key === key);
		const before = all.get(key) ?? NOTHING;
		if (!item || before.isRight) continue;
		if (text === SHOWN) {
			all.set(key, { ...before, isShown: true });
			continue;
		}
		const verdict = judged(item.question, text);
		all.set(key, {
			...before,
			isRight: verdict.isRight,
			last: verdict,
			wrong: verdict.isRight ? before.wrong : [...before.wrong, { text, verdict }],
		});
	}
	const done = (item: Item) => all.get(item.key) ?? NOTHING;
	return {
		model,
		items,
		wrong,
		chosen,
		done,
		isKnown: (item) => done(item).isRight || done(item).isShown,
		check(item, text) {
			const verdict = judged(item.question, text);
			if (text.trim().length <= LONGEST_ANSWER) add(item.key, text);
			return verdict;
		},
		show: (item) => add(item.key, SHOWN),
		forget: () => change({ answers: "" }),
	};
}

/** Where the next question without an answer is, after one. */
export function nextOpen(quiz: Quiz, at: number): number {
	const { items } = quiz;
	const order = items.map((_, i) => (at + 1 + i) % items.length);
	return order.find((i) => !quiz.isKnown(items[i]!)) ?? Math.min(at + 1, items.length - 1);
}

/** The quiz, and the question that it is at, for what stands in the picture. */
export interface Asking {
	quiz: Quiz;
	at: number;
	go: (at: number) => void;
}

export const AskingOf = createContext<Asking | null>(null);

/** Whether somebody counts: the numbers are hidden then. */
export const useIsAsking = (): boolean => useContext(AskingOf) !== null;
