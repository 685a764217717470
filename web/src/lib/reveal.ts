// Scrolls what is lit in the picture to where it can be seen.

const NARROW = 700;
/** The least height of a bar. */
const LEAST = 320;

/** Between the header and a bar that stays at the lower edge of the window. */
export function reveal(bar: HTMLElement): void {
	const panel = document.querySelector(".plate-panel")?.getBoundingClientRect();
	if (!panel) return;
	const boxes = [...document.querySelectorAll(".plate-panel .active")].map((x) =>
		x.getBoundingClientRect(),
	);
	const top = Math.min(...boxes.map((x) => x.top), ...(boxes.length ? [] : [panel.top]));
	const bottom = Math.max(...boxes.map((x) => x.bottom), panel.top);
	const header = document.querySelector("header")?.getBoundingClientRect().bottom ?? 0;
	const from = Math.max(0, header) + 8; // on phones the header scrolls away
	// a bar that scrolls leaves room for what is lit
	const room = innerHeight - from - 8 - (bottom - top);
	bar.style.maxHeight = "";
	if (innerWidth > NARROW && boxes.length && bar.getBoundingClientRect().height > room)
		bar.style.maxHeight = `${Math.max(room, LEAST)}px`;
	const to = innerHeight - bar.getBoundingClientRect().height - 8;
	if (panel.top >= from && panel.bottom <= to) return;
	const start = bottom - panel.top <= to - from ? panel.top : Math.min(top, bottom - (to - from));
	scrollBy({ top: start - from, behavior: "instant" });
}
