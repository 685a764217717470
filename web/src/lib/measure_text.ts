// The width of text in the page's own font: labels are measured, never guessed from their number of
// characters.
const context = document.createElement("canvas").getContext("2d")!;
const known = new Map<string, number>();
let family = "";

export function textWidth(text: string, size = 13, weight = 400): number {
	family ||= getComputedStyle(document.body).fontFamily;
	const key = `${size} ${weight} ${text}`;
	let width = known.get(key);
	if (width === undefined) {
		context.font = `${weight} ${size}px ${family}`;
		known.set(key, (width = context.measureText(text).width));
	}
	return width;
}
