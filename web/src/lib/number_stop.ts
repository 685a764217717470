// The numbers of a part of the page that `data-numbers` marks are one tab stop; arrow keys, Home
// and End lead from number to number. The stop is kept in the document: numbers come and go in many
// components, and no one of them knows the others.

const NUMBERS = ".number[data-stop]";
const STOP = `${NUMBERS}[tabindex="0"]`;
const groupOf = (number: Element) => number.closest<HTMLElement>("[data-numbers]");

function stopAt(number: HTMLElement, group: HTMLElement): void {
	for (const x of group.querySelectorAll<HTMLElement>(STOP)) x.tabIndex = -1;
	number.tabIndex = 0;
}

/** Makes a number part of its group; returns a function for its end. */
export function joinNumbers(number: HTMLElement): (() => void) | undefined {
	const group = groupOf(number);
	if (!group) return undefined;
	number.dataset.stop = "";
	const stop = group.querySelector(STOP);
	const isFirst =
		!stop ||
		(stop !== document.activeElement &&
			Boolean(number.compareDocumentPosition(stop) & Node.DOCUMENT_POSITION_FOLLOWING));
	if (isFirst) stopAt(number, group);
	else number.tabIndex = -1;
	return () => {
		if (number.tabIndex === 0)
			[...group.querySelectorAll<HTMLElement>(NUMBERS)]
				.find((x) => x !== number)
				?.setAttribute("tabindex", "0");
	};
}

const ROW = 12;

/** The nearest number in the rows above or below. */
function vertically(from: HTMLElement, all: HTMLElement[], sign: number): HTMLElement | undefined {
	const middle = (x: HTMLElement) => {
		const { left, top, width, height } = x.getBoundingClientRect();
		return [left + width / 2, sign * (top + height / 2)] as const;
	};
	const [x0, y0] = middle(from);
	const beyond = all.map((x) => [x, ...middle(x)] as const).filter((x) => x[2] > y0 + ROW);
	const row = Math.min(...beyond.map((x) => x[2]));
	return beyond
		.filter((x) => x[2] < row + ROW)
		.toSorted((a, b) => Math.abs(a[1] - x0) - Math.abs(b[1] - x0))[0]?.[0];
}

/** Arrow keys, Home and End move from a number to another of its group. */
export function moveToNumber(event: KeyboardEvent): void {
	const number = event.currentTarget as HTMLElement;
	const group = groupOf(number);
	if (!group || !("stop" in number.dataset)) return;
	const all = [...group.querySelectorAll<HTMLElement>(NUMBERS)].filter((x) =>
		x.checkVisibility(),
	);
	const i = all.indexOf(number);
	const next = {
		ArrowRight: all[i + 1],
		ArrowLeft: all[i - 1],
		ArrowDown: vertically(number, all, 1),
		ArrowUp: vertically(number, all, -1),
		Home: all[0],
		End: all.at(-1),
	}[event.key];
	if (!next) return;
	event.preventDefault();
	next.focus();
}

/** The number that has the focus is its group's tab stop. */
export function stopHere(event: FocusEvent): void {
	const number = event.currentTarget as HTMLElement;
	const group = groupOf(number);
	if (group && "stop" in number.dataset) stopAt(number, group);
}
