// A stacked bar for each model: memory of the most loaded GPU, with the memory of GPUs as vertical lines.
import { gibibytes, percent } from "./expressions.js";
import { line, rect, s, svgText } from "./dom.js";

const CHAR_WIDTH = 7.7;

// GPUs of nearly equal memory share a line and a label.
export function gpuLabels(cards, toX, minDistance) {
	const labels = [];
	for (const card of cards.toSorted((a, b) => Number(BigInt(a.memory) - BigInt(b.memory)))) {
		const place = toX(BigInt(card.memory));
		const last = labels.at(-1);
		if (last && Math.abs(place - last.place) < minDistance) last.cards.push(card);
		else labels.push({ place, cards: [card] });
	}
	return labels.map((x) => ({ ...x, text: x.cards.length > 2 ? `${x.cards[0].name} to ${x.cards.at(-1).name}` : x.cards.map((y) => y.name).join(", ") }));
}

function stackedBar(memory, parts, toX, top, label, gpuLines) {
	const shapes = [];
	let x = 0;
	for (const part of parts) {
		const width = toX(memory[part]);
		shapes.push(rect(x, top, Math.max(width, memory[part] ? 0.5 : 0), 40, part, s("title", `${part} ${gibibytes(memory[part])}`)));
		const textWidth = part.length * CHAR_WIDTH;
		const places = [x + 6, x + (width - textWidth) / 2, x + width - textWidth - 6];
		const textLeft = places.find((left) => !gpuLines.some((line) => line > left - 3 && line < left + textWidth + 3)) ?? places[0];
		if (width > textWidth + 12) shapes.push(svgText(textLeft, top + 25, part, null));
		x += width;
	}
	return [...shapes, label && svgText(0, top - 6, label, "small halo")];
}

function placeLabels(cards, toX, width) {
	const ends = [];
	const labels = gpuLabels(cards, toX, 12).map(({ place, text }) => {
		const left = Math.max(Math.min(place - text.length * CHAR_WIDTH * 0.45, width - text.length * CHAR_WIDTH * 0.9), 0);
		const freeRow = ends.findIndex((x) => x <= left);
		const row = freeRow < 0 ? ends.length : freeRow;
		ends[row] = left + text.length * CHAR_WIDTH * 0.9 + 8;
		return { place, text, left, row };
	});
	return [labels, ends.length * 17];
}

// items: {label, found}; `draw` comes from layeredSvg
export function memoryBars(draw, items, parts, cards, width) {
	const isComparison = items.length > 1;
	const maxTotal = items.map((x) => x.memory.total).reduce((a, x) => (x > a ? x : a));
	const visibleCards = cards.filter((x, i) => BigInt(x.memory) <= maxTotal * 4n || i === 0);
	const end = [maxTotal, ...visibleCards.map((x) => BigInt(x.memory))].reduce((a, x) => (x > a ? x : a));
	const toX = (n) => (Number((n * 1_000_000n) / end) * (width - 12)) / 1_000_000;
	const [labels, labelHeight] = placeLabels(visibleCards, toX, width);
	const [step, top] = isComparison ? [66, labelHeight + 22] : [48, labelHeight + 8];
	const height = top + step * items.length;
	const drawLabels = () => labels.flatMap(({ place, text, left, row }) => [line(place, row * 17 + 16, place, height, "card"), svgText(left, row * 17 + 12, text)]);
	const summary = items.map((x) => `${x.label}: ${gibibytes(x.memory.total)} on the most loaded GPU, ${parts.map((part) => `${part} ${percent(x.memory[part], x.memory.total)}`).join(", ")}`);
	return draw({ viewBox: `0 0 ${width} ${height}`, "aria-label": summary.join("; "), class: "bar" }, [
		[undefined, () => items.flatMap((x, i) => stackedBar(x.memory, parts, toX, top + step * i, isComparison ? x.label : "", labels.map((y) => y.place)))],
		[`${end} ${visibleCards.length} ${width}`, drawLabels],
	]);
}
