// The icicle: rectangles to scale in two levels, each of which opens its derivation.
import { Fragment } from "preact";
import { Measured } from "../../components/measured";
import { NumberButton, openDerivation } from "../../components/number";
import { grouped, nameWith, share } from "../../lib/format";
import { onActivate, useRoving } from "../../lib/roving";
import { layIcicle, type Box } from "./icicle_layout";
import { joined, UNITS, type Cell } from "./measures";

const fill = (color: string) => (color ? `var(--c-${color})` : "var(--ramp-4)");
const ink = (color: string) => (color ? `var(--on-${color})` : "var(--paper)");
const pale = (color: string) => `color-mix(in srgb, ${fill(color)} var(--tint), var(--panel))`;

function Rectangle({ box, ...rest }: { box: Box; [attribute: string]: unknown }) {
	const { cell, x, y, width, height, solid } = box;
	const isWhole = cell.active >= cell.size;
	const open = () => openDerivation(cell.derive());
	return (
		<g
			class="cell"
			role="button"
			data-name={cell.name}
			onClick={open}
			{...rest}
			onKeyDown={(event: KeyboardEvent) => (
				onActivate(open)(event),
				(rest.onKeyDown as (e: KeyboardEvent) => void)(event)
			)}
		>
			<title>
				{nameWith(
					box.label.map((line) => line.text),
					cell.description,
				)}
			</title>
			<rect
				class="data"
				x={x}
				y={y}
				width={width}
				height={height}
				rx={Math.min(3, width / 3)}
				fill={isWhole ? fill(cell.color) : pale(cell.color)}
			/>
			{!isWhole && solid > 0.3 && (
				<rect
					class="data"
					x={x}
					y={y}
					width={solid}
					height={height}
					rx={Math.min(3, solid / 3)}
					fill={fill(cell.color)}
				/>
			)}
			{!isWhole && width > 4 && (
				<rect
					class="data edge"
					x={x + 0.5}
					y={y + 0.5}
					width={width - 1}
					height={height - 1}
					rx={Math.min(3, width / 3)}
					fill="none"
					stroke={fill(cell.color)}
				/>
			)}
			{box.label.map((line) => (
				<text
					key={line.text}
					x={line.x}
					y={line.y}
					transform={line.isTurned ? `rotate(-90 ${line.x} ${line.y})` : undefined}
					class={`${line.bold ? "name" : "tabular"}${line.isTurned ? " turned" : ""}`}
					style={{
						fill: isWhole || solid >= width * 0.5 ? ink(cell.color) : "var(--ink)",
					}}
				>
					{line.text}
				</text>
			))}
		</g>
	);
}

/** Names in a row, with the words that all begin with said once: "cross attn q, o". */
function nameTogether(names: readonly string[]): string {
	const start = names[0]!.replace(/[^ ]*$/, "");
	const isShared = start !== "" && names.every((x) => x.startsWith(start));
	return names.map((x, i) => (isShared && i ? x.slice(start.length) : x)).join(", ");
}

interface Props {
	name: string;
	cells: Cell[];
	whole: bigint;
	measure: string;
}

export const IciclePicture = (props: Props) => (
	<figure class="icicle">
		<Measured>{(width) => <Icicle {...props} width={width} />}</Measured>
	</figure>
);

function Icicle({ name, cells, whole, measure, width }: Props & { width: number }) {
	const joinCells = (list: Cell[]) => ({
		...joined(
			list.map((x) => x.key).join(),
			nameTogether(list.map((x) => x.name)),
			list,
			measure,
			whole,
			list.every((x) => x.color === list[0]!.color) ? list[0]!.color : "",
		),
		lines: [
			[
				share(
					list.reduce((a, x) => a + x.size, 0n),
					whole,
				),
			],
		],
	});
	const picture = layIcicle(cells, whole, Math.max(width, 240), joinCells, (n) =>
		share(n, whole),
	);
	const rove = useRoving(picture.boxes.length);
	const summary = cells.map((x) => `${x.name} ${share(x.size, whole)}`).join(", ");
	const { lens } = picture;
	return (
		<>
			<svg
				width={picture.width}
				height={picture.height}
				viewBox={`0 0 ${picture.width} ${picture.height}`}
				role="group"
				aria-label={`${name}: ${summary}`}
				data-roving
			>
				{lens && (
					<path class="lens" d={`M${lens.points.map((x) => x.join(" ")).join("L")}Z`} />
				)}
				{lens && (
					<text class="muted lens-text" x={lens.x} y={lens.y} text-anchor={lens.anchor}>
						{lens.text}
					</text>
				)}
				{picture.boxes.map((box, i) => (
					<Rectangle key={`${i} ${box.cell.key}`} box={box} {...rove(i)} />
				))}
			</svg>
			<Words cells={picture.words} whole={whole} measure={measure} />
		</>
	);
}

const MAX_WORDS = 8;

/** What is too small to draw, in words with its numbers. */
function Words({ cells, whole, measure }: { cells: Cell[]; whole: bigint; measure: string }) {
	if (!cells.length) return null;
	const unit = UNITS[measure]!;
	const isLong = cells.length > MAX_WORDS;
	const named = isLong ? cells.slice(0, MAX_WORDS - 1) : cells;
	const others = isLong
		? [joined("others", "the others", cells.slice(MAX_WORDS - 1), measure, whole, "")]
		: [];
	return (
		<p class="words">
			Too small to name in the picture:{" "}
			{[...named, ...others].map((x, i, all) => (
				<Fragment key={x.key}>
					<span>
						<i class="swatch" style={{ background: fill(x.color) }} />{" "}
						<span class="name">{x.name}</span>{" "}
						<NumberButton derive={x.derive} label={x.name}>
							{grouped(x.size)}
						</NumberButton>{" "}
						{unit}, {share(x.size, whole)}
						{i < all.length - 1 && ";"}
					</span>{" "}
				</Fragment>
			))}
		</p>
	);
}
