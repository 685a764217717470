// The size of each node of the picture at a scale, with the places of its rectangles and labels,
// which are measured, never guessed.
import { notation } from "../../lib/expressions";
import { grouped } from "../../lib/format";
import { textWidth } from "../../lib/measure_text";
import type { Matrix, PlateNode } from "./contract";
import { asNumber, sidesOf, type HeadGroups, type Stage, type WeightUse } from "./plate_model";

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
	circle?: { x: number; y: number; symbol: "+" | "×" };
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

export interface MeasureOptions {
	/** Pixels per row or column of a matrix. */
	scale: number;
	/**
	 * The width of the residual stream, which runs across in every matrix that reads or writes it.
	 */
	width: number;
	stage: Stage;
	letters: boolean;
	nameOf: (path: string) => string;
	isNarrow: boolean;
	/** Leaves out what is also said elsewhere, to save width. */
	isTight: boolean;
	/** How the layer compares with one of another model. */
	other?: Comparison;
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
	const [outputs, inputs] = sidesOf(letters ? use.dims : use.shape.map((n) => grouped(n)));
	return [`${inputs.join(" × ")} →`, outputs.join(" × ")];
}

function matrixLines(matrix: Matrix, { letters, nameOf, other }: MeasureOptions): string[] {
	const { use } = matrix;
	const [from, to] = shapeText(matrix, letters);
	const copies =
		BigInt(use.copies) > 1n
			? [
					use.live === use.copies
						? `× ${grouped(use.copies)}`
						: `× ${grouped(use.copies)}, ${grouped(use.live)} active`,
				]
			: [];
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

function measureMatrices(node: PlateNode, options: MeasureOptions): Spec {
	const spec: Spec = { node, w: 0, h: 0, portX: 0, portY: 0, boxes: [], labels: [] };
	const columns = node.matrices.map((matrix) => {
		const [boxWidth, boxHeight] = drawnSize(matrix.use, options);
		const elsewhere = options.other?.matrixOf(matrix);
		const ghost = elsewhere ? drawnSize(elsewhere, options) : null;
		const [w, h] = [Math.max(boxWidth, ghost?.[0] ?? 0), Math.max(boxHeight, ghost?.[1] ?? 0)];
		const lines = matrixLines(matrix, options);
		const text = Math.max(...lines.map((x, i) => textWidth(x, 13, i ? 400 : 650)));
		const [from, to] = shapeText(matrix, options.letters);
		const narrowLines = [
			lines[0]!,
			from,
			to,
			...lines.slice(2).flatMap((x) => x.split(/(?<=,) |(?<=→) /)),
		];
		const narrowText = Math.max(...narrowLines.map((x, i) => textWidth(x, 13, i ? 400 : 650)));
		const sheets = BigInt(matrix.use.copies) > 1n ? 2 : 0;
		const inside = [lines, narrowLines].find(
			(x, i) => (i ? narrowText : text) + 10 <= boxWidth && x.length * LINE + 8 <= boxHeight,
		);
		const below = inside
			? []
			: text > Math.max(w, options.isNarrow || options.isTight ? 60 : 84)
				? narrowLines
				: lines;
		const belowWidth = inside ? 0 : below === lines ? text : narrowText;
		return {
			matrix,
			w,
			h,
			boxWidth,
			boxHeight,
			ghost,
			sheets,
			inside,
			below,
			width: Math.max(w + sheets * SHEET, belowWidth),
		};
	});
	const top = Math.max(...columns.map((x) => x.sheets)) * SHEET;
	const height = Math.max(...columns.map((x) => x.h));
	let x = 0;
	for (const column of columns) {
		const left = x + (column.width - column.w - column.sheets * SHEET) / 2;
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
		x +=
			column.width +
			(columns.length > 1 && column !== columns.at(-1) ? (column.inside ? 2 : 10) : 0);
	}
	spec.w = x;
	const below = Math.max(...columns.map((x) => x.below.length));
	spec.h = top + height + (below ? below * LINE + 4 : 0);
	if (columns.length > 1 && options.isNarrow) {
		spec.circle = { x: spec.w / 2, y: spec.h + 16, symbol: "×" };
		spec.h += 30;
	} else if (columns.length > 1) {
		spec.circle = { x: spec.w + (options.isTight ? 16 : 20), y: top + height / 2, symbol: "×" };
		spec.w += options.isTight ? 28 : 32;
	}
	const isShared = node.matrices.some((x) => /(^|\.)shared\./.test(x.use.path));
	const notes = [...(isShared ? ["shared expert"] : []), ...notesOf(node)];
	const others = options.other?.notesOf(node) ?? [];
	if (notes.length + others.length) {
		const lines = [notes.join(", "), ...others].flatMap((x) =>
			wrapText(x, Math.max(spec.w, 84)),
		);
		const width = Math.max(...lines.map((x) => textWidth(x)));
		if (width > spec.w) {
			const shift = (width - spec.w) / 2;
			for (const label of spec.labels) label.x += shift;
			for (const box of spec.boxes) box.x += shift;
			if (spec.circle) spec.circle.x += shift;
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

function measureHeads(node: PlateNode, { stage, isNarrow, other }: MeasureOptions): Spec {
	const sharing = stage.heads.find(
		(x): x is HeadGroups & { kind: "heads" } => x.kind === "heads",
	);
	const softmax =
		node.steps.find((x) => x.kind === "softmax") ??
		node.steps.find((x) => x.kind === "state") ??
		node.steps[0]!;
	const isAttention = node.steps.some((x) => x.kind === "scores");
	const cached = node.steps.some((x) => x.kind === "cache");
	const w = sharing ? (isNarrow ? 160 : 178) : 118;
	let [many, few] = sharing ? [asNumber(sharing.n), asNumber(sharing.k)] : [0, 0];
	const top: Label[] = [];
	let y = 0;
	if (sharing) {
		// keys and values that are unpacked from latent vectors belong to one query head each
		const isUnpacked = isAttention && !cached && sharing.few.startsWith("latent");
		if (isUnpacked) few = many;
		const texts = [
			`${grouped(many)} ${shortUnit(sharing.many, many)}`,
			isUnpacked ? "each with own k, v" : `${grouped(few)} ${shortUnit(sharing.few, few)}`,
		];
		const isOneLine = textWidth(texts[0]!, 13, 650) + textWidth(texts[1]!, 13, 650) + 14 <= w;
		top.push({ x: 0, y: 12, text: texts[0]!, anchor: "start", bold: true });
		top.push({
			x: w,
			y: isOneLine ? 12 : 28,
			text: texts[1]!,
			anchor: "end",
			bold: true,
			cache: cached,
		});
		y = isOneLine ? 20 : 36;
	}
	const pictureHeight = sharing
		? Math.min(isNarrow ? 170 : 210, Math.max(56, Math.max(many * 4, few * 9)))
		: 40;
	const title = isAttention ? "softmax(q·kᵀ) v" : "state S, updated token by token";
	const bottom = [
		...wrapText(title, w),
		...wrapText(softmax.does, w, 13).filter(() => isAttention),
		...(other?.notesOf(node) ?? []).flatMap((x) => wrapText(x, w)),
	];
	const spec = plain(node, w, y + pictureHeight + bottom.length * LINE + 8 + (cached ? LINE : 0));
	spec.heads = { x: 0, y, w, h: pictureHeight, many, few, cached };
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
	const columns = n <= 16 ? Math.min(n, 4) : n <= 64 ? 8 : n <= 256 ? 16 : 24;
	const cell = n <= 16 ? 14 : n <= 64 ? 9 : 6;
	const rows = Math.ceil(n / columns);
	const lines = [
		step.does.replace(/ with their weights( \(\w+\))?/, ""),
		...(options.other?.notesOf(node) ?? []),
	].flatMap((x) => wrapText(x, Math.max(columns * cell, 96)));
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

function measureOperation(node: PlateNode, { other }: MeasureOptions): Spec {
	const step = node.steps[0];
	const isCircle = node.kind === "sum" || node.kind === "product";
	const own = node.steps.map((x) =>
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
	const lines = [text, ...(other?.notesOf(node) ?? [])].flatMap((x) =>
		wrapText(x, isCircle && x.length < 36 ? 72 : 118),
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
