// The size of each node of the picture at a scale, with the places of its rectangles and labels,
// which are measured, never guessed.
import { notation } from "../../lib/expressions";
import { grouped } from "../../lib/format";
import { textWidth } from "../../lib/measure_text";
import type { Matrix, PlateNode } from "./contract";
import {
	asNumber,
	leafOf,
	mapSides,
	sidesOf,
	type HeadGroups,
	type Stage,
	type WeightUse,
} from "./plate_model";

type Pair = readonly [x: number, y: number];

export interface Label {
	x: number;
	y: number;
	text: string;
	anchor: "start" | "middle" | "end";
	bold?: boolean;
	muted?: boolean;
	/** The group of weights whose fill it stands on. */
	on?: string;
	cache?: boolean;
}

export interface MatrixBox {
	x: number;
	y: number;
	w: number;
	h: number;
	matrix: Matrix;
	/** Further sheets behind it: the experts. */
	sheets: number;
	/** The size of the same matrix in another model, around the same center. */
	ghost?: { w: number; h: number };
}

export interface Spec {
	node: PlateNode;
	w: number;
	h: number;
	/** Where wires enter and leave, from the top and from the left. */
	portY: number;
	portX: number;
	boxes: MatrixBox[];
	labels: Label[];
	circle?: { x: number; y: number; symbol: "+" | "×"; from?: string };
	/** Where wires end: those from some nodes, with the points after their end, and all others. */
	entries?: {
		at: Map<string, Pair>;
		tail?: Map<string, Pair[]>;
		others?: [from: Pair, to: Pair];
	};
	bar?: { x: number; y: number; w: number; h: number };
	panel?: { x: number; y: number; w: number; h: number };
	heads?: {
		x: number;
		y: number;
		w: number;
		h: number;
		many: number;
		few: number;
		cached: boolean;
		isUnpacked: boolean;
		keysFirst: boolean;
	};
	cells?: { x: number; y: number; w: number; h: number };
	experts?: {
		x: number;
		y: number;
		cell: number;
		columns: number;
		n: number;
		k: number;
		groups: number;
	};
}

/**
 * Beside a matrix, labels take width instead of height: less in one line below the wire, least in
 * one line over it.
 */
export type LabelPlace = "below" | "beside" | "in line" | "over";

export interface TextOptions {
	letters: boolean;
	nameOf: (path: string) => string;
	/** How the layer compares with one of another model. */
	other?: Comparison;
}

export interface MeasureOptions extends TextOptions {
	/** The text of each matrix, which is the same at all scales. */
	textOf: (matrix: Matrix) => MatrixText;
	/** Pixels per row or column of a matrix. */
	scale: number;
	/**
	 * The width of the residual stream, which runs across in every matrix that reads or writes it.
	 */
	width: number;
	stage: Stage;
	isNarrow: boolean;
	/** Leaves out what is also said elsewhere, to save width. */
	isTight: boolean;
	/** Whether the flow is downwards. */
	isDown: boolean;
	/** Whether branches stand below each other, each on its own line. */
	isRow: boolean;
	labels: LabelPlace;
}

/** What a picture of a layer says of the corresponding layer of another model. */
export interface Comparison {
	/** Its matrix in the place of one that differs. */
	matrixOf: (matrix: Matrix) => WeightUse | null;
	/** Lines below a matrix. */
	linesOf: (matrix: Matrix) => string[];
	/** Lines below anything else. */
	notesOf: (node: PlateNode) => string[];
}

const LINE = 16;
const SHEET = 4;
export const MIN_BOX = 4;

/** Breaks a text into lines that are not wider than a width. */
export function wrapText(text: string, width: number, size = 13): string[] {
	const lines: string[] = [];
	let line = "";
	for (const word of text.split(" ")) {
		const longer = line ? `${line} ${word}` : word;
		if (line && textWidth(longer, size) > width) {
			lines.push(line);
			line = word;
		} else line = longer;
	}
	return line ? [...lines, line] : lines;
}

export function shapeText({ use }: Matrix, letters: boolean): [string, string] {
	const sides = letters ? use.dims : use.shape.map((n) => grouped(n));
	const [outputs, inputs] = mapSides(use, sides);
	return [`${inputs.join(" × ")} →`, outputs.join(" × ")];
}

/** The lines of a matrix, and in narrow columns, with the width of the widest one. */
export interface MatrixText {
	lines: string[];
	width: number;
	narrowLines: string[];
	narrowWidth: number;
}

const widthOfLine = (text: string, place: number) => textWidth(text, 13, place ? 400 : 650);
const widest = (lines: readonly string[]) => Math.max(...lines.map(widthOfLine));

export function matrixText(matrix: Matrix, options: TextOptions): MatrixText {
	const lines = matrixLines(matrix, options);
	const [from, to] = shapeText(matrix, options.letters);
	const narrowLines = [
		lines[0]!,
		from,
		to,
		...lines.slice(2).flatMap((x) => x.split(/(?<=,) |(?<=→) /)),
	];
	return { lines, width: widest(lines), narrowLines, narrowWidth: widest(narrowLines) };
}

function matrixLines(matrix: Matrix, { letters, nameOf, other }: TextOptions): string[] {
	const { use } = matrix;
	const [from, to] = shapeText(matrix, letters);
	// of experts that are chosen, the picture of the choice says how many
	const isRepeated = BigInt(use.copies) > 1n && use.live === use.copies;
	const copies = isRepeated ? [`× ${grouped(use.copies)}`] : [];
	return [
		nameOf(use.path),
		`${from} ${to}`,
		...copies,
		...(use.tied ? ["tied"] : []),
		...(other?.linesOf(matrix) ?? []),
	];
}

/** Width and height of a matrix: the residual stream runs across. */
function drawnSize(use: WeightUse, { scale, width }: MeasureOptions): [number, number] {
	const [outputs, inputs] = sidesOf(use.shape).map((side) =>
		side.reduce((n, x) => n * Number(x), 1),
	) as [number, number];
	const [across, down] =
		outputs === width && inputs !== width ? [outputs, inputs] : [inputs, outputs];
	return [Math.max(MIN_BOX, across * scale), Math.max(MIN_BOX, down * scale)];
}

export function measure(node: PlateNode, options: MeasureOptions): Spec {
	switch (node.kind) {
		case "matrix":
			return measureMatrices(node, options);
		case "heads":
			return measureHeads(node, options);
		case "experts":
			return measureExperts(node, options);
		case "norm":
			return measureNorm(node, options);
		case "cache":
			return measureCache(node, options);
		default:
			return measureOperation(node, options);
	}
}

/**
 * What the steps of a matrix's node do besides the product: norms, rotary embedding, activation.
 */
function notesOf(node: PlateNode): string[] {
	const notes = node.steps
		.filter((x) => !node.matrices.some((y) => y.step === x))
		.map((x) =>
			x.kind === "rope"
				? "RoPE"
				: x.kind === "view"
					? ""
					: x.kind === "multiply"
						? x.does
						: x.kind === "norm"
							? /norm$/i.test(x.does)
								? x.does
								: "L2 norm"
							: /^[\w ]+:/.test(x.does)
								? x.does.replace(/:.*/, "")
								: x.does.replace(/^(\w+)\([^()]*\)$/, "$1"),
		);
	return [...new Set(notes.filter(Boolean))];
}

/** What the letters of recurrent mixers stand for. */
const LETTERS: Record<string, string> = {
	alpha: "decay of the state",
	beta: "how much is written",
	z: "gates the output",
	dt: "step size",
	dt_up: "step size",
	b: "writes to the state",
	c: "reads the state",
};

function measureMatrices(node: PlateNode, options: MeasureOptions): Spec {
	const spec: Spec = { node, w: 0, h: 0, portX: 0, portY: 0, boxes: [], labels: [] };
	const columns = node.matrices.map((matrix) => {
		const [boxWidth, boxHeight] = drawnSize(matrix.use, options);
		const elsewhere = options.other?.matrixOf(matrix);
		const ghost = elsewhere ? drawnSize(elsewhere, options) : null;
		const [w, h] = [Math.max(boxWidth, ghost?.[0] ?? 0), Math.max(boxHeight, ghost?.[1] ?? 0)];
		const { lines, width: text, narrowLines, narrowWidth: narrowText } = options.textOf(matrix);
		const sheets = BigInt(matrix.use.copies) > 1n ? 2 : 0;
		const inside = [lines, narrowLines].find(
			(x, i) => (i ? narrowText : text) + 10 <= boxWidth && x.length * LINE + 8 <= boxHeight,
		);
		const [title, size, ...rest] = lines as [string, string];
		// beside its box, above and below the wire that leaves it; or above it alone
		const isTall = boxHeight / 2 > narrowLines.length * LINE + 6;
		const beside =
			inside || ghost || options.isDown || (options.labels === "below" && !isTall)
				? null
				: isTall
					? { above: narrowLines, below: [] as string[] }
					: { above: [title], below: [size, ...rest] };
		const besideWidth = beside
			? 6 +
				Math.max(
					...beside.above.map((x, i) => textWidth(x, 13, i ? 400 : 650)),
					...beside.below.map((x) => textWidth(x)),
				)
			: 0;
		const below =
			inside || beside
				? []
				: text >
					  Math.max(
							w,
							options.isNarrow || options.isTight ? 60 : options.isRow ? 104 : 84,
					  )
					? narrowLines
					: lines;
		const belowWidth = inside || beside ? 0 : below === lines ? text : narrowText;
		return {
			matrix,
			w,
			h,
			boxWidth,
			boxHeight,
			ghost,
			sheets,
			inside,
			beside,
			below,
			width: Math.max(w + sheets * SHEET + besideWidth, belowWidth),
		};
	});
	const top = Math.max(...columns.map((x) => x.sheets)) * SHEET;
	const height = Math.max(...columns.map((x) => x.h));
	let x = 0;
	for (const column of columns) {
		const left = column.beside ? x : x + (column.width - column.w - column.sheets * SHEET) / 2;
		const y = top + (height - column.h) / 2;
		const box = {
			x: left + (column.w - column.boxWidth) / 2,
			y: y + (column.h - column.boxHeight) / 2,
			w: column.boxWidth,
			h: column.boxHeight,
		};
		spec.boxes.push({
			...box,
			matrix: column.matrix,
			sheets: column.sheets,
			...(column.ghost && { ghost: { w: column.ghost[0], h: column.ghost[1] } }),
		});
		const center = left + column.w / 2;
		const lines = column.inside ?? column.below;
		const start = column.inside
			? y + column.h / 2 - (lines.length * LINE) / 2 + 12
			: top + height + 15;
		lines.forEach((text, i) =>
			spec.labels.push({
				x: center,
				y: start + i * LINE,
				text,
				anchor: "middle",
				bold: i === 0,
				muted: i > 0 && !column.inside,
				on: column.inside && groupOf(column.matrix),
			}),
		);
		const right = left + column.w + column.sheets * SHEET + 6;
		const wireY = top + height / 2;
		column.beside?.above.forEach((text, i) =>
			spec.labels.push({
				x: right,
				y: column.beside!.below.length ? wireY - 6 : y + 12 + i * LINE,
				text,
				anchor: "start",
				bold: i === 0,
				muted: i > 0,
			}),
		);
		column.beside?.below.forEach((text, i) =>
			spec.labels.push({
				x: right,
				y: wireY + 15 + i * LINE,
				text,
				anchor: "start",
				muted: true,
			}),
		);
		x +=
			column.width +
			(columns.length > 1 && column !== columns.at(-1) ? (column.inside ? 2 : 10) : 0);
	}
	spec.w = x;
	const below = Math.max(...columns.map((x) => x.below.length));
	spec.h = top + height + (below ? below * LINE + 4 : 0);
	const isFirst = (path: string) =>
		/(^|\.)shared\.gate\./.test(path) ||
		(/(^|\.)shared\.up\./.test(path) &&
			!options.stage.steps.some((x) => x.name.endsWith("shared.gate")));
	const isShared = node.matrices.some((x) => isFirst(x.use.path));
	const letter = leafOf(node.matrices[0]!.step.name);
	const notes = [
		...(isShared ? ["shared expert"] : []),
		...(options.stage.steps.some((x) => x.kind === "state") && LETTERS[letter]
			? [LETTERS[letter]]
			: notesOf(node)),
	];
	const others = options.other?.notesOf(node) ?? [];
	const [only] = columns;
	if (only!.beside?.below.length && columns.length === 1) {
		// below the size of the matrix, as far as it reaches below the wire
		const x = spec.boxes[0]!.x + only!.w + only!.sheets * SHEET + 6;
		const all = [notes.join(", "), ...others].filter(Boolean);
		const size = spec.labels.findLast((y) => y.x === x)!;
		const isOver = options.labels === "over" && only!.beside.below.length === 1;
		if ((options.labels === "in line" && all.length) || isOver) {
			size.text = [size.text, ...all].join(", ");
			all.length = 0;
			if (isOver) {
				const title = spec.labels.find((y) => y.x === x)!;
				// between them stands a badge of what differs
				size.x += textWidth(title.text, 13, 650) + (options.other ? 26 : 7);
				size.y = title.y;
			}
			spec.w = Math.max(spec.w, size.x + textWidth(size.text));
		}
		const lines = all.flatMap((y) => wrapText(y, Math.max(spec.w - x, 96)));
		const from = top + height / 2 + (isOver ? 11 : 15 + only!.beside.below.length * LINE);
		lines.forEach((text, i) =>
			spec.labels.push({ x, y: from + i * 15, text, anchor: "start", muted: true }),
		);
		spec.w = Math.max(spec.w, ...lines.map((y) => x + textWidth(y)));
		// the name above the wire may reach above the box
		const above = Math.max(0, 20 - (top + height / 2));
		for (const box of spec.boxes) box.y += above;
		for (const label of spec.labels) label.y += above;
		spec.h = Math.max(top + height, from - 11 + lines.length * 15) + above;
		spec.portY = top + height / 2 + above;
		spec.portX = spec.boxes[0]!.x + spec.boxes[0]!.w / 2;
		return spec;
	}
	if (notes.length + others.length) {
		const lines = [notes.join(", "), ...others].flatMap((x) =>
			wrapText(x, Math.max(spec.w, 84)),
		);
		const width = Math.max(...lines.map((x) => textWidth(x)));
		if (width > spec.w) {
			const shift = (width - spec.w) / 2;
			for (const label of spec.labels) label.x += shift;
			for (const box of spec.boxes) box.x += shift;
			spec.w = width;
		}
		lines.forEach((text, i) =>
			spec.labels.push({
				x: spec.w / 2,
				y: spec.h + 13 + i * 15,
				text,
				anchor: "middle",
				muted: true,
			}),
		);
		spec.h += lines.length * 15 + 3;
	}
	spec.portY = top + height / 2;
	spec.portX = (spec.boxes[0]!.x + spec.boxes.at(-1)!.x + spec.boxes.at(-1)!.w) / 2;
	return spec;
}

export const groupOf = (matrix: Matrix): string => matrix.step.color;

const plain = (node: PlateNode, w: number, h: number): Spec => ({
	node,
	w,
	h,
	portX: w / 2,
	portY: h / 2,
	boxes: [],
	labels: [],
});

function measureNorm(node: PlateNode, { other }: MeasureOptions): Spec {
	const step = node.steps[0]!;
	const lines = [/norm$/i.test(step.does) ? step.does : "norm", ...(other?.notesOf(node) ?? [])];
	const w = Math.max(...lines.map((x) => textWidth(x)));
	const spec = plain(node, w, 46 + lines.length * LINE + 2);
	spec.bar = { x: w / 2 - 5, y: 0, w: 10, h: 44 };
	spec.labels = lines.map((text, i) => ({
		x: w / 2,
		y: 59 + i * LINE,
		text,
		anchor: "middle" as const,
		muted: i > 0,
	}));
	spec.portY = 22;
	return spec;
}

function measureCache(node: PlateNode, { letters, other }: MeasureOptions): Spec {
	const step = node.steps[0]!;
	const size = step.shape.at(-1);
	const lines = [
		"KV cache",
		`${lastName(step.name)}${size === undefined ? "" : `: ${notation(size, {}, letters)}`}`,
		...(other?.notesOf(node) ?? []),
	];
	const w = Math.max(92, ...lines.map((x) => textWidth(x, 13, 600)));
	const spec = plain(node, w, 22 + lines.length * LINE + 4);
	spec.cells = { x: (w - 88) / 2, y: 0, w: 88, h: 18 };
	spec.labels = lines.map((text, i) => ({
		x: w / 2,
		y: 34 + i * LINE,
		text,
		anchor: "middle",
		cache: true,
		bold: i === 0,
	}));
	spec.portY = 9;
	return spec;
}

const lastName = (name: string) => name.split(".").at(-1)!.replaceAll("_", " ");

const FEWER_WORDS: [RegExp, string][] = [
	[/key and value heads?/, "KV head"],
	[/query and key heads?/, "q, k head"],
	[/value heads? with a state/, "value head"],
	[/query heads? with a state/, "query head"],
	[/heads? with a state/, "head"],
	[/groups? of b and c/, "B, C group"],
];
function shortUnit(name: string, n: number): string {
	const found = FEWER_WORDS.find(([pattern]) => pattern.test(name));
	const word = found ? name.replace(...found) : name.replace(/s$/, "");
	return n === 1 ? word : `${word}s`;
}

/** Heads that are drawn of those that each have keys and values of their own. */
export const SHOWN_HEADS = 12;
/** The room for the wire of the queries, above the keys and values. */
const QUERY_WIRE = 14;
export const KEY_WIDTH = 74;

/** The scaling of the scores: /√128, or in letters /√h. */
function scalingOf(node: PlateNode, stage: Stage, letters: boolean): string {
	const { does, takes } = node.steps.find((x) => x.kind === "scores")!;
	const [, sign, n] = / ([/×]) (√?[\d.]+) of every pair/.exec(does) ?? [];
	if (!sign) return "";
	const size = stage.steps.find((x) => x.name === takes[0])?.shape.at(-1);
	const isRoot = size !== undefined && n === `√${asNumber(size)}`;
	const inLetters = letters && isRoot && notation(size, {}, true, true);
	return `${sign.replace("×", "·")}${inLetters ? `√${inLetters}` : n}`;
}

/** The node from which the queries come. */
function queriesOf(node: PlateNode): string | undefined {
	return node.inputs.find(([, by]) => by.kind === "scores")?.[0];
}

/** Where the wires of queries, of keys and of values end. */
function headEntries(
	node: PlateNode,
	{ y, w, h, keysFirst }: NonNullable<Spec["heads"]>,
): Spec["entries"] {
	const queries = queriesOf(node);
	if (queries === undefined) return undefined;
	if (keysFirst)
		return {
			at: new Map([[queries, [-1, y - QUERY_WIRE / 2]]]),
			tail: new Map([
				[
					queries,
					[
						[w - 7, y - QUERY_WIRE / 2],
						[w - 7, y],
					],
				],
			]),
			others: [
				[-1, y],
				[-1, y + h],
			],
		};
	return {
		at: new Map([[queries, [12, -1]]]),
		others: [
			[w - KEY_WIDTH, -1],
			[w, -1],
		],
	};
}

function measureHeads(
	node: PlateNode,
	{ stage, letters, isNarrow, isTight, isRow, isDown, other }: MeasureOptions,
): Spec {
	const sharing = stage.heads.find(
		(x): x is HeadGroups & { kind: "heads" } => x.kind === "heads",
	);
	const softmax =
		node.steps.find((x) => x.kind === "softmax") ??
		node.steps.find((x) => x.kind === "state") ??
		node.steps[0]!;
	const isAttention = node.steps.some((x) => x.kind === "scores");
	const cached = node.steps.some((x) => x.kind === "cache");
	const w = sharing ? (isNarrow ? (isTight ? 152 : 160) : 178) : 118;
	const [many, few] = sharing ? [asNumber(sharing.n), asNumber(sharing.k)] : [0, 0];
	const top: Label[] = [];
	let y = 0;
	// keys and values that are unpacked from latent vectors belong to one query head each
	const isUnpacked =
		isAttention && !cached && sharing !== undefined && sharing.few.startsWith("latent");
	// along the flow, keys and values come first: their heads are where their wires end
	const keysFirst = isAttention && sharing !== undefined && !isDown;
	if (sharing) {
		const texts = [
			`${notation(sharing.n, {}, letters)} ${shortUnit(sharing.many, many)}`,
			isUnpacked
				? "each with own k, v"
				: `${notation(sharing.k, {}, letters)} ${shortUnit(sharing.few, few)}`,
		];
		const isOneLine = textWidth(texts[0]!, 13, 650) + textWidth(texts[1]!, 13, 650) + 14 <= w;
		top.push({
			x: keysFirst ? w : 0,
			y: 12,
			text: texts[0]!,
			anchor: keysFirst ? "end" : "start",
			bold: true,
		});
		top.push({
			x: keysFirst ? 0 : w,
			y: isOneLine ? 12 : 28,
			text: texts[1]!,
			anchor: keysFirst ? "start" : "end",
			bold: true,
			cache: cached,
		});
		y = (isOneLine ? 20 : 36) + (keysFirst ? QUERY_WIRE : 0);
	}
	const pictureHeight = sharing
		? isUnpacked
			? SHOWN_HEADS * 9 + 8
			: Math.min(
					isRow || isTight ? 140 : isNarrow ? 170 : 210,
					Math.max(56, Math.max(many * 4, few * 9)),
				)
		: 40;
	const title = isAttention
		? `softmax(q·kᵀ${scalingOf(node, stage, letters)}) v`
		: "one state S for each head, updated token by token";
	const bottom = [
		...wrapText(title, w),
		...wrapText(softmax.does, w, 13).filter(() => isAttention),
		...(other?.notesOf(node) ?? []).flatMap((x) => wrapText(x, w)),
	];
	const spec = plain(node, w, y + pictureHeight + bottom.length * LINE + 8 + (cached ? LINE : 0));
	spec.heads = { x: 0, y, w, h: pictureHeight, many, few, cached, isUnpacked, keysFirst };
	if (isAttention && sharing) spec.entries = headEntries(node, spec.heads);
	const lines: Label[] = bottom.map((text, i) => ({
		x: w / 2,
		y: y + pictureHeight + 17 + i * LINE,
		text,
		anchor: "middle",
		muted: i > 0,
	}));
	if (cached)
		lines.push({
			x: w / 2,
			y: y + pictureHeight + 17 + bottom.length * LINE,
			text: "KV cache",
			anchor: "middle",
			cache: true,
		});
	spec.labels = [...top, ...lines];
	spec.portY = y + pictureHeight / 2;
	return spec;
}

function measureExperts(node: PlateNode, options: MeasureOptions): Spec {
	const { stage } = options;
	const found = stage.heads.find(
		(x): x is HeadGroups & { kind: "experts" } => x.kind === "experts",
	);
	const step = node.steps.find((x) => x.kind === "choice")!;
	if (!found) return measureOperation(node, options);
	const [n, k] = [asNumber(found.n), asNumber(found.k)];
	const isSlim = options.isTight && options.isNarrow;
	const isWide = !isSlim && (options.isRow || options.isTight);
	const most = n <= 16 ? Math.min(n, 4) : n <= 64 ? 8 : n <= 256 && !isWide ? 16 : 32;
	const columns = isSlim && n > 64 ? most / 2 : most;
	const cell = n <= 16 ? 14 : n <= 64 ? 9 : 5;
	const rows = Math.ceil(n / columns);
	const lines = [
		step.does.replace(/ with their weights( \(\w+\))?/, ""),
		...(options.other?.notesOf(node) ?? []),
	].flatMap((x) => wrapText(x, Math.max(columns * cell, isSlim ? 72 : isWide ? 172 : 96)));
	const w = Math.max(columns * cell, ...lines.map((x) => textWidth(x)));
	const spec = plain(node, w, rows * cell + lines.length * LINE + 6);
	spec.experts = {
		x: (w - columns * cell) / 2,
		y: 0,
		cell,
		columns,
		n,
		k,
		groups: Number(found.groups),
	};
	spec.labels = lines.map((text, i) => ({
		x: w / 2,
		y: rows * cell + 16 + i * LINE,
		text,
		anchor: "middle",
		bold: i === 0 && lines.length === 1,
	}));
	spec.portY = (rows * cell) / 2;
	return spec;
}

/** gate → silu → ×, and up → ×. */
function measureGated(node: PlateNode, name: string, act: string, options: MeasureOptions): Spec {
	const [gate, up] = node.inputs.map((x) => x[0]) as [string, string];
	const { isDown } = options;
	const panel = { x: 0, y: 0, w: textWidth(act) + 14, h: 24 };
	const apart = isDown ? 30 : options.isTight && options.isNarrow ? 14 : 24;
	const circle = { x: panel.w + apart, y: panel.h + 18 };
	const lines = [name, ...(options.other?.notesOf(node) ?? [])].flatMap((x) => wrapText(x, 90));
	const width = Math.max(...lines.map((x) => textWidth(x)));
	const w = Math.max(circle.x + 12, circle.x + width / 2);
	const spec = plain(node, w, circle.y + 14 + lines.length * LINE);
	spec.panel = panel;
	spec.circle = {
		...circle,
		symbol: "×",
		from: isDown
			? `M${panel.w / 2} ${panel.h}V${circle.y}H${circle.x - 11}`
			: `M${panel.w} ${panel.h / 2}H${circle.x}V${circle.y - 11}`,
	};
	spec.labels = [
		{ x: panel.w / 2, y: 17, text: act, anchor: "middle" },
		...lines.map((text, i): Label => ({
			x: circle.x,
			y: circle.y + 26 + i * LINE,
			text,
			anchor: "middle",
			muted: true,
		})),
	];
	spec.portX = circle.x;
	spec.portY = circle.y;
	spec.entries = {
		at: new Map<string, Pair>(
			isDown
				? [
						[gate, [panel.w / 2, -1]],
						[up, [circle.x, circle.y - 12]],
					]
				: [
						[gate, [-1, panel.h / 2]],
						[up, [circle.x - 12, circle.y]],
					],
		),
	};
	return spec;
}

function measureOperation(node: PlateNode, options: MeasureOptions): Spec {
	const { other } = options;
	const step = node.steps[0];
	const gated = /^(\w+): (\w+)\((\w+)\) · (\w+)$/.exec(step?.does ?? "");
	if (gated && node.kind === "product" && new Set(node.inputs.map((x) => x[0])).size === 2)
		return measureGated(node, gated[1]!, gated[2]!.replace(/_.*/, ""), options);
	const isCircle = node.kind === "sum" || node.kind === "product";
	const isSlim = isCircle && options.isTight && options.isNarrow;
	const shown = isCircle ? node.steps.filter((x) => x.kind !== "view") : node.steps;
	const own = shown.map((x) =>
		x.kind === "ids" ? "token ids" : x.kind === "conv" ? x.does.replace(/ over.*/, "") : x.does,
	);
	const text = step
		? step.kind === "ids" || step.kind === "conv"
			? own[0]!
			: [...new Set(own)].join(", ")
		: node.id === "per_layer_inputs"
			? "per-layer input"
			: node.id === "x"
				? "residual stream"
				: node.id;
	// a bound or a factor stays with its number
	const whole = text
		.replace(/ ≤ (?=\d)/g, "\u00a0≤\u00a0")
		.replace(/(\d) · /g, "$1\u00a0·\u00a0");
	const lines = [whole, ...(other?.notesOf(node) ?? [])].flatMap((x) =>
		wrapText(x, isCircle && x.length < 36 ? (isSlim ? 52 : 72) : isSlim ? 90 : 118),
	);
	const width = Math.max(...lines.map((x) => textWidth(x)));
	if (isCircle) {
		const w = Math.max(24, width);
		const spec = plain(node, w, 24 + lines.length * LINE + 4);
		spec.circle = { x: w / 2, y: 12, symbol: node.kind === "sum" ? "+" : "×" };
		spec.labels = lines.map((line, i) => ({
			x: w / 2,
			y: 39 + i * LINE,
			text: line,
			anchor: "middle",
			muted: true,
		}));
		spec.portY = 12;
		return spec;
	}
	const spec = plain(node, width + 16, lines.length * LINE + 10);
	spec.panel = { x: 0, y: 0, w: spec.w, h: spec.h };
	spec.labels = lines.map((line, i) => ({
		x: spec.w / 2,
		y: 18 + i * LINE,
		text: line,
		anchor: "middle",
	}));
	return spec;
}
