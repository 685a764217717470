// What can wait is done in turns: each in a task of its own, after the browser has shown what could
// not wait. While anything waits, the page is marked as busy; before anyone needs the whole page,
// all of it is done at once.
import { drawAtOnce } from "./printing";

type Turn = () => void;

const waiting = new Set<Turn>();
const whenAllAreDone: (() => void)[] = [];
let isScheduled = false;
/**
 * A tab in the background draws no frames, but its page shall be whole when it comes to the front.
 */
const LONGEST_FRAME_MS = 200;
/** The time at which the page was first drawn as a whole. */
const WHOLE = "whole";

/** Calls a function in a task after the next frame. */
function afterFrame(act: () => void): void {
	let isDone = false;
	const once = () => {
		if (!isDone) act();
		isDone = true;
	};
	requestAnimationFrame(() => setTimeout(once));
	setTimeout(once, LONGEST_FRAME_MS);
}

const reasons = new Set<string>();

/** For programs that look at the page: its element has `data-busy` while anything waits. */
export function markBusy(reason: string, isBusy: boolean): void {
	if (isBusy) reasons.add(reason);
	else reasons.delete(reason);
	document.getElementById("page")?.toggleAttribute("data-busy", reasons.size > 0);
}

function takeNext(): void {
	const [next] = waiting;
	if (!next) return end();
	waiting.delete(next);
	next();
	// what this turn changes is drawn at the end of its task
	setTimeout(takeNext);
}

function end(): void {
	isScheduled = false;
	markBusy("turns", false);
	if (!performance.getEntriesByName(WHOLE).length) performance.mark(WHOLE);
	for (const act of whenAllAreDone.splice(0)) act();
}

/**
 * Does something in a turn of its own, after those that wait already; returns a function that gives
 * the turn back. What is drawn for paper, such as a folded section, has no time to wait.
 */
export function waitForTurn(turn: Turn): () => void {
	if (document.documentElement.dataset.medium === "paper") {
		turn();
		return () => {};
	}
	waiting.add(turn);
	if (!isScheduled) {
		isScheduled = true;
		markBusy("turns", true);
		afterFrame(takeNext);
	}
	return () => void waiting.delete(turn);
}

/** Does all that waits, and draws it. */
export function takeAllTurns(): void {
	if (!waiting.size) return;
	drawAtOnce(() => {
		for (const turn of waiting) {
			waiting.delete(turn);
			turn();
		}
	});
}

/** Calls a function when nothing waits any more. */
export function whenWhole(act: () => void): void {
	requestAnimationFrame(() => (isScheduled ? whenAllAreDone.push(act) : act()));
}

addEventListener("beforeprint", takeAllTurns);
