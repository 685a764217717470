// The layout of the icicle: components and their matrices side by side, to scale, along one axis.
// What is too small for its label is magnified by a lens, and what is too small even there is left
// to words.
import { textWidth } from "../../lib/measure_text";
import { bySize, type Cell } from "./measures";

export interface Box {
	cell: Cell;
	x: number;
	y: number;
	width: number;
	height: number;
	/** The width of the part that is in use. */
	solid: number;
	/** The lines of its label with their positions, empty for slivers that the lens shows. */
	label: { text: string; x: number; y: number; bold: boolean; isTurned?: boolean }[];
}

export interface Icicle {
	width: number;
	height: number;
	boxes: Box[];
	/** The corners of the lens and its text. */
	lens?: {
		points: [number, number][];
		text: string;
		x: number;
		y: number;
		anchor: "start" | "end";
	};
	/** Cells that are named in words. */
	words: Cell[];
}

const GAP = 2;
const PAD = 8;
const LINE = 18;
/** The height of a box with one line of text, and the width of one with turned text. */
const [ROW, TURNED] = [16, 15];
const NAME = 14;
const SMALL = 13;
const BOLD = 650;

const SLIVER = 44;
/** So many matrices share a box at most. */
const MOST_JOINED = 4;
/** What is larger than this share has its name in the picture of a phone, which is longer for it. */
const NAMED_SHARE = 100n;
const PHONE_EXTENTS = [560, 720];

/** A name in at most so many lines, broken between words; undefined if it does not fit. */
function wrapped(text: string, room: number, rows: number): string[] | undefined {
	const lines: string[] = [];
	for (const word of text.split(" ")) {
		const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
		if (textWidth(longer, NAME, BOLD) <= room) lines.splice(-1, 1, longer);
		else if (textWidth(word, NAME, BOLD) <= room) lines.push(word);
		else return undefined;
	}
	return lines.length <= Math.max(rows - 1, 1) ? lines : undefined;
}

/**
 * An icicle that runs along an axis of `extent` pixels; rows are for wide screens, columns for
 * phones.
 */
class Layout {
	boxes: Box[] = [];
	words: Cell[] = [];

	constructor(
		readonly isColumns: boolean,
		/** Offsets and thicknesses of the two levels across the axis. */
		readonly bands: [number, number][],
		readonly joinCells: (cells: Cell[]) => Cell,
	) {}

	private box(cell: Cell, level: number, start: number, extent: number): Box {
		const gap = Math.min(GAP, extent * 0.3);
		const [offset, thickness] = this.bands[level]!;
		const sides = this.isColumns
			? { x: offset, y: start, width: thickness - GAP, height: extent - gap }
			: { x: start, y: offset, width: extent - gap, height: thickness - GAP };
		const solid = cell.size
			? (sides.width * Number((cell.active * 1_000_000n) / cell.size)) / 1_000_000
			: 0;
		return { cell, ...sides, solid, label: [] };
	}

	/**
	 * Writes the label into a box: the name, and what fits below or beside it; turned where the
	 * box is too narrow; false if the name does not fit, or no number in a box of the first level.
	 */
	private label(box: Box, level: number): boolean {
		if (this.labelAcross(box, level)) return true;
		box.label = [];
		if (this.isColumns || box.width < TURNED || box.solid < box.width) return false;
		const { name, short, lines } = box.cell;
		const numbers = [...(lines.at(-1) ?? []), ""];
		const room = box.height - 4;
		const found = [name, short]
			.flatMap((x) => numbers.map((y): [string, string] => [x, y]))
			.find(
				([x, y]) => textWidth(x, SMALL, BOLD) + (y ? 6 + textWidth(y, SMALL) : 0) <= room,
			);
		if (!found) return false;
		const [x, y] = [box.x + box.width / 2 + 4.5, box.y + box.height - 3];
		const used = textWidth(found[0], SMALL, BOLD) + 6;
		box.label = [
			{ text: found[0], x, y, bold: true, isTurned: true },
			...(found[1] ? [{ text: found[1], x, y: y - used, bold: false, isTurned: true }] : []),
		];
		return true;
	}

	private labelAcross(box: Box, level: number): boolean {
		const start = box.solid < box.width * 0.5 ? box.solid : 0;
		const rows = box.height < ROW ? 0 : Math.max(1, Math.floor((box.height - 5) / LINE));
		const top = box.y + (rows > 1 ? 19 : box.height / 2 + 5);
		const fits = (alternatives: string[], space: number) =>
			alternatives.find((text) => textWidth(text, SMALL) <= space);
		// a narrow box has narrow margins
		const choices = [PAD, 4].flatMap((pad) =>
			[box.cell.name, box.cell.short].map((text) => ({
				left: start + pad,
				name: wrapped(text, box.width - start - pad - 3, rows),
			})),
		);
		const hasNumber = (x: (typeof choices)[number]) =>
			rows > 1 ||
			fits(
				box.cell.lines.at(-1) ?? [],
				box.width - x.left - 13 - textWidth(x.name![0]!, NAME, BOLD),
			);
		const named = choices.filter((x) => x.name);
		const chosen = named.find((x) => hasNumber(x)) ?? named[0];
		if (!chosen) return false;
		const { left, name } = chosen as { left: number; name: string[] };
		const [x, room] = [box.x + left, box.width - left - 3];
		if (rows === 1) {
			const used = textWidth(name[0]!, NAME, BOLD) + 10;
			const text = fits(box.cell.lines.at(-1) ?? [], room - used);
			box.label = [
				{ text: name[0]!, x, y: top, bold: true },
				...(text ? [{ text, x: x + used, y: top, bold: false }] : []),
			];
			return Boolean(text) || level > 0;
		}
		box.label = name.map((text, i) => ({ text, x, y: top + i * LINE, bold: true }));
		for (const alternatives of box.cell.lines) {
			const text = box.label.length < rows && fits(alternatives, room);
			if (text) box.label.push({ text, x, y: top + box.label.length * LINE, bold: false });
		}
		return box.label.length > name.length;
	}

	/** Whether a component would have room for its name and number. */
	fits(cell: Cell, extent: number): boolean {
		// in a sliver none of several matrices has its name
		if (!this.isColumns && extent < SLIVER && cell.cells.length > 2) return false;
		return this.label(this.box(cell, 0, 0, extent), 0);
	}

	/** Places a component with its matrices. */
	component(cell: Cell, start: number, extent: number): void {
		const box = this.box(cell, 0, start, extent);
		this.label(box, 0);
		this.boxes.push(box);
		const scale = (n: bigint) => (extent * Number((n * 10n ** 9n) / cell.size)) / 10 ** 9;
		let at = start;
		const rest: Cell[] = [];
		for (const x of cell.cells) {
			const inner = this.box(x, 1, at, scale(x.size));
			if (rest.length || !this.label(inner, 1)) rest.push(x);
			else {
				this.boxes.push(inner);
				at += scale(x.size);
			}
		}
		while (rest.length > 1) {
			const joined = this.firstTogether(rest, at, scale);
			if (!joined) break;
			this.boxes.push(joined.box);
			at += joined.extent;
			rest.splice(0, joined.count);
		}
		if (rest.length) this.together(rest, 1, at, start + extent - at);
	}

	/** The fewest of these matrices, from the first one, whose common box has their names and number. */
	private firstTogether(rest: Cell[], start: number, scale: (n: bigint) => number) {
		for (let count = 1; count <= Math.min(MOST_JOINED, rest.length); count++) {
			const cells = rest.slice(0, count);
			const extent = scale(cells.reduce((a, x) => a + x.size, 0n));
			const box = this.box(count > 1 ? this.joinCells(cells) : cells[0]!, 1, start, extent);
			if (this.label(box, 1) && box.label.length > 1) return { box, extent, count };
		}
		return null;
	}

	/**
	 * Places what is too small for a label of its own: together, with a common label or their
	 * number, which words name.
	 */
	together(rest: Cell[], level: number, start: number, extent: number): void {
		const common = rest.length > 1 ? this.joinCells(rest) : rest[0]!;
		const box = this.box(common, level, start, extent);
		if (extent > 0.4) {
			this.boxes.push(box);
			if (!level) this.boxes.push(this.box(common, 1, start, extent));
		}
		if (rest.length > 1 && this.label(box, level)) return;
		this.words.push(...rest);
		const name = `${rest.length} smaller`;
		const named = { ...box, cell: { ...common, name, short: name } };
		if (rest.length > 1 && this.label(named, level)) box.label = named.label;
	}

	/** Places a component that the lens shows: its colour alone. */
	sliver(cell: Cell, start: number, extent: number): void {
		if (extent > 0.4)
			for (const level of [0, 1]) this.boxes.push(this.box(cell, level, start, extent));
	}
}

const ROW_BANDS = [52, 86] as const;
/** Of a window in which labels are turned. */
const NARROW_BANDS = [64, 100] as const;

export function layIcicle(
	cells: Cell[],
	whole: bigint,
	width: number,
	joinCells: (cells: Cell[]) => Cell,
	shareText: (n: bigint) => string,
): Icicle {
	const isColumns = width < 640;
	const rowBands = width < 1000 ? NARROW_BANDS : ROW_BANDS;
	const level0 = isColumns ? Math.round(width * 0.42) : rowBands[0];
	const bands = (offset: number): [number, number][] =>
		isColumns
			? [
					[0, level0],
					[level0, width - level0],
				]
			: [
					[offset, level0],
					[offset + level0, rowBands[1]],
				];
	const thickness = isColumns ? width : rowBands[0] + rowBands[1];
	const scaled = (n: bigint, of: bigint, extent: number) =>
		(extent * Number((n * 10n ** 9n) / of)) / 10 ** 9;
	const place = (layout: Layout, list: Cell[], of: bigint, start: number, extent: number) => {
		const small: Cell[] = [];
		let at = start;
		for (const x of list) {
			const room = scaled(x.size, of, extent);
			if (!layout.fits(x, room)) small.push(x);
			else {
				layout.component(x, at, room);
				at += room;
			}
		}
		return { small, at };
	};
	const layPlain = (extent: number) => {
		const layout = new Layout(isColumns, bands(0), joinCells);
		const { small, at } = place(layout, cells, whole, 0, extent);
		return { layout, small, at, extent };
	};
	const isNamed = ({ layout }: ReturnType<typeof layPlain>) =>
		!layout.words.some((x) => x.size * NAMED_SHARE > whole);
	const candidates = (isColumns ? PHONE_EXTENTS : [width]).map(layPlain);
	const chosen = candidates.find(isNamed) ?? candidates[0]!;
	const { layout: plain, small: unlabelled, at: end, extent: plainExtent } = chosen;
	// a lens is for what is too small without one; on phones the whole is then shorter
	const [mainExtent, lensExtent] = isColumns ? [400, 260] : [width, width];
	const main = new Layout(isColumns, bands(0), joinCells);
	const total = (list: Cell[]) => list.reduce((a, x) => a + x.size, 0n);
	const magnified = unlabelled.filter((x) =>
		main.fits(x, scaled(x.size, total(unlabelled), lensExtent)),
	);
	const small = cells.filter((x) => !main.fits(x, scaled(x.size, whole, mainExtent)));
	const rest = total(small);
	if (magnified.length < 2) {
		if (unlabelled.length) plain.together(unlabelled, 0, end, plainExtent - end);
		return {
			width,
			height: isColumns ? plainExtent : thickness - GAP,
			boxes: plain.boxes,
			words: plain.words.sort(bySize),
		};
	}
	let at = 0;
	for (const x of [...cells.filter((y) => !small.includes(y)), ...small]) {
		const room = scaled(x.size, whole, mainExtent);
		if (small.includes(x)) main.sliver(x, at, room);
		else main.component(x, at, room);
		at += room;
	}
	const restExtent = scaled(rest, whole, mainExtent);
	const gap = 40;
	const second = isColumns ? mainExtent + gap : thickness + gap;
	const lens = new Layout(isColumns, bands(isColumns ? 0 : second), joinCells);
	const found = place(lens, small, rest, isColumns ? second : 0, lensExtent);
	if (found.small.length)
		lens.together(found.small, 0, found.at, (isColumns ? second : 0) + lensExtent - found.at);
	const factor = (lensExtent / mainExtent) * (Number((whole * 1000n) / rest) / 1000);
	const text = `The other ${shareText(rest)}, magnified ${factor < 10 ? factor.toFixed(1) : Math.round(factor).toLocaleString("en-US")} ×`;
	const points: [number, number][] = isColumns
		? [
				[0, mainExtent - restExtent],
				[0, second - 2],
				[width - GAP, second - 2],
				[width - GAP, mainExtent - restExtent],
			]
		: [
				[mainExtent - restExtent, thickness],
				[width, thickness],
				[width, second - 2],
				[0, second - 2],
			];
	return {
		width,
		height: isColumns ? second + lensExtent : second + thickness - GAP,
		boxes: [...main.boxes, ...lens.boxes],
		lens: {
			points,
			text,
			x: isColumns ? PAD : width - 14,
			y: second - 14,
			anchor: isColumns ? "start" : "end",
		},
		words: [...main.words, ...lens.words].sort(bySize),
	};
}
