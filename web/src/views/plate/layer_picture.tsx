// The opened layer: its matrices to one scale, the heads with their KV cache, the experts, along
// the residual stream.
import { useContext, useMemo, useRef, useState } from "preact/hooks";
import { notation } from "../../lib/expressions";
import { grouped, nameWith } from "../../lib/format";
import { LiveMarksOfLayer } from "../../lib/live_views";
import { textWidth } from "../../lib/measure_text";
import { LitSteps } from "../tour/tour_stops";
import { isField, LayerFields, useIsOpen } from "../quiz/fields";
import { AskingOf } from "../quiz/quiz_data";
import { contract, type PlateNode } from "./contract";
import { layoutLayer, path, rightOf, type LayerLayout, type Placed, type Wire } from "./layout";
import { groupOf, KEY_WIDTH, SHOWN_HEADS, type Comparison, type Label } from "./measure";
import { fill, textOn, tint, type Stage } from "./plate_model";

interface Props {
	stage: Stage;
	/** The stage in words, with its layers, where that is not its own name. */
	label?: string;
	/** The width of the residual stream in elements. */
	modelWidth: number;
	width: number;
	isPhone: boolean;
	letters: boolean;
	scheme: string;
	nameOf: (path: string) => string;
	/** What it says further, such as where fields stand. */
	other?: Comparison;
	/** The step that a walk through the layer has reached. */
	walked: string | null;
	/** How many tokens the cache holds in the picture of the walk. */
	cachedCells: number;
	/** The path of the level that a node opens; empty where nodes open no level. */
	zoomPath?: (node: PlateNode, step: string) => string;
	/** How a node or a matrix compares with the layer of another model, and the same in words. */
	markOf?: (node: PlateNode, path?: string) => Mark;
	sayMark?: (node: PlateNode) => string;
	open: (node: PlateNode, step: string, from: Element) => void;
}

/** The same in both layers, different, or only in this one. */
export type Mark = "same" | "differs" | "only";

export function describeNode(node: PlateNode): string {
	const parts = node.matrices.map(
		({ use }) =>
			`${use.path.replace(/\.weight$/, "")}, ${use.shape.map((n) => grouped(n)).join(" by ")}${BigInt(use.copies) > 1n ? `, ${grouped(use.copies)} copies` : ""}`,
	);
	const own = node.steps
		.filter((x) => !node.matrices.some((y) => y.step === x))
		.map((x) => x.does);
	return [...parts, ...own].join("; ") || node.id;
}

const shownLabels = ({ labels }: Placed) => labels.filter((x) => !isField(x.text));

export function useLayerLayout({
	stage,
	modelWidth,
	width,
	isPhone,
	letters,
	scheme,
	nameOf,
	other,
}: Omit<Props, "walked" | "cachedCells" | "open">): LayerLayout {
	const contracted = useMemo(() => contract(stage), [stage]);
	return useMemo(
		() =>
			layoutLayer(
				contracted,
				{ width: modelWidth, stage, letters, nameOf, other },
				width,
				isPhone,
			),
		[contracted, modelWidth, width, isPhone, letters, scheme, other],
	);
}

export function LayerPicture(props: Props & { layout: LayerLayout }) {
	const { layout } = props;
	const [hovered, setHovered] = useState<string | null>(null);
	const [focused, setFocused] = useState(0);
	const svg = useRef<SVGSVGElement>(null);
	const live = useContext(LiveMarksOfLayer);
	const asking = useContext(AskingOf);
	const isAsking = asking !== null;
	const isOpen = useIsOpen();
	const { stage, walked, open } = props;
	const lit = useContext(LitSteps);
	const idOf = (step: string) =>
		layout.nodes.find((x) => x.node.steps.some((y) => y.name === step))?.node.id ?? step;
	const toured = stage.steps.filter((x) => lit.has(x.name)).map((x) => x.name);
	// a tour scrolls the picture under a pointer that rests
	const shown = walked !== null ? [walked] : toured;
	const active = new Set(hovered !== null && !lit.size ? [hovered] : shown.map(idOf));
	const near = new Set([
		...active,
		...layout.wires
			.filter((x) => active.has(x.from) || active.has(x.to))
			.flatMap((x) => [x.from, x.to]),
	]);
	const isLit = (id: string) => !active.size || near.has(id);
	const order = layout.nodes
		.filter((x) => x.node.steps.length)
		.sort(
			(a, b) => stage.steps.indexOf(a.node.steps[0]!) - stage.steps.indexOf(b.node.steps[0]!),
		);
	const move = (to: number) => {
		const index = (to + order.length) % order.length;
		setFocused(index);
		svg.current!.querySelectorAll<SVGGElement>("[data-node]")[index]?.focus();
	};
	const onKey = (event: KeyboardEvent, index: number, node: PlateNode) => {
		if (event.key === "Enter" || event.key === " ")
			open(node, node.steps[0]!.name, event.currentTarget as Element);
		else if (event.key === "ArrowRight" || event.key === "ArrowDown") move(index + 1);
		else if (event.key === "ArrowLeft" || event.key === "ArrowUp") move(index - 1);
		else return;
		event.preventDefault();
		event.stopPropagation();
	};
	const label = props.label ?? stage.name;
	// an edit of other dimensions changes its name alone
	const shapes = useMemo(
		() => (
			<>
				{layout.wires.map((x, i) => (
					<WireLine
						key={i}
						wire={x}
						state={
							!active.size
								? ""
								: active.has(x.from)
									? "output"
									: active.has(x.to)
										? "input"
										: "dim"
						}
					/>
				))}
				{layout.stream ? (
					<Stream layout={layout} active={active} stage={stage} letters={props.letters} />
				) : (
					stage.name === "embedding" && (
						<StreamBegins layout={layout} stage={stage} letters={props.letters} />
					)
				)}
				{live?.ofStream(layout)}
				{order.map((x, i) => (
					<g
						key={x.node.id}
						data-node={x.node.id}
						data-steps={x.node.steps.map((y) => y.name).join(" ")}
						data-zoom={props.zoomPath?.(x.node, x.node.steps[0]!.name)}
						data-mark={props.markOf?.(x.node)}
						class={`plate-node${isLit(x.node.id) ? "" : " dim"}${active.has(x.node.id) ? " active" : ""}`}
						tabindex={i === Math.min(focused, order.length - 1) ? 0 : -1}
						role="button"
						aria-label={
							nameWith(
								shownLabels(x).map((y) => y.text),
								describeNode(x.node),
							) + (props.sayMark?.(x.node) ?? "")
						}
						transform={`translate(${x.x.toFixed(1)} ${x.y.toFixed(1)})`}
						onPointerMove={(event) => hasMoved(event) && setHovered(x.node.id)}
						onPointerLeave={() => setHovered(null)}
						onFocus={() => (setFocused(i), setHovered(x.node.id))}
						onBlur={() => setHovered(null)}
						onClick={(event) =>
							open(
								x.node,
								stepAt(x, event)?.name ?? x.node.steps[0]!.name,
								event.currentTarget,
							)
						}
						onKeyDown={(event) => onKey(event, i, x.node)}
					>
						<NodeShape
							placed={x}
							cachedCells={props.cachedCells}
							markOf={props.markOf}
							isOpen={isOpen}
							asked={asking?.quiz.items[asking.at]?.part?.paths}
						/>
						{live?.ofNode(x)}
					</g>
				))}
				{layout.nodes
					.filter((x) => !x.node.steps.length)
					.map((x) => (
						<g
							key={x.node.id}
							class={isLit(x.node.id) ? "" : "dim"}
							transform={`translate(${x.x.toFixed(1)} ${x.y.toFixed(1)})`}
						>
							<NodeShape placed={x} cachedCells={props.cachedCells} />
						</g>
					))}
			</>
		),
		[layout, hovered, focused, live, asking, lit, walked, props.cachedCells, props.open],
	);
	return (
		<svg
			ref={svg}
			class={`layer-picture data${active.size ? " has-active" : ""}`}
			width={layout.width}
			height={layout.height}
			viewBox={`0 0 ${layout.width} ${layout.height}`}
			role="group"
			aria-label={isAsking ? label : `${label}: ${grouped(stage.parameters)} parameters`}
			data-scale={layout.scale}
		>
			{shapes}
			<LayerFields layout={layout} />
		</svg>
	);
}

function stepAt(placed: Placed, event: MouseEvent) {
	const box = (event.target as Element).closest("[data-matrix]") as SVGElement | null;
	return box
		? placed.node.matrices.find((x) => x.use.path === box.dataset.matrix)?.step
		: undefined;
}

function WireLine({ wire, state }: { wire: Wire; state: string }) {
	const line = wire.samples;
	const hasArrow = wire.hasArrow;
	const [end, before] = [line.at(-1)!, line.at(-3) ?? line[0]!];
	const angle = Math.atan2(end[1] - before[1], end[0] - before[0]);
	const tip = (turn: number): string =>
		`${(end[0] - 7 * Math.cos(angle + turn)).toFixed(1)} ` +
		`${(end[1] - 7 * Math.sin(angle + turn)).toFixed(1)}`;
	return (
		<g class={`plate-wire ${state}`} data-wire={`${wire.from} ${wire.to}`}>
			<path class="wire" d={path(wire.straight ? wire.points : line)} />
			{wire.bridges.map((x, i) => [
				<path key={`halo${i}`} class="bridge" d={path(x)} />,
				<path key={i} class="wire" d={path(x)} />,
			])}
			{wire.label?.lines.map((text, i) => (
				<text
					key={text}
					class="muted haloed"
					x={wire.label!.at[0]}
					y={wire.label!.at[1] + i * 16}
					text-anchor={wire.label!.anchor}
				>
					{text}
				</text>
			))}
			{hasArrow && (
				<path
					class="arrow"
					d={`M${end[0].toFixed(1)} ${end[1].toFixed(1)}L${tip(0.42)}L${tip(-0.42)}Z`}
				/>
			)}
		</g>
	);
}

/** Whether the pointer itself moved: what appears under one that rests is not meant. */
export const hasMoved = ({ movementX, movementY }: PointerEvent): boolean =>
	movementX !== 0 || movementY !== 0;

/** The name of a stream, with its width where no label of the first lane stands in the way. */
function streamLabel({ isVertical, stream, nodes }: LayerLayout, width: string): string {
	const name = "residual stream";
	if (!isVertical) return name + width;
	const start = stream!.line[0]![0] + 12;
	const inTheWay = (text: string) =>
		nodes.some(
			(x) =>
				x.boxes.some((box) => {
					const left = x.x + box.x - 8;
					const isBeside = left < start + textWidth(text) && left + box.w > start;
					return isBeside && x.y + box.y < 20;
				}) ||
				x.labels.some((label) => {
					const size = textWidth(label.text, 13, 650);
					const shift = { start: 0, middle: size / 2, end: size }[label.anchor];
					const left = x.x + label.x - shift;
					const isBeside = left < start + textWidth(text) + 8 && left + size > start;
					return isBeside && x.y + label.y < 32;
				}),
		);
	return inTheWay(name + width) ? (inTheWay(name) ? "" : name) : name + width;
}

function Stream({
	layout,
	active,
	stage,
	letters,
}: {
	layout: LayerLayout;
	active: ReadonlySet<string>;
	stage: Stage;
	letters: boolean;
}) {
	const { line, nodes } = layout.stream!;
	const label = streamLabel(layout, `, ${notation(stage.stream[2]!, {}, letters)} wide`);
	return (
		<g>
			<path class="stream" d={path(line)} />
			<text class="muted" x={layout.isVertical ? line[0]![0] + 12 : 0} y={12}>
				{label}
			</text>
			{nodes.map((x) => {
				const kind = stage.steps.find((y) => y.name === x.name)?.kind;
				return (
					<g key={x.name} data-stream={x.name} class={active.has(x.name) ? "active" : ""}>
						<circle class="sum" cx={x.x} cy={x.y} r={11} />
						{kind === "add" ? (
							<path class="plus" d={`M${x.x - 6} ${x.y}h12M${x.x} ${x.y - 6}v12`} />
						) : kind === "norm" ? (
							<path
								class="plus"
								d={`M${x.x - 3} ${x.y - 6}v12M${x.x + 3} ${x.y - 6}v12`}
							/>
						) : (
							<path
								class="plus"
								d={`M${x.x - 4} ${x.y - 4}l8 8M${x.x + 4} ${x.y - 4}l-8 8`}
							/>
						)}
					</g>
				);
			})}
		</g>
	);
}

/** The residual stream where it begins: at what the embedding gives, and on to the layers. */
function StreamBegins({
	layout,
	stage,
	letters,
}: {
	layout: LayerLayout;
	stage: Stage;
	letters: boolean;
}) {
	const name = stage.steps.at(-1)!.name;
	const last = layout.nodes.find((x) => x.node.steps.some((y) => y.name === name));
	if (!last || layout.isVertical) return null;
	const [x, y] = [rightOf(last), last.y + last.portY];
	const label = `residual stream, ${notation(stage.steps.at(-1)!.shape.at(-1)!, {}, letters)} wide`;
	if (layout.width - x < textWidth(label) + 40) return null;
	return (
		<g>
			<path
				class="stream"
				d={path([
					[x, y],
					[layout.width, y],
				])}
			/>
			<text class="muted haloed" x={layout.width - 4} y={y - 14} text-anchor="end">
				{label}
			</text>
		</g>
	);
}

function LabelText({
	label,
	isPale,
	isCrossed,
	isInPanel,
}: {
	label: Label;
	isPale: boolean;
	isCrossed: boolean;
	isInPanel: boolean;
}) {
	const style =
		label.on && isPale
			? undefined
			: label.on && isCrossed
				? {
						fill: textOn(label.on),
						stroke: fill(label.on),
						strokeWidth: 5,
						paintOrder: "stroke",
					}
				: label.on
					? { fill: textOn(label.on) }
					: label.cache
						? { fill: "var(--c-kv)" }
						: undefined;
	return (
		<text
			x={label.x}
			y={label.y}
			text-anchor={label.anchor}
			class={`${label.on || isInPanel ? "" : "haloed"}${label.bold ? " bold" : ""}${label.muted && !label.on ? " muted" : ""}`}
			style={style}
		>
			{label.text}
		</text>
	);
}

/** ≠ or + in a disc, where something differs from the other model or is not there. */
function Badge({ x, y, mark }: { x: number; y: number; mark: Mark }) {
	if (mark === "same") return null;
	return (
		<g class="mark-badge">
			<circle cx={x} cy={y} r={8.5} />
			<path
				d={
					mark === "only"
						? `M${x - 4.5} ${y}h9M${x} ${y - 4.5}v9`
						: `M${x - 4.5} ${y - 2}h9M${x - 4.5} ${y + 2}h9M${x - 2.5} ${y + 5}l5 -10`
				}
			/>
		</g>
	);
}

/** The middle of a badge beside a name: before one that is centred, else after it. */
function besideName({ x, y, text, anchor }: Label): { x: number; y: number } {
	const width = textWidth(text, 13, 650);
	return { x: anchor === "middle" ? x - width / 2 - 13 : x + width + 13, y: y - 4.5 };
}

function NodeShape({
	placed,
	cachedCells,
	markOf,
	isOpen,
	asked,
}: {
	placed: Placed;
	cachedCells: number;
	markOf?: Props["markOf"];
	/** Whether the number of a weight is asked for and not yet known. */
	isOpen?: (path: string) => boolean;
	/** The weights that a quiz is at. */
	asked?: readonly string[];
}) {
	const { boxes, circle, bar, panel, cells, experts, heads, labels, w, h, node } = placed;
	const isAsked = (path = "") => (asked?.includes(path) ? "asked" : "");
	const isPale = (path: string) => isOpen?.(path) || markOf?.(node, path) === "same";
	const corner = heads
		? [heads.x + heads.w, heads.y]
		: experts
			? [w - experts.x, 0]
			: bar
				? [bar.x + bar.w + 2, bar.y]
				: panel
					? [panel.w, 0]
					: cells
						? [cells.x + cells.w, 0]
						: circle
							? [circle.x + 11, 0]
							: null;
	const names = labels.filter((x) => x.bold);
	const chosen = new Set(experts ? exampleChoice(experts.n, experts.k, experts.groups) : []);
	const group =
		(node.steps.find((x) => x.kind === "scores" || x.kind === "state") ?? node.steps[0])
			?.color ?? "other";
	return (
		<>
			<rect class="hit" x={-2} y={-2} width={w + 4} height={h + 4} rx={4} />
			{panel && (
				<rect
					class="operation"
					x={panel.x}
					y={panel.y}
					width={panel.w}
					height={panel.h}
					rx={6}
				/>
			)}
			{bar && (
				<rect
					class={isAsked(node.steps[0]?.uses[0]?.path)}
					x={bar.x}
					y={bar.y}
					width={bar.w}
					height={bar.h}
					rx={2}
					style={
						isPale(node.steps[0]?.uses[0]?.path ?? "")
							? { fill: tint("norm"), stroke: fill("norm") }
							: { fill: fill("norm") }
					}
				/>
			)}
			{boxes.map((x, i) => (
				<g key={i} data-matrix={x.matrix.use.path}>
					{Array.from({ length: x.sheets }, (_, j) => {
						const off = (x.sheets - j) * 4;
						return (
							<rect
								key={j}
								x={x.x + off}
								y={x.y - off}
								width={x.w}
								height={x.h}
								rx={2}
								style={{
									fill: tint(groupOf(x.matrix)),
									stroke: fill(groupOf(x.matrix)),
								}}
							/>
						);
					})}
					<rect
						class={`own ${isAsked(x.matrix.use.path)}`}
						x={x.x}
						y={x.y}
						width={x.w}
						height={x.h}
						rx={2}
						style={
							isPale(x.matrix.use.path)
								? { fill: tint(groupOf(x.matrix)), stroke: fill(groupOf(x.matrix)) }
								: {
										fill: fill(groupOf(x.matrix)),
										stroke: x.sheets ? "var(--panel)" : undefined,
									}
						}
					/>
					{x.ghost && (
						<rect
							class="ghost"
							x={x.x + (x.w - x.ghost.w) / 2}
							y={x.y + (x.h - x.ghost.h) / 2}
							width={x.ghost.w}
							height={x.ghost.h}
							rx={2}
						/>
					)}
					{markOf && (
						<Badge {...besideName(names[i]!)} mark={markOf(node, x.matrix.use.path)} />
					)}
				</g>
			))}
			{circle && (
				<>
					{circle.from && <path class="wire" d={circle.from} />}
					<circle class="sum" cx={circle.x} cy={circle.y} r={11} />
					<path
						class="plus"
						d={
							circle.symbol === "+"
								? `M${circle.x - 6} ${circle.y}h12M${circle.x} ${circle.y - 6}v12`
								: `M${circle.x - 4} ${circle.y - 4}l8 8M${circle.x + 4} ` +
									`${circle.y - 4}l-8 8`
						}
					/>
				</>
			)}
			{cells && <CacheCells {...cells} filled={cachedCells} />}
			{experts &&
				Array.from({ length: experts.n }, (_, i) => {
					const isChosen = chosen.has(i);
					return (
						<rect
							key={i}
							x={experts.x + (i % experts.columns) * experts.cell + 0.5}
							y={experts.y + Math.floor(i / experts.columns) * experts.cell + 0.5}
							width={experts.cell - 1.5}
							height={experts.cell - 1.5}
							style={{
								fill: isChosen ? fill("experts") : tint("experts"),
								stroke: fill("experts"),
								strokeWidth: 0.6,
							}}
						/>
					);
				})}
			{heads && <Heads {...heads} group={group} filled={cachedCells} />}
			{shownLabels(placed).map((x, i) => {
				const box = x.on ? boxes.find((y) => x.x > y.x && x.x < y.x + y.w) : undefined;
				// apart from each other where they are read as one name
				return [
					i > 0 && " ",
					<LabelText
						key={i}
						label={x}
						isPale={box !== undefined && isPale(box.matrix.use.path)}
						isCrossed={box?.ghost !== undefined}
						isInPanel={panel !== undefined && !circle}
					/>,
				];
			})}
			{markOf && !boxes.length && corner && (
				<Badge x={corner[0]!} y={corner[1]!} mark={markOf(node)} />
			)}
		</>
	);
}

/**
 * Experts that a token could choose, spread over the first half of the groups: any others could be
 * chosen as well.
 */
function exampleChoice(n: number, k: number, groups: number): number[] {
	const range = groups > 1 ? Math.max(k, Math.floor(n / 2)) : n;
	const found = new Set<number>();
	for (let i = 0; found.size < Math.min(k, n); i++)
		found.add(Math.floor((i * 0.6180339887 * range + range / 7 + Math.floor(i / n)) % range));
	return [...found];
}

const CELLS = 8;

function CacheCells({
	x,
	y,
	w,
	h,
	filled,
}: {
	x: number;
	y: number;
	w: number;
	h: number;
	filled: number;
}) {
	const cell = w / CELLS;
	return (
		<>
			{Array.from({ length: CELLS }, (_, i) => (
				<rect
					key={i}
					class={i < filled ? "" : "cell-empty"}
					x={x + i * cell + 0.5}
					y={y}
					width={cell - 1.5}
					height={h}
					style={
						i < filled
							? { fill: fill("cache") }
							: { fill: tint("cache"), stroke: fill("cache"), strokeWidth: 0.6 }
					}
				/>
			))}
		</>
	);
}

/** Query heads at the left, each wired to the KV head that it shares. */
function Heads({
	x,
	y,
	w,
	h,
	many,
	few,
	cached,
	isUnpacked,
	keysFirst,
	group,
	filled,
}: {
	x: number;
	y: number;
	w: number;
	h: number;
	many: number;
	few: number;
	cached: boolean;
	isUnpacked: boolean;
	keysFirst: boolean;
	group: string;
	filled: number;
}) {
	if (!many)
		return (
			<rect
				class="state"
				x={x}
				y={y}
				width={w}
				height={h}
				rx={3}
				style={{ fill: tint(group), stroke: fill(group) }}
			/>
		);
	const shown = isUnpacked ? Math.min(many, SHOWN_HEADS) : Math.min(many, 256);
	const rows = isUnpacked ? shown : Math.min(few, shown);
	// of more heads than are drawn, the last but one is the sign that some are left out
	const leftOut = isUnpacked && many > shown ? shown - 2 : -1;
	const queryY = (i: number) => y + 4 + ((i + 0.5) * (h - 8)) / shown;
	const rowHeight = (h - 8) / rows;
	const rowY = (i: number) => y + 4 + (i + 0.5) * rowHeight;
	const [queryX, keyX] = keysFirst ? [x + w - 7, x] : [x + 7, x + w - KEY_WIDTH];
	const [left, right] = [queryX, keysFirst ? keyX + KEY_WIDTH : keyX];
	const radius = Math.min(4, Math.max(1.2, (h - 8) / shown / 2 - 0.6));
	const lines = Array.from({ length: shown }, (_, i) => {
		if (i === leftOut) return "";
		const [a, b] = [queryY(i), rowY(Math.min(rows - 1, Math.floor((i * rows) / shown)))];
		return (
			`M${left} ${a.toFixed(1)}C${(left + right) / 2} ${a.toFixed(1)} ` +
			`${(left + right) / 2} ${b.toFixed(1)} ${right} ${b.toFixed(1)}`
		);
	}).join("");
	const height = Math.min(14, Math.max(1.2, rowHeight - 2));
	return (
		<>
			<path
				class="heads-wires"
				d={lines}
				style={{ stroke: fill(group), strokeWidth: shown > 64 ? 0.5 : 1 }}
			/>
			{Array.from({ length: shown }, (_, i) => (
				<circle
					key={i}
					cx={queryX}
					cy={queryY(i)}
					r={i === leftOut ? 1 : radius}
					style={{ fill: fill(group) }}
				/>
			))}
			{Array.from({ length: rows }, (_, i) =>
				i === leftOut ? (
					<path
						key={i}
						class="left-out"
						d={`M${keyX + KEY_WIDTH / 2 - 8} ${rowY(i)}h16`}
					/>
				) : cached ? (
					<CacheCells
						key={i}
						x={keyX}
						y={rowY(i) - height / 2}
						w={KEY_WIDTH}
						h={height}
						filled={filled}
					/>
				) : (
					<rect
						key={i}
						x={keyX}
						y={rowY(i) - height / 2}
						width={KEY_WIDTH}
						height={height}
						rx={1}
						style={{
							fill: tint(group),
							stroke: fill(group),
							strokeWidth: rows > 32 ? 0.4 : 1,
						}}
					/>
				),
			)}
		</>
	);
}
