// The matrices of both models in one scale: solid where they differ, pale where they are the same,
// dashed the size in the other model.
import { Measured } from "../../components/measured";
import { openDerivation } from "../../components/number";
import { data, type Digits } from "../../lib/data";
import { formula, inShort } from "../../lib/derivation";
import { grouped, signed, times } from "../../lib/format";
import { textWidth } from "../../lib/measure_text";
import { modelPart } from "../../lib/model_parts";
import { onActivate, useRoving } from "../../lib/roving";
import {
	mapText,
	productFormula,
	shortPath,
	sideFormulas,
	type ModelSection,
	type WeightRow,
} from "../../lib/weights";
import type { Difference, WeightEntry, WeightPair } from "./difference";

const rowsOf = (i: number): WeightRow[] =>
	(data.models[i]!.sections as ModelSection[]).flatMap((x) => x.rows);

/**
 * All weights of both models in the order of the models: those that differ, and those that are the
 * same.
 */
export function allPairs(difference: Difference): WeightPair[] {
	const pairs = new Map<string, WeightPair[]>();
	for (const x of difference.weights) pairs.set(x.path, [...(pairs.get(x.path) ?? []), x]);
	const shared = new Set(difference.shared.weights);
	for (const i of [0, 1]) {
		for (const row of rowsOf(i)) {
			if (!shared.has(row.path) || row.tied || pairs.has(row.path)) continue;
			const same = rowsOf(i).filter((x) => x.path === row.path);
			const entry: WeightEntry = {
				shape: row.shape,
				dims: row.dims,
				copies: String(same.reduce((n, x) => n + BigInt(x.copies) * BigInt(x.times), 0n)),
				parameters: String(same.reduce((n, x) => n + BigInt(x.total), 0n)),
				tied: false,
				lookup: row.lookup,
			};
			pairs.set(row.path, [
				{ path: row.path, group: row.group, a: entry, b: entry, delta: "0" },
			]);
		}
	}
	const order = [...new Set([...rowsOf(0), ...rowsOf(1)].map((x) => x.path))];
	return order.flatMap((path) => pairs.get(path) ?? []);
}

export function pairDerivation(x: WeightPair) {
	const lines = [x.a, x.b].flatMap((weight, i) => {
		if (!weight) return [`${data.models[i]!.name}: no such weight`];
		const row = rowsOf(i).find(
			(y) => y.path === x.path && y.shape.join() === weight.shape.join(),
		);
		return [
			`${data.models[i]!.name}:`,
			row ? sideFormulas(row) : "",
			productFormula(
				weight,
				[[grouped(weight.copies), weight.copies]],
				grouped(weight.parameters),
			),
		];
	});
	const [a, b] = [x.a, x.b].map((y) => grouped(y?.parameters ?? "0"));
	const n = BigInt(x.delta);
	return {
		title: x.path,
		lines: [
			...lines,
			formula(`${data.models[1]!.name} − ${data.models[0]!.name}`, `${b} − ${a}`, signed(n)),
			...inShort("difference", n < 0n ? -n : n),
		],
	};
}

interface Group {
	name: string;
	pairs: WeightPair[];
	/** Whether the vocabulary runs along the width, as it is longest. */
	isWide: boolean;
}

const isMatrix = (x: WeightPair) => (x.a ?? x.b)!.shape.length > 1;

function groupsOf(pairs: WeightPair[]): Group[] {
	const inGroups = (groups: string[]) =>
		pairs.filter((x) => isMatrix(x) && groups.includes(x.group));
	const others = new Set(["embedding", "head", "experts", "norm"]);
	const layer = [...new Set(pairs.map((x) => x.group))].filter((x) => !others.has(x));
	return [
		{ name: "Embedding and head", pairs: inGroups(["embedding", "head"]), isWide: true },
		{ name: "One layer", pairs: inGroups(layer), isWide: false },
		{ name: "One routed expert", pairs: inGroups(["experts"]), isWide: false },
	].filter((x) => x.pairs.length);
}

/** Width and height of a matrix in its own units; width is inputs, height is outputs. */
function sides(entry: WeightEntry | null, isWide: boolean): [number, number] {
	if (!entry) return [0, 0];
	const [out, inputs] = [
		Number(entry.shape[0]),
		entry.shape.slice(1).reduce((n, x) => n * Number(x), 1),
	];
	return isWide ? [out, inputs] : [inputs, out];
}

interface Slot {
	pair: WeightPair;
	x: number;
	y: number;
	width: number;
	/** Below the drawings. */
	labelY: number;
	name: string;
	shapes: [string, string];
}

const PAD = 10;
const LABELS = 42;
const LONGEST = 150;

/**
 * Slots of the matrices of a group, the same for both models, so that the same place is the same
 * weight.
 */
function slotsOf(group: Group, room: number): { slots: Slot[]; scale: number; height: number } {
	const all = group.pairs.flatMap((x) => [sides(x.a, group.isWide), sides(x.b, group.isWide)]);
	const [longest, highest] = [
		Math.max(...all.map((x) => x[0])),
		Math.max(...all.map((x) => x[1])),
	];
	const scale = group.isWide
		? Math.min((room - 2) / longest, 60 / highest)
		: Math.min(LONGEST / Math.max(longest, highest), (room - 2) / longest);
	let [x, y, rowHeight] = [0, 0, 0];
	const sized = group.pairs.map((pair) => {
		const boxes = [sides(pair.a, group.isWide), sides(pair.b, group.isWide)];
		const [boxWidth, boxHeight] = [
			Math.max(boxes[0]![0], boxes[1]![0]) * scale,
			Math.max(boxes[0]![1], boxes[1]![1], 1 / scale) * scale,
		];
		const name = shortPath(pair.path)
			.replace(".{e}", "")
			.replace(/^mlp\.(experts\.)?|^attn\./, "")
			.replaceAll(".", " ")
			.replaceAll("_", " ");
		const shapes = [pair.a, pair.b].map((entry) => (entry ? mapText(entry) : "none")) as [
			string,
			string,
		];
		const width =
			Math.max(
				boxWidth,
				textWidth(name, 13, 650),
				...shapes.map((text) => textWidth(text, 12)),
			) + PAD;
		return { pair, boxHeight, name, shapes, width };
	});
	// a component that does not fit into what is left of a row starts a new one
	const lengthFrom = (i: number) =>
		sized
			.slice(i)
			.reduce(
				(sum, part) =>
					sum + (part.pair.group === sized[i]!.pair.group ? part.width + 6 : 0),
				0,
			);
	const slots = sized.map(({ pair, boxHeight, name, shapes, width }, i): Slot => {
		const isFirst = i > 0 && sized[i - 1]!.pair.group !== pair.group;
		if (x && (x + width > room || (isFirst && x + lengthFrom(i) > room)))
			[x, y, rowHeight] = [0, y + rowHeight + 12, 0];
		const slot = { pair, x, y, width, labelY: y, name, shapes };
		x += width + 6;
		rowHeight = Math.max(rowHeight, boxHeight + LABELS);
		return slot;
	});
	return { slots, scale, height: y + rowHeight };
}

function Matrix({
	slot,
	side,
	group,
	scale,
	...rest
}: {
	slot: Slot;
	side: 0 | 1;
	group: Group;
	scale: number;
	[attribute: string]: unknown;
}) {
	const { pair } = slot;
	const [own, other] = side ? [pair.b, pair.a] : [pair.a, pair.b];
	const [[width, height], [otherWidth, otherHeight]] = [own, other].map((x) =>
		sides(x, group.isWide).map((n) => n * scale),
	) as [[number, number], [number, number]];
	const isSame = own !== null && other !== null && own.shape.join() === other.shape.join();
	const { color } = modelPart(pair.group);
	const bottom = slot.y + Math.max(height, otherHeight, 1);
	const open = () => openDerivation(pairDerivation(pair));
	const label = `${slot.name}: ${own ? mapText(own) : "none"}${own ? times(own.copies) : ""}${isSame ? ", the same in the other model" : `, ${other ? mapText(other) : "none"} in the other model`}`;
	return (
		<g
			class="matrix"
			role="button"
			aria-label={label}
			onClick={open}
			{...rest}
			onKeyDown={(event: KeyboardEvent) => (
				onActivate(open)(event),
				(rest.onKeyDown as (e: KeyboardEvent) => void)(event)
			)}
		>
			<title>{label}</title>
			<rect
				x={slot.x}
				y={slot.y}
				width={slot.width - PAD}
				height={bottom - slot.y + LABELS - 6}
				fill="transparent"
			/>
			{own && (
				<rect
					class="data own"
					x={slot.x + 0.5}
					y={slot.y + 0.5}
					width={Math.max(width, 1.5)}
					height={Math.max(height, 1.5)}
					rx={1.5}
					style={
						isSame
							? {
									fill:
										`color-mix(in srgb, var(--c-${color}) var(--tint), ` +
										"var(--panel))",
									stroke: `var(--c-${color})`,
								}
							: { fill: `var(--c-${color})` }
					}
				/>
			)}
			{!isSame && other && (
				<rect
					class="ghost"
					x={slot.x + 0.5}
					y={slot.y + 0.5}
					width={Math.max(otherWidth, 1.5)}
					height={Math.max(otherHeight, 1.5)}
					rx={1.5}
				/>
			)}
			<text class="bold" x={slot.x} y={bottom + 17}>
				{slot.name}
			</text>
			<text class={isSame ? "muted small" : "small"} x={slot.x} y={bottom + 33}>
				{slot.shapes[side]}
			</text>
		</g>
	);
}

function Side({
	side,
	groups,
	room,
	rove,
	first,
}: {
	side: 0 | 1;
	groups: { group: Group; slots: Slot[]; scale: number; height: number }[];
	room: number;
	rove: (i: number) => object;
	first: number;
}) {
	let i = first;
	let y = 26;
	return (
		<figure class="shapes">
			<svg
				width={room}
				height={groups.reduce((n, x) => n + x.height + 46, 26)}
				role="group"
				aria-label={`${data.models[side]!.name}: its matrices to scale`}
				data-roving
			>
				<text class="name" x={0} y={14}>
					{data.models[side]!.name}
				</text>
				{groups.map(({ group, slots, scale, height }) => {
					const top = y;
					y += height + 46;
					return (
						<g key={group.name} transform={`translate(0 ${top})`}>
							<text
								class="muted small"
								x={0}
								y={16}
							>{`${group.name}: 1,000 = ${(1000 * scale).toFixed(1)} px`}</text>
							<g transform="translate(0 28)">
								{slots.map((slot) => (
									<Matrix
										key={`${slot.pair.path} ${slot.x} ${slot.y}`}
										slot={slot}
										side={side}
										group={group}
										scale={scale}
										{...rove(i++)}
									/>
								))}
							</g>
						</g>
					);
				})}
			</svg>
		</figure>
	);
}

export const Shapes = ({ difference }: { difference: Difference }) => (
	<Measured>{(width) => <BothSides difference={difference} width={width} />}</Measured>
);

function BothSides({ difference, width }: { difference: Difference; width: number }) {
	const isNarrow = width < 760;
	const room = Math.floor(isNarrow ? width : (width - 48) / 2);
	const groups = groupsOf(allPairs(difference)).map((group) => ({
		group,
		...slotsOf(group, room),
	}));
	const count = groups.reduce((n, x) => n + x.slots.length, 0);
	const rove = useRoving(2 * count);
	return (
		<div class={`both-shapes ${isNarrow ? "narrow" : ""}`} data-roving>
			<Side side={0} groups={groups} room={room} rove={rove} first={0} />
			<Side side={1} groups={groups} room={room} rove={rove} first={count} />
			<p class="caption">
				Solid: differs. Pale: the same in both. Dashed: the size in the other model. Width
				is inputs, height is outputs; of embedding and head, the width is the vocabulary.
			</p>
		</div>
	);
}

export const shapeCell = (x: WeightEntry | null): string =>
	x ? `${mapText(x)}${times(x.copies)}${x.tied ? ", tied" : ""}` : "–";
export type { Digits };
