// What the picture of parameters measures: parameters, bytes, FLOPs or cache, as cells in two
// levels.
import type { ComponentChildren } from "preact";
import type { Digits, ModelData } from "../../lib/data";
import {
	derivation,
	formula,
	inShort,
	shareFormula,
	sumFormula,
	type Derivation,
} from "../../lib/derivation";
import { value, type Expression, type Variables } from "../../lib/expressions";
import { compactCount, grouped, share, shortBytes, sum, times } from "../../lib/format";
import { modelPart, shortName } from "../../lib/model_parts";
import type { State } from "../../lib/state";
import { mapText, productFormula, shortPath, type ModelSection } from "../../lib/weights";

/**
 * A weight in all layers of a kind: its copies, those of them that one token uses, and its sizes.
 */
interface Tile {
	section: number;
	path: string;
	group: string;
	dims: string[];
	shape: Digits[];
	lookup: boolean;
	copies: Digits;
	live: Digits;
	parameters: Digits;
	flops: Digits;
	/** By dtype, [codec, number of weights, bytes of each]. */
	kept: Record<string, [string, Digits, Digits][]>;
}

interface Product {
	section: number;
	path: string;
	group: string;
	flops: Expression;
}

interface Cached {
	section: number;
	path: string;
	what: string;
	form: Expression;
}

/** The settings that change sizes. */
export interface MeasureSettings {
	dtype: { name: string; codecs: Record<string, string> };
	variables: Variables<bigint>;
}

/** A rectangle of the picture: an item, or several together. */
export interface Cell {
	key: string;
	name: string;
	/** The name where there is little room. */
	short: string;
	/** Labels below the name: of each, the first that fits is shown. */
	lines: string[][];
	color: string;
	size: bigint;
	/** The part of the size that one token uses. */
	active: bigint;
	/** What it is, for a sentence and for those who hear it. */
	description: string;
	derive: () => Derivation;
	cells: Cell[];
}

interface Item {
	group: string;
	section: number;
	key: string;
	path: string;
	name: string;
	detail: string;
	copies: bigint;
	size: bigint;
	active: bigint;
	lines: () => ComponentChildren[];
}

export const UNITS: Record<string, string> = {
	parameters: "parameters",
	bytes: "bytes",
	flops: "FLOPs",
	cache: "bytes",
	elements: "elements",
};

const isBytes = (measure: string) => UNITS[measure] === "bytes";
export const compact = (n: bigint, measure: string): string =>
	isBytes(measure) ? shortBytes(n) : compactCount(n);

/**
 * The name of a matrix beside the name of its part: "gate" of the routed experts, "shared gate" of
 * the FFN.
 */
function matrixName(path: string, group: string): string {
	const text = shortPath(path).replace(".{e}", "");
	const prefixes: Record<string, RegExp> = {
		attention: /^attn\./,
		mixer: /^attn\./,
		mlp: /^mlp\./,
		experts: /^mlp\.(experts\.)?/,
		router: /^mlp\./,
		vision: /^vision\./,
		projector: /^projector\./,
	};
	return text
		.replace(prefixes[group] ?? /^$/, "")
		.replaceAll(".", " ")
		.replaceAll("_", " ");
}

/** The bytes of a weight under a dtype. */
const storedBytes = (x: Tile, dtype: string): bigint =>
	(x.kept[dtype] ?? []).reduce((sum, [, n, each]) => sum + BigInt(n) * BigInt(each), 0n);

/** The bytes of a weight from the formula of its codec, or from the file's header. */
function storedFormula(x: Tile, { name, codecs }: MeasureSettings["dtype"]) {
	const sizes: Record<string, bigint | string> = {
		n: x.shape.reduce((a, n) => a * BigInt(n), 1n),
		out: x.shape[0] ?? "1",
		in: x.shape[1] ?? "1",
	};
	const sumOver = (format: (text: string | undefined, each: Digits) => string) =>
		x.kept[name]!.map(
			([codec, n, each]) => `${grouped(n)}·(${format(codecs[codec], each)})`,
		).join(" + ");
	const numbers = (text: string | undefined, each: Digits) =>
		text?.replace(/\b(n|out|in)\b/g, (letter) => grouped(sizes[letter]!)) ?? grouped(each);
	return formula(
		sumOver((text) => text ?? "bytes in the file"),
		sumOver(numbers),
		`${grouped(storedBytes(x, name))} bytes`,
	);
}

function tileFormulas(
	x: Tile,
	measure: string,
	dtype: MeasureSettings["dtype"],
): ComponentChildren[] {
	const copies = productFormula(
		x,
		[[grouped(x.copies), x.copies]],
		`${grouped(x.parameters)} parameters`,
	);
	if (measure === "parameters")
		return [
			copies,
			x.live !== x.copies &&
				`One token uses ${grouped(x.live)} of the ${grouped(x.copies)} copies.`,
		];
	if (measure === "flops")
		return [
			copies,
			productFormula(x, [[grouped(x.live), x.live]], `${grouped(x.flops)} FLOPs`, [
				"2·",
				"2·",
			]),
		];
	return [
		copies,
		storedFormula(x, dtype),
		"n: elements of the weight; out, in: its rows and columns.",
	];
}

/** The part of `size` that the copies in use make up. */
const activePart = (x: Tile, size: bigint) =>
	x.live === x.copies ? size : (size * BigInt(x.live)) / BigInt(x.copies);

function tileItem(x: Tile, measure: string, set: MeasureSettings): Item {
	const size =
		measure === "bytes"
			? storedBytes(x, set.dtype.name)
			: BigInt(measure === "flops" ? x.flops : x.parameters);
	return {
		group: x.group,
		section: x.section,
		key: `${x.path} ${x.shape.join()}`,
		path: x.path,
		name: matrixName(x.path, x.group),
		detail: mapText(x),
		copies: BigInt(x.copies),
		size,
		active: measure === "flops" ? size : activePart(x, size),
		lines: () => tileFormulas(x, measure, set.dtype),
	};
}

function computedItem(
	x: { section: number; path: string },
	group: string,
	name: string,
	form: Expression,
	unit: string,
	set: MeasureSettings,
): Item {
	const size = value(form, set.variables);
	return {
		group,
		section: x.section,
		key: `${x.path} ${name}`,
		path: shortPath(x.path),
		name,
		detail: "",
		copies: 1n,
		size,
		active: size,
		lines: () => derivation(form, set.variables, unit),
	};
}

function itemsOf(model: ModelData, measure: string, set: MeasureSettings): Item[] {
	if (measure === "cache")
		return (model.cached as Cached[]).map((x) =>
			computedItem(x, "cache", x.what, x.form, "bytes", set),
		);
	const tiles = (model.tiles as Tile[]).map((x) => tileItem(x, measure, set));
	if (measure !== "flops") return tiles;
	return [
		...tiles,
		...(model.mixing as Product[]).map((x) =>
			computedItem(
				x,
				x.group,
				x.group === "attention" ? "QKᵀ and AV" : "state",
				x.flops,
				"FLOPs",
				set,
			),
		),
	];
}

export const bySize = (a: { size: bigint }, b: { size: bigint }) =>
	a.size < b.size ? 1 : a.size > b.size ? -1 : 0;

/** A cell for several cells, with the sum of their sizes. */
export function joined(
	key: string,
	name: string,
	cells: Cell[],
	measure: string,
	whole: bigint,
	color = cells[0]!.color,
): Cell {
	const [size, active] = [sum(cells.map((x) => x.size)), sum(cells.map((x) => x.active))];
	const unit = UNITS[measure]!;
	return {
		key,
		name,
		short: shortName(name),
		lines: [[`${compact(size, measure)} · ${share(size, whole)}`, share(size, whole)]],
		color,
		size,
		active,
		description: describe(name, size, active, whole, unit),
		derive: () => ({
			title: name,
			lines: [
				sumFormula(
					cells.map((x) => [x.name, x.size]),
					unit,
				),
				...shownForms(name, size, whole, measure),
				active < size &&
					sumFormula(
						cells.map((x) => [`${x.name} in use`, x.active]),
						`${unit} of one token`,
					),
				active < size && shareOf(`${name} in use`, active, size),
			],
		}),
		cells,
	};
}

const shareOf = (name: string, n: bigint, whole: bigint) =>
	shareFormula(name, n, whole, share(n, whole));

/** The short form in which the picture shows a size. */
function shortForm(name: string, n: bigint, measure: string): ComponentChildren[] {
	if (!isBytes(measure)) return inShort(name, n, compactCount(n));
	const text = shortBytes(n);
	const [, power] =
		[
			["KiB", "2¹⁰"],
			["MiB", "2²⁰"],
			["GiB", "2³⁰"],
			["TiB", "2⁴⁰"],
		].find(([unit]) => text.endsWith(unit!)) ?? [];
	return power ? [formula(`${name} / ${power}`, `${grouped(n)} / ${power}`, text)] : [];
}

const shownForms = (name: string, size: bigint, whole: bigint, measure: string) => [
	...shortForm(UNITS[measure]!, size, measure),
	shareOf(name, size, whole),
];

const describe = (name: string, size: bigint, active: bigint, whole: bigint, unit: string) =>
	`${name}: ${grouped(size)} ${unit}, ${share(size, whole)}${active < size ? `, ${grouped(active)} active` : ""}`;

/** One cell for the same weight in several kinds of layers. */
function itemCell(
	list: Item[],
	measure: string,
	whole: bigint,
	sections: ModelSection[],
	name: string,
): Cell {
	const [first] = list as [Item];
	const [size, active, copies] = [
		sum(list.map((x) => x.size)),
		sum(list.map((x) => x.active)),
		sum(list.map((x) => x.copies)),
	];
	const unit = UNITS[measure]!;
	const each =
		copies > 1n && list.length * Number(copies) > 1 && size % copies === 0n
			? [`${grouped(copies)} × ${compact(size / copies, measure)}`]
			: [];
	const place = (x: Item) => sections[x.section]!.where + times(sections[x.section]!.times);
	return {
		key: first.key,
		name,
		short: name,
		lines: [
			...(first.detail ? [[first.detail]] : []),
			[...each, compact(size, measure), share(size, whole)],
		],
		color: modelPart(first.group).color,
		size,
		active,
		description: describe(
			`${first.path}${first.detail ? `, ${first.detail}` : ""}${times(copies)}`,
			size,
			active,
			whole,
			unit,
		),
		derive: () => ({
			title: first.path,
			lines: [
				...list.flatMap((x) => [list.length > 1 && place(x), ...x.lines()]),
				list.length > 1 &&
					sumFormula(
						list.map((x) => [place(x), x.size]),
						unit,
					),
				each.length > 0 && [
					formula(
						"all / copies",
						`${grouped(size)} / ${grouped(copies)}`,
						`${grouped(size / copies)} each`,
					),
					...shortForm(`${unit} each`, size / copies, measure),
				],
				...shownForms(name, size, whole, measure),
				active < size &&
					sumFormula(
						list.map((x) => [`in use, ${place(x)}`, x.active]),
						`${unit} of one token`,
					),
			],
		}),
		cells: [],
	};
}

/** A cell for one tensor of a file. */
export function leafCell(
	key: string,
	name: string,
	detail: string,
	color: string,
	size: bigint,
	whole: bigint,
	derive: () => Derivation,
): Cell {
	const lines = [[detail], [compactCount(size), share(size, whole)]];
	const derivation = () => {
		const { title, lines: own } = derive();
		return { title, lines: [...own, ...shownForms(name, size, whole, "elements")] };
	};
	return {
		key,
		name,
		short: name,
		lines,
		color,
		size,
		active: size,
		description: describe(`${name}, ${detail}`, size, size, whole, "elements"),
		derive: derivation,
		cells: [],
	};
}

function grouping<K, T>(items: T[], key: (x: T) => K): [K, T[]][] {
	return [...Map.groupBy(items, key)];
}

/**
 * The picture's cells: components and their matrices, or kinds of layers and their components; each
 * level by size.
 */
export function measuredCells(
	model: ModelData,
	state: Pick<State, "map" | "by">,
	set: MeasureSettings,
): { whole: bigint; cells: Cell[] } {
	const measure = state.map;
	const sections = model.sections as ModelSection[];
	const items = itemsOf(model, measure, set).filter((x) => x.size > 0n);
	const whole = sum(items.map((x) => x.size));
	const place = (section: number) => sections[section]!.where + times(sections[section]!.times);
	const weights = (list: Item[]) =>
		grouping(list, (x) => x.key)
			.map(([, same]) => itemCell(same, measure, whole, sections, same[0]!.name))
			.sort(bySize);
	let cells: Cell[];
	if (state.by === "kind") {
		const parts = (list: Item[]) =>
			(measure === "cache" ? grouping(list, (x) => x.name) : grouping(list, (x) => x.group))
				.map(([key, same]) =>
					joined(
						key,
						measure === "cache" ? key : modelPart(key).name,
						weights(same),
						measure,
						whole,
					),
				)
				.sort(bySize);
		cells = grouping(items, (x) => x.section).map(([section, list]) =>
			joined(String(section), place(section), parts(list), measure, whole, ""),
		);
	} else if (measure === "cache") {
		cells = grouping(items, (x) => x.name).map(([what, list]) =>
			joined(
				what,
				what,
				grouping(list, (x) => x.section).map(([section, same]) =>
					itemCell(same, measure, whole, sections, place(section)),
				),
				measure,
				whole,
			),
		);
	} else {
		cells = grouping(items, (x) => x.group).map(([group, list]) =>
			joined(group, modelPart(group).name, weights(list), measure, whole),
		);
	}
	return { whole, cells: cells.sort(bySize) };
}
