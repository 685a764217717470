// A guided tour along the path of one token: a bar below the picture with one stop at a time, and on
// paper the list of all stops.
import "./tour.css";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { NumberButton } from "../../components/number";
import type { ModelData } from "../../lib/data";
import { formula } from "../../lib/derivation";
import { notation, value } from "../../lib/expressions";
import { grouped, share } from "../../lib/format";
import { useGuide } from "../../lib/guide";
import { liveViews } from "../../lib/live_views";
import { Mathematics } from "../../lib/mathematics";
import { usePrintedState, whilePrinting } from "../../lib/printing";
import { lettersOf, type Question } from "../../lib/question";
import { reveal } from "../../lib/reveal";
import { parseLayer } from "../../lib/settings";
import { change, initialState, state as appState, useAppState, type State } from "../../lib/state";
import { useMedia } from "../../lib/use_media";
import { openPlace } from "../plate/plate";
import { stagesOf } from "../plate/plate_model";
import { AskedQuestion } from "./question";
import { LitSteps, NO_STEPS, stopAt, tourOf, type TourStop } from "./tour_stops";
import { ShapeList, StopNumbers } from "./tour_shapes";

const MS_PER_WORD = 240;
/** Of fewer lines, code is open and beside the words. */
const SHORT = 3;
/** On paper, code of more lines is as wide as the page. */
const BESIDE = 8;
const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const linesOf = ({ code }: TourStop) => code.reduce((n, x) => n + x.length - 1, 0);
const goTo = (index: number) => change({ tour: index + 1 });

/** The layer that the tour has opened itself, and the one that was open before. */
let [own, before]: [layer: State["layer"] | null, before: State["layer"]] = [null, ""];

/**
 * Opens the place of a stop, unless the layer that is open without the tour, or the one that the page
 * begins with, has its steps as well.
 */
function open(model: ModelData, stop: TourStop, keepsZoom: boolean): void {
	const place = parseLayer(stop.place);
	if (!stop.place || place === undefined) return;
	const stages = stagesOf(model, "prompt");
	const hasSteps = (layer: State["layer"]) => {
		const at = openPlace(model, layer);
		const stage = stages.find((x) =>
			typeof at === "number"
				? x.ranges.some(
						([first, last, step]) =>
							at >= first && at <= last && (at - first) % step === 0,
					)
				: x.name === at,
		);
		return stop.steps.every((x) => stage?.steps.some((y) => y.name === x));
	};
	if (appState.layer !== own) before = appState.layer;
	const layer = [before, initialState.layer].find(hasSteps) ?? place;
	own = layer === before ? null : layer;
	change({ layer, ...(!keepsZoom && { zoom: "" }) }, true);
}

/** The camera of the picture moves when another layer opens. */
const afterMotion = () =>
	Promise.allSettled(
		[...document.querySelectorAll(".plate-scene")].flatMap((x) =>
			x.getAnimations().map((motion) => motion.finished),
		),
	);

/** What stands in it shows the steps of the stop. */
export function WithTour({ model, children }: { model: ModelData; children: ComponentChildren }) {
	const state = useAppState("tour");
	const index = stopAt(model, state.tour);
	const [isOnPaper] = usePrintedState(() => false, true);
	const lit = useMemo(
		() => (index === null || isOnPaper ? NO_STEPS : new Set(tourOf(model)[index]!.steps)),
		[model, index, isOnPaper],
	);
	return <LitSteps.Provider value={lit}>{children}</LitSteps.Provider>;
}

/** Begins and ends the tour. */
export function TourButton({ model }: { model: ModelData }) {
	const state = useAppState("tour");
	const stops = tourOf(model);
	const isOpen = stopAt(model, state.tour) !== null;
	if (!stops.length) return null;
	return (
		<button
			type="button"
			class="button primary tour-start no-print"
			aria-expanded={isOpen}
			onClick={() => change({ tour: isOpen ? null : 1, quiz: "" })}
		>
			{isOpen ? "End the tour" : `Follow one token: ${stops.length} stops`}
		</button>
	);
}

export function Tour({ model }: { model: ModelData }) {
	const state = useAppState("tour");
	const index = stopAt(model, state.tour);
	if (index === null) return null;
	return (
		<>
			<Bar model={model} index={index} />
			<Handout model={model} />
		</>
	);
}

/** Escape ends the tour wherever the focus is, unless it closes something above it. */
function endOnEscape(event: KeyboardEvent): void {
	if (event.key !== "Escape" || event.defaultPrevented) return;
	if (document.querySelector("dialog[open]")) return;
	event.preventDefault();
	change({ tour: null });
}

function Bar({ model, index }: { model: ModelData; index: number }) {
	const stops = tourOf(model);
	const stop = stops[index]!;
	const { TourTokens: Line, TourValues: Values } = liveViews;
	const last = stops.length - 1;
	const ref = useRef<HTMLDivElement>(null);
	const isFirst = useRef(true);
	const [isPlaying, setPlaying] = useState(false);
	const isNarrow = useMedia("(max-width: 700px)");
	const isPaired = useMedia("(min-width: 701px) and (max-width: 1399px)");
	useGuide("tour");
	useLayoutEffect(() => {
		open(model, stop, isFirst.current);
		isFirst.current = false;
		ref.current!.scrollTop = 0;
	}, [stop]);
	useEffect(() => {
		let isShown = true;
		const whenDrawn = () => void afterMotion().then(() => isShown && reveal(ref.current!));
		const frame = requestAnimationFrame(() => requestAnimationFrame(whenDrawn));
		return () => {
			isShown = false;
			cancelAnimationFrame(frame);
		};
	}, [stop]);
	useEffect(() => {
		ref.current!.focus({ preventScroll: true });
		addEventListener("keydown", endOnEscape);
		return () => {
			removeEventListener("keydown", endOnEscape);
			if (own !== null && appState.layer === own) change({ layer: before }, true);
			own = null;
			// the focus was in what has gone
			requestAnimationFrame(() => {
				const start = document.querySelector<HTMLElement>("button.tour-start");
				if (document.activeElement === document.body) start?.focus({ preventScroll: true });
			});
		};
	}, []);
	useEffect(() => {
		// the same address again, without the layer that the tour has opened, and another width
		let width = innerWidth;
		const show = () => requestAnimationFrame(() => ref.current && reveal(ref.current));
		const again = () => {
			open(model, stop, true);
			show();
		};
		const resized = () => {
			if (innerWidth === width) return;
			width = innerWidth;
			setTimeout(show);
		};
		addEventListener("popstate", again);
		addEventListener("resize", resized);
		return () => {
			removeEventListener("popstate", again);
			removeEventListener("resize", resized);
		};
	}, [stop]);
	useEffect(() => {
		if (!isPlaying) return undefined;
		if (index === last) return setPlaying(false);
		const words = `${stop.what} ${stop.why}`.split(" ").length;
		const timer = setTimeout(() => goTo(index + 1), 2000 + MS_PER_WORD * words);
		return () => clearTimeout(timer);
	}, [isPlaying, index]);
	const move = (to: number) => {
		setPlaying(false);
		// what has the focus may go with its stop
		if (document.activeElement?.closest(".tour-body"))
			ref.current!.focus({ preventScroll: true });
		goTo(Math.max(0, Math.min(last, to)));
	};
	const play = () => (isStill() ? move(index + 1) : setPlaying(!isPlaying));
	const onKeyDown = (event: KeyboardEvent) => {
		if (event.ctrlKey || event.metaKey || event.altKey) return;
		const isTyping = (event.target as Element).matches("input");
		if (isTyping) return;
		const isButton = (event.target as Element).closest("button, summary") !== null;
		if (event.key === "ArrowRight") move(index + 1);
		else if (event.key === "ArrowLeft") move(index - 1);
		else if (event.key === "Home") move(0);
		else if (event.key === "End") move(last);
		else if (event.key === " " && !isButton) play();
		else return;
		event.preventDefault();
		event.stopPropagation();
	};
	useEffect(() => {
		// a click on the page takes the focus from the tour, not its keys
		const onPage = (event: KeyboardEvent) => {
			if (event.target === document.body || (event.target as Element).id === "content")
				onKeyDown(event);
		};
		addEventListener("keydown", onPage);
		return () => removeEventListener("keydown", onPage);
	});
	const text = (
		<div class="tour-text" aria-live="polite" aria-atomic="true">
			<span class="hidden">
				Stop {index + 1} of {stops.length}.
			</span>
			<h3>{stop.title}</h3>
			<p>{stop.what}</p>
			<p>
				<strong>Why?</strong> {stop.why}
			</p>
			{stop.formula && <Mathematics text={stop.formula} />}
			{index === 0 && !Values && <WhereValuesAre />}
		</div>
	);
	const values = Values ? (
		<Values model={model} stop={stop} />
	) : (
		<StopNumbers model={model} stop={stop} />
	);
	const shapes = <ShapeList stop={stop} isFolded={isPaired} />;
	const code = (
		<Code
			key={`code ${stop.name} ${isNarrow} ${isPaired}`}
			model={model}
			stop={stop}
			open={!isNarrow && !Values && !isPaired && linesOf(stop) < SHORT}
		/>
	);
	const questions = (
		<Questions
			key={stop.name}
			model={model}
			stop={stop}
			before={stops[index - 1]?.so_far ?? "0"}
		/>
	);
	return (
		<div
			ref={ref}
			class="tour no-print"
			role="region"
			tabIndex={-1}
			aria-label="Guided tour"
			data-tour={stop.name}
			data-numbers
			onKeyDown={onKeyDown}
		>
			{isNarrow ? (
				<Tabs
					key={stop.name}
					parts={{
						What: text,
						Values: (
							<>
								{values}
								{shapes}
								{code}
							</>
						),
						Question: questions,
					}}
				/>
			) : (
				<div class={`tour-body ${isPaired ? "paired" : "columns"}`}>
					<div>
						{text}
						{isPaired ? questions : code}
					</div>
					<div>
						{values}
						{isPaired && [shapes, code]}
					</div>
					{!isPaired && (
						<div>
							{questions}
							{shapes}
						</div>
					)}
				</div>
			)}
			<div class="tour-controls">
				<span class="tour-place">
					stop {index + 1} of {stops.length}
				</span>
				{Line ? (
					<Line model={model} />
				) : (
					<progress
						class="tour-progress"
						max={stops.length}
						value={index + 1}
						aria-hidden="true"
					/>
				)}
				<button
					type="button"
					class="button"
					tabIndex={-1} // the arrow key goes back as well
					data-tour-go="back"
					aria-disabled={index === 0}
					onClick={() => move(index - 1)}
				>
					Back
				</button>
				<button
					type="button"
					class="button"
					data-tour-go="next"
					aria-disabled={index === last}
					onClick={() => move(index + 1)}
				>
					Next
				</button>
				{!isStill() && (
					<button
						type="button"
						class="button"
						data-tour-go="play"
						aria-disabled={index === last}
						onClick={play}
					>
						{isPlaying ? "❚❚ Pause" : "▶ Play"}
					</button>
				)}
				<button
					type="button"
					class="button icon"
					tabIndex={-1} // Escape and the button above the picture end it as well
					aria-label="End the tour"
					data-tour-go="end"
					onClick={() => change({ tour: null })}
				>
					×
				</button>
			</div>
		</div>
	);
}

/** One part of a stop at a time, where there is little room. */
function Tabs({ parts }: { parts: Record<string, ComponentChildren> }) {
	const names = Object.keys(parts);
	const [shown, show] = useState(names[0]!);
	const ref = useRef<HTMLDivElement>(null);
	useLayoutEffect(() => {
		ref.current!.closest<HTMLElement>(".tour")!.dataset.part = shown;
	}, [shown]);
	return (
		<div ref={ref} class="tour-body">
			<div class="tour-tabs" role="tablist" aria-label="Parts of the stop">
				{names.map((x) => (
					<button
						key={x}
						type="button"
						role="tab"
						class="button"
						id={`tour-tab-${x}`}
						aria-selected={x === shown}
						aria-controls="tour-part"
						onClick={() => show(x)}
					>
						{x}
					</button>
				))}
			</div>
			<div id="tour-part" role="tabpanel" aria-labelledby={`tour-tab-${shown}`}>
				{parts[shown]}
			</div>
		</div>
	);
}

/** Without weights, a page has shapes alone. */
function WhereValuesAre() {
	return (
		<p class="caption">
			Shapes and code are those of this model. The page of the bundled model computes the same
			steps for your own text: <code>llamath serve embedded</code>
		</p>
	);
}

/** What is asked at the stop, one question at a time, and how the answer follows. */
function Questions({ model, stop, before }: { model: ModelData; stop: TourStop; before: string }) {
	const { questions } = stop;
	const [at, setAt] = useState(0);
	const [isSolved, setSolved] = useState(false);
	const question = questions[at];
	const next = (at + 1) % questions.length;
	return (
		<div class="tour-question">
			{question && (
				<AskedQuestion
					key={at}
					model={model}
					question={question}
					soFar={stop.so_far}
					isSolved={isSolved}
					solve={setSolved}
				>
					{questions.length > 1 && (
						<button
							type="button"
							class="button"
							data-tour-ask="next"
							onClick={() => {
								setAt(next);
								setSolved(false);
							}}
						>
							Question {next + 1} of {questions.length}
						</button>
					)}
				</AskedQuestion>
			)}
			{isSolved && question && question.kind !== "weights" && (
				<p class="tour-count">
					<Solution model={model} question={question} />
				</p>
			)}
			{isSolved && question && <p class="tour-why">{question.why}</p>}
			<p class="tour-count" aria-live="polite">
				{stop.adds === "0" || (isSolved && question?.kind === "weights") ? (
					<Count model={model} stop={stop} />
				) : (
					<>So far {before}</>
				)}
			</p>
		</div>
	);
}

/** The answer, and what it is in letters. */
function solved(model: ModelData, question: Question) {
	const letters = lettersOf(model, question);
	const answer = grouped(value(question.form, letters));
	return { answer, symbols: notation(question.form, letters, true) };
}

const isComputed = (model: ModelData, question: Question) => {
	const { answer, symbols } = solved(model, question);
	return symbols !== answer;
};

/** The answer, with the letters that it follows from. */
function Solution({ model, question }: { model: ModelData; question: Question }) {
	const { answer, symbols } = solved(model, question);
	return (
		<>
			{symbols !== answer && <i>{symbols} = </i>}
			{answer}
		</>
	);
}

const wholeOf = (text: string) => BigInt(text.replaceAll(",", ""));

function Count({ model, stop }: { model: ModelData; stop: TourStop }) {
	const total = tourOf(model).at(-1)!.so_far;
	if (stop.adds === "0") return <>Adds no parameters; so far {stop.so_far}</>;
	return (
		<>
			Adds {stop.symbols && stop.symbols !== stop.adds ? <i>{stop.symbols} = </i> : ""}
			<NumberButton
				label="parameters of this stop"
				data-tour-adds={stop.name}
				derive={() => ({
					title: `${stop.title}: parameters`,
					lines: [formula(stop.symbols, stop.numbers, stop.adds)],
				})}
			>
				{stop.adds}
			</NumberButton>
			, {share(wholeOf(stop.adds), wholeOf(total))} of all; so far {stop.so_far} of {total}
		</>
	);
}

function Code({ model, stop, open }: { model: ModelData; stop: TourStop; open: boolean }) {
	const lines = stop.code.flatMap(([first, ...texts]) =>
		texts.map((text, i) => ({ line: first + i, text })),
	);
	if (!lines.length) return null;
	const indent = Math.min(...lines.map((x) => x.text.search(/\S/)));
	return (
		<details class={`tour-code ${lines.length < SHORT ? "" : "wide"}`} open={open}>
			<summary class="caption">
				<WhoseCode model={model} />
			</summary>
			<ol>
				{lines.map((x) => (
					<li key={x.line} value={x.line}>
						<code>{x.text.slice(indent)}</code>
					</li>
				))}
			</ol>
		</details>
	);
}

const WhoseCode = ({ model }: { model: ModelData }) => (
	<>
		Code of {model.name}, as <code>llamath code</code> writes it, sizes in letters
	</>
);

/** Opens a layer for paper: the one that was open before a stop opened its own. */
function openForPaper(model: ModelData): void {
	const isLayer = (x: State["layer"] | undefined) =>
		typeof openPlace(model, x ?? "") === "number";
	const ofStop = tourOf(model).find((x) => /^\d+$/.test(x.place))?.place ?? "";
	const layer = [appState.layer, before].find(isLayer) ?? parseLayer(ofStop) ?? "";
	change({ layer, zoom: "" }, true);
}

/** All stops as a list, with what is asked and on a last page the answers, for paper. */
function Handout({ model }: { model: ModelData }) {
	const stops = tourOf(model);
	const [isOnPaper] = usePrintedState(() => false, true);
	const { TourTokens: Line, TourValues: Values } = liveViews;
	useEffect(() => {
		let [layer, zoom]: [State["layer"], string] = ["", ""];
		return whilePrinting(
			() => {
				({ layer, zoom } = appState);
				openForPaper(model);
			},
			() => change({ layer, zoom }, true),
		);
	}, [model]);
	return (
		<div class="tour-handout">
			<h2>Follow one token through {model.name}</h2>
			{isOnPaper && Line && <Line model={model} />}
			{stops.some((x) => x.code.length) && (
				<p class="caption">
					<WhoseCode model={model} />. Answers are on the last page.
				</p>
			)}
			{stops.map((x, i) => (
				<article key={x.name}>
					<h3>
						{i + 1}. {x.title}
					</h3>
					<div>
						<p>{x.what}</p>
						<p>
							<strong>Why?</strong> {x.why}
						</p>
						{x.formula && <Mathematics text={x.formula} />}
						<ShapeList stop={x} />
						{linesOf(x) <= BESIDE && <Code model={model} stop={x} open />}
					</div>
					<div>
						{isOnPaper && Values ? (
							<Values model={model} stop={x} />
						) : (
							<StopNumbers model={model} stop={x} />
						)}
						{x.questions.map((question, n) => (
							<p
								key={n}
								class={`tour-to-answer${isComputed(model, question) ? " computed" : ""}`}
							>
								<strong>{question.text}</strong>
							</p>
						))}
					</div>
					{linesOf(x) > BESIDE && <Code model={model} stop={x} open />}
				</article>
			))}
			<section class="tour-answers">
				<h2>Answers</h2>
				{stops.map((x, i) => (
					<article key={x.name}>
						<h3>
							{i + 1}. {x.title}
						</h3>
						<ul>
							{x.questions.map((question, n) => (
								<li key={n}>
									<Solution model={model} question={question} />. {question.why}
								</li>
							))}
						</ul>
						<p class="tour-count">
							{x.adds === "0"
								? "Adds no parameters"
								: `Adds ${[...new Set([x.symbols, x.numbers, x.adds])].filter(Boolean).join(" = ")}`}
							; so far {x.so_far}
						</p>
					</article>
				))}
			</section>
		</div>
	);
}
