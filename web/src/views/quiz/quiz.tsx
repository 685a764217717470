// Count it yourself: a bar below the picture with one question at a time, what was counted so far,
// and the score.
import "./quiz.css";
import type { ComponentChildren } from "preact";
import {
	useContext,
	useEffect,
	useId,
	useLayoutEffect,
	useMemo,
	useRef,
	useState,
} from "preact/hooks";
import { copyText } from "../../components/export/clipboard";
import type { ModelData } from "../../lib/data";
import { sumOf, value } from "../../lib/expressions";
import { grouped, percent } from "../../lib/format";
import { useGuide } from "../../lib/guide";
import { lettersOf } from "../../lib/question";
import { parseLayer } from "../../lib/settings";
import { change, useAppState } from "../../lib/state";
import { IS_PHONE } from "../../lib/use_media";
import { fill } from "../plate/plate_model";
import {
	asRanges,
	AskingOf,
	nextOpen,
	quizOf,
	readLink,
	useQuiz,
	type Asking,
	type Item,
	type Quiz,
} from "./quiz_data";
import { Sheet, solutionOf } from "./sheet";

const MAX_ANSWER = 60;

/** Begins and ends it. */
export function QuizButton({ model }: { model: ModelData }) {
	const isOpen = useAppState("quiz").quiz !== "";
	return (
		<button
			type="button"
			class="button quiz-start no-print"
			aria-expanded={isOpen}
			onClick={() => change({ quiz: isOpen ? "" : quizOf(model).id, tour: null, zoom: "" })}
		>
			{isOpen ? "End the quiz" : "Quiz: count it"}
		</button>
	);
}

/** Gives the views inside it the question that is asked. */
export function WithQuiz({ model, children }: { model: ModelData; children: ComponentChildren }) {
	const quiz = useQuiz(model);
	const [at, go] = useState(0);
	const isOn = quiz !== null;
	useLayoutEffect(() => {
		if (!quiz) return;
		change({ tour: null, zoom: "" }, true);
		go(nextOpen(quiz, -1));
	}, [isOn]);
	const asking = useMemo(
		(): Asking | null => quiz && { quiz, at: Math.min(at, quiz.items.length - 1), go },
		[quiz, at],
	);
	return <AskingOf.Provider value={asking}>{children}</AskingOf.Provider>;
}

export function QuizBar() {
	const asking = useContext(AskingOf);
	if (!asking) return null;
	return (
		<>
			<Bar {...asking} />
			{asking.quiz.chosen.length > 0 && <Sheet quiz={asking.quiz} />}
		</>
	);
}

/** Escape leaves wherever the focus is, unless it closes something above it. */
function leaveOnEscape(event: KeyboardEvent): void {
	if (event.key !== "Escape" || event.defaultPrevented) return;
	if (document.querySelector("dialog[open]")) return;
	event.preventDefault();
	change({ quiz: "" });
	document.querySelector<HTMLElement>(".quiz-start")?.focus();
}

/** Opens the layer that has a part, unless the open one has it. */
function openPart({ key, part }: Item): void {
	const layer = part?.layer && parseLayer(part.layer);
	if (layer === undefined || layer === "" || !part?.layer) return;
	if (part.paths.length && document.querySelector(`[data-item="${key}"]`)) return;
	if (typeof layer === "number") change({ layer, zoom: "" }, true);
}

/**
 * Scrolls all fields above the bar if they have room there, and the part that is asked for with its
 * field in any case; on phones it has none.
 */
function revealPart(bar: HTMLElement, { key, part }: Item): void {
	const isShown = (x: Element) => x.checkVisibility();
	const of = (...places: string[]) =>
		places.flatMap((x) => [...document.querySelectorAll(`.hero ${x}`)]).filter(isShown);
	const boxes = of(".skyline", "[data-item]").map((x) => x.getBoundingClientRect());
	const under = Math.max(...boxes.map((x) => x.bottom)) + 8 - bar.getBoundingClientRect().top;
	const room = Math.min(...boxes.map((x) => x.top)) - 8;
	if (under > 0 && under <= room) scrollBy({ top: under, behavior: "instant" });
	if (!part) return;
	const parts = /^\d+$/.test(part.layer)
		? part.paths.map((x) => `[data-steps~="${x.replace(/\.weight$/, "")}"]`)
		: [".skyline"];
	for (const x of [...of(...parts).slice(0, 1), ...of(`[data-item="${key}"]`)])
		x.scrollIntoView({ block: "nearest", behavior: "instant" });
}

function Bar({ quiz, at, go }: Asking) {
	const item = quiz.items[at]!;
	const { model, items } = quiz;
	const bar = useRef<HTMLDivElement>(null);
	const input = useRef<HTMLInputElement>(null);
	const hadFocus = useRef(false);
	const [said, say] = useState("");
	const last = items.length - 1;
	useGuide("quiz");
	useEffect(() => {
		// a phone would open its keyboard over the picture
		if (!matchMedia(IS_PHONE).matches) input.current?.focus({ preventScroll: true });
		addEventListener("keydown", leaveOnEscape);
		return () => removeEventListener("keydown", leaveOnEscape);
	}, []);
	useEffect(() => {
		openPart(item);
		// once another layer that the part opens is drawn
		const reveal = () => bar.current && revealPart(bar.current, item);
		let frame = requestAnimationFrame(() => (frame = requestAnimationFrame(reveal)));
		return () => cancelAnimationFrame(frame);
	}, [item.key]);
	const move = (to: number) => {
		say("");
		go(Math.max(0, Math.min(last, to)));
	};
	const done = quiz.done(item);
	const after = (right: boolean) => {
		say("");
		if (!right) return;
		const { isRight, isShown } = done;
		const others = items.filter((x) => x !== item && !quiz.isKnown(x));
		const verdict = `${item.part ? item.part.name : `Exercise ${item.key}`}: ${solutionOf(model, item.question)}`;
		if (others.length && !isRight && !isShown) {
			say(`Right. ${verdict}. ${item.question.why}`);
			go(nextOpen(quiz, at));
		}
	};
	const isKnown = quiz.isKnown(item);
	return (
		<div
			ref={bar}
			class="quiz no-print"
			role="group"
			aria-label="Count it yourself"
			data-quiz={item.key}
		>
			<div class="quiz-controls">
				<Progress quiz={quiz} at={at} move={move} />
				<button
					type="button"
					class="button"
					data-quiz-go="back"
					aria-disabled={at === 0}
					onClick={() => move(at - 1)}
				>
					Back
				</button>
				<button
					type="button"
					class="button"
					data-quiz-go="next"
					aria-disabled={at === last}
					onClick={() => move(at + 1)}
				>
					Next
				</button>
				{quiz.chosen.length > 0 && (
					<button
						type="button"
						class="button"
						data-quiz-go="print"
						onClick={() => print()}
					>
						Print
					</button>
				)}
				<button
					type="button"
					class="button icon"
					aria-label="End the quiz"
					data-quiz-go="end"
					onClick={() => change({ quiz: "" })}
				>
					×
				</button>
			</div>
			{quiz.wrong.map((x) => (
				<p key={x} class="quiz-wrong" role="status">
					{x}
				</p>
			))}
			<div class="quiz-body">
				<Card
					key={item.key}
					quiz={quiz}
					item={item}
					inputRef={input}
					hadFocus={hadFocus}
					after={after}
				/>
				<output class="quiz-verdict" aria-live="polite">
					{said && <span>{said}</span>}
					{!said && isKnown && (
						<span>
							{done.isRight ? (done.last?.says ?? "Right") : "The answer"}:{" "}
							<i>{solutionOf(model, item.question)}</i>. {item.question.why}
						</span>
					)}
					{!isKnown && done.last && (
						<span>
							{said && " "}
							{done.last.mistake && <b>{done.last.mistake}. </b>}
							{done.last.says}
						</span>
					)}
				</output>
				{items[0]!.part && <Sum quiz={quiz} />}
				<Score quiz={quiz} />
				{quiz.chosen.length > 0 && <Teachers quiz={quiz} />}
			</div>
		</div>
	);
}

/** The question, a field, and its buttons. */
function Card({
	quiz,
	item,
	inputRef,
	hadFocus,
	after,
}: {
	quiz: Quiz;
	item: Item;
	inputRef: { current: HTMLInputElement | null };
	/** Whether the last card was left with the focus, which goes to the field of the next one. */
	hadFocus: { current: boolean };
	after: (right: boolean) => void;
}) {
	const [text, setText] = useState("");
	const id = useId();
	const { question, part } = item;
	const letters = lettersOf(quiz.model, question);
	const place = quiz.items.filter((x) => !x.part).indexOf(item) + 1;
	const form = useRef<HTMLFormElement>(null);
	useLayoutEffect(() => {
		if (hadFocus.current) inputRef.current?.focus({ preventScroll: true });
		const own = form.current!;
		return () => void (hadFocus.current = own.contains(document.activeElement));
	}, []);
	return (
		<form
			ref={form}
			class="quiz-card"
			onSubmit={(event) => {
				event.preventDefault();
				if (!text.trim()) return;
				after(quiz.check(item, text).isRight);
			}}
		>
			<p class="eyebrow">
				{part
					? `Part ${item.key.slice(1)} of ${quizOf(quiz.model).parts.length}: ${part.name}`
					: `Exercise ${item.key === `${place}` ? "" : `${item.key}, `}${place} of ${quiz.chosen.length}`}
			</p>
			<label for={id}>{question.text}</label>
			<span class="quiz-field">
				<input
					id={id}
					ref={inputRef}
					type="text"
					value={text}
					maxLength={MAX_ANSWER}
					autocomplete="off"
					autocapitalize="off"
					spellcheck={false}
					onInput={(event) => setText(event.currentTarget.value)}
				/>
				<small>{question.unit}</small>
				<button type="submit" class="button primary">
					Check
				</button>
				{!quiz.isKnown(item) && (
					<button
						type="button"
						class="button"
						data-quiz-go="show"
						onClick={() => {
							after(false);
							quiz.show(item);
							// this button goes
							document.querySelector<HTMLElement>("[data-quiz-go=next]")?.focus();
						}}
					>
						Show the answer
					</button>
				)}
			</span>
			{quizOf(quiz.model).note && <p class="caption">{quizOf(quiz.model).note}</p>}
			<small class="quiz-letters">
				{Object.entries(letters).map(([x, n]) => (
					<span key={x}>
						<i>{x}</i> = {grouped(n)}
					</span>
				))}
			</small>
		</form>
	);
}

/** One mark for each question: what is known, what was wrong, and the one that is asked. */
function Progress({ quiz, at, move }: { quiz: Quiz; at: number; move: (to: number) => void }) {
	const { items } = quiz;
	const known = items.filter((x) => quiz.done(x).isRight).length;
	const stateOf = (x: Item) => {
		const { isRight, isShown, wrong } = quiz.done(x);
		return isRight
			? wrong.length
				? "later"
				: "right"
			: isShown
				? "shown"
				: wrong.length
					? "wrong"
					: "open";
	};
	return (
		<span class="quiz-progress">
			<span class="quiz-place">
				{known} of {items.length} right
			</span>
			<select
				aria-label="Question"
				value={at}
				onChange={(event) => move(Number(event.currentTarget.value))}
			>
				{items.map((x, i) => (
					<option key={x.key} value={i}>
						{x.part ? x.part.name : `Exercise ${x.key}`}
						{
							{ right: " ✓", later: " ✓", shown: " –", wrong: " ✗", open: "" }[
								stateOf(x)
							]
						}
					</option>
				))}
			</select>
			<span class="quiz-marks" aria-hidden="true">
				{items.map((x, i) => (
					<i key={x.key} data-is={stateOf(x)} data-here={i === at || undefined} />
				))}
			</span>
		</span>
	);
}

/** The sum of the parts that are known. */
function Sum({ quiz }: { quiz: Quiz }) {
	const { model, items } = quiz;
	const parts = items.filter((x) => x.part?.paths.length);
	const known = parts.filter((x) => quiz.isKnown(x));
	const valueOf = (x: Item) => value(x.part!.adds, lettersOf(model, x.question));
	const total = value(
		sumOf(parts.map((x) => x.part!.adds)),
		Object.assign({}, ...parts.map((x) => lettersOf(model, x.question))),
	);
	const found = known.reduce((n, x) => n + valueOf(x), 0n);
	const isTold = known.length === parts.length;
	const colour = (x: Item) => fill(groupOf(model, x.part!.paths[0]!));
	return (
		<div class="quiz-sum">
			<p>
				Counted so far, in all layers: <b class="tabular">{grouped(found)}</b>
				{isTold
					? ", which is the total"
					: known.length > 0 && total > 0n && `, ${percent(found, total)} of the model`}
			</p>
			<div class="quiz-stack" aria-hidden="true">
				{known.map((x) => (
					<i
						key={x.key}
						class="data"
						style={{
							background: colour(x),
							width: `${total ? Number((valueOf(x) * 10_000n) / total) / 100 : 0}%`,
						}}
					/>
				))}
			</div>
		</div>
	);
}

/** The group of a weight, by its path inside its section. */
function groupOf(model: ModelData, path: string): string {
	const sections = model.sections as { rows: { path: string; group: string }[] }[];
	const rows = sections.flatMap((x) => x.rows);
	return rows.find((x) => x.path === path || x.path === `layers.{l}.${path}`)?.group ?? "other";
}

/** How many were right at once, and what went wrong. */
function Score({ quiz }: { quiz: Quiz }) {
	const { items } = quiz;
	const all = items.map((x) => [x, quiz.done(x)] as const);
	const tried = all.filter(([, x]) => x.last || x.isShown);
	const isEnd = items.every((x) => quiz.isKnown(x));
	if (!tried.length) return null;
	const right = all.filter(([, x]) => x.isRight);
	const first = right.filter(([, x]) => !x.wrong.length && !x.isShown);
	const wrong = all.flatMap(([item, { wrong: tries }]) =>
		tries.map(({ text, verdict }) => ({ item, text, verdict })),
	);
	const shown = all.filter(([, x]) => x.isShown && !x.isRight).length;
	return (
		<details key={`${isEnd}`} class="quiz-score" open={isEnd}>
			<summary>
				{isEnd ? "Done: " : "Score: "}
				{right.length} of {items.length} right, {first.length} at the first try
				{shown > 0 && `, ${shown} shown`}
			</summary>
			{wrong.length > 0 && (
				<ul>
					{wrong.map(({ item, text, verdict }, i) => (
						<li key={i}>
							<b>{item.part ? item.part.name : `Exercise ${item.key}`}</b>, {text}:{" "}
							{verdict.mistake && `${verdict.mistake}. `}
							{verdict.says}
						</li>
					))}
				</ul>
			)}
			<button type="button" class="button" data-quiz-go="again" onClick={quiz.forget}>
				Begin again
			</button>
		</details>
	);
}

/** The same in another order, of a second sheet for neighbors. */
function shuffled(list: readonly number[]): number[] {
	const keyed = list.map((x): [number, number] => [Math.random(), x]);
	return keyed.toSorted((a, b) => a[0] - b[0]).map((x) => x[1]);
}

/** A link to some of the exercises, in some order, without what was answered here. */
function Teachers({ quiz }: { quiz: Quiz }) {
	const { model, chosen } = quiz;
	const { id } = quizOf(model);
	const [text, setText] = useState(asRanges(chosen));
	const { wrong } = readLink(model, `${id},${text}`);
	const link = `${location.href.split("#")[0]!}#quiz=${encodeURIComponent(id)},${text.replaceAll(/\s/g, "")}`;
	return (
		<details class="quiz-teachers">
			<summary>A link for a class</summary>
			<label>
				Exercises{" "}
				<input
					type="text"
					value={text}
					maxLength={40}
					onInput={(event) => setText(event.currentTarget.value)}
				/>
			</label>{" "}
			<button
				type="button"
				class="button"
				data-quiz-go="link"
				disabled={wrong.length > 0}
				onClick={() => copyText(link, "the link to the exercises")}
			>
				Copy the link
			</button>{" "}
			<button
				type="button"
				class="button"
				data-quiz-go="shuffle"
				disabled={wrong.length > 0}
				onClick={() => setText(asRanges(shuffled(readLink(model, text).chosen)))}
			>
				Another order
			</button>
			<p class="caption">
				{wrong.join(" ") || (
					<>
						The same exercises on a terminal: <code>llamath learn quiz {id}</code>
					</>
				)}
			</p>
		</details>
	);
}
