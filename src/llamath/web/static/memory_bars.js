// A stacked bar for each model: memory of the most loaded GPU, with the memory of GPUs as vertical lines.
import { gibibytes, percent } from "./forms.js";
import { line, rect, s, svgText } from "./dom.js";

const WIDE = 7.7;

// GPUs of nearly equal memory share a line and a label.
export function gpuLabels(cards, at, apart) {
	const made = [];
	for (const card of cards.toSorted((a, b) => Number(BigInt(a.memory) - BigInt(b.memory)))) {
		const place = at(BigInt(card.memory));
		const last = made.at(-1);
		if (last && Math.abs(place - last.place) < apart) last.cards.push(card);
		else made.push({ place, cards: [card] });
	}
	return made.map((x) => ({ ...x, text: x.cards.length > 2 ? `${x.cards[0].name} to ${x.cards.at(-1).name}` : x.cards.map((y) => y.name).join(", ") }));
}

function stacked(found, parts, at, top, label, across) {
	const shapes = [];
	let x = 0;
	for (const part of parts) {
		const wide = at(found[part]);
		shapes.push(rect(x, top, Math.max(wide, found[part] ? 0.5 : 0), 40, part, s("title", `${part} ${gibibytes(found[part])}`)));
		const long = part.length * WIDE;
		const places = [x + 6, x + (wide - long) / 2, x + wide - long - 6];
		const free = places.find((left) => !across.some((line) => line > left - 3 && line < left + long + 3)) ?? places[0];
		if (wide > long + 12) shapes.push(svgText(free, top + 25, part, null));
		x += wide;
	}
	return [...shapes, label && svgText(0, top - 6, label, "small halo")];
}

function placed(cards, at, width) {
	const ends = [];
	const made = gpuLabels(cards, at, 12).map(({ place, text }) => {
		const left = Math.max(Math.min(place - text.length * WIDE * 0.45, width - text.length * WIDE * 0.9), 0);
		const free = ends.findIndex((x) => x <= left);
		const row = free < 0 ? ends.length : free;
		ends[row] = left + text.length * WIDE * 0.9 + 8;
		return { place, text, left, row };
	});
	return [made, ends.length * 17];
}

// items: {label, found}; `draw` comes from layeredSvg
export function memoryBars(draw, items, parts, cards, width) {
	const several = items.length > 1;
	const most = items.map((x) => x.found.total).reduce((a, x) => (x > a ? x : a));
	const room = cards.filter((x, i) => BigInt(x.memory) <= most * 4n || i === 0);
	const end = [most, ...room.map((x) => BigInt(x.memory))].reduce((a, x) => (x > a ? x : a));
	const at = (n) => (Number((n * 1_000_000n) / end) * (width - 12)) / 1_000_000;
	const [labels, above] = placed(room, at, width);
	const [step, top] = several ? [66, above + 22] : [48, above + 8];
	const height = top + step * items.length;
	const across = () => labels.flatMap(({ place, text, left, row }) => [line(place, row * 17 + 16, place, height, "card"), svgText(left, row * 17 + 12, text)]);
	const spoken = items.map((x) => `${x.label}: ${gibibytes(x.found.total)} on the most loaded GPU, ${parts.map((part) => `${part} ${percent(x.found[part], x.found.total)}`).join(", ")}`);
	return draw({ viewBox: `0 0 ${width} ${height}`, "aria-label": spoken.join("; "), class: "bar" }, [
		[undefined, () => items.flatMap((x, i) => stacked(x.found, parts, at, top + step * i, several ? x.label : "", labels.map((y) => y.place)))],
		[`${end} ${room.length} ${width}`, across],
	]);
}
