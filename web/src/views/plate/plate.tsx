// The picture of the model, the heart of the page: the whole model, and below it the opened layer,
// block, matrix or head.
import "./plate.css";
import { Fragment, type ComponentChildren } from "preact";
import { useCallback, useContext, useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Segmented } from "../../components/controls";
import { SectionMenu } from "../../components/export/section_menu";
import { NumberButton } from "../../components/number";
import type { ModelData } from "../../lib/data";
import { inShort, sumFormula, type Derivation } from "../../lib/derivation";
import { Original } from "../../lib/editing";
import { grouped, shortCount } from "../../lib/format";
import { liveViews } from "../../lib/live_views";
import { useRoving } from "../../lib/roving";
import { parseLayer, type Scheme } from "../../lib/settings";
import { change, dropUnknown, state as appState, useAppState, type State } from "../../lib/state";
import { useWidth } from "../../lib/use_width";
import { comparedWith, originalStage } from "../edit/ghosts";
import { LayerField, roomForFields } from "../quiz/fields";
import { AskingOf, useIsAsking } from "../quiz/quiz_data";
import { BlockList, Totals } from "./block_list";
import type { PlateNode } from "./contract";
import { filledCells, Flow, useWalk } from "./flow";
import { LayerPicture, useLayerLayout } from "./layer_picture";
import { HeadView, MatrixView, unitName } from "./matrix_view";
import {
	asNumber,
	COMPONENT_NAMES,
	fill,
	firstOfKind,
	fullName,
	kindAt,
	layersOfKind,
	middleLayer,
	numLayers,
	PLATE_SETTINGS,
	plateOf,
	prefixOf,
	schemeNames,
	shortName,
	stageAt,
	stagesOf,
	variablesOf,
	type LayerKind,
	type PlateData,
	type PlateState,
	type Stage,
	type Step,
} from "./plate_model";
import { kindFill, openX, Skyline, tallestBar } from "./skyline";
import { nameOfTower, towerAt, TowerStages, UnknownTower, type TowerPlace } from "./towers";
import {
	blocksOf,
	headSplit,
	splitZoom,
	takeOrigin,
	weightAt,
	zoomOut,
	zoomTo,
	type Block,
} from "./zoom";

const NARROW = 600;
const WHOLE_HEIGHT = 340;
const SKIPPED_SIZE = 200;

export function PlateSkyline({
	model,
	barHeight,
	most,
	hasLens = false,
}: {
	model: ModelData;
	barHeight: number;
	most?: number;
	hasLens?: boolean;
}) {
	const state = useAppState("layer", "zoom");
	const plate = plateOf(model);
	const [ref, width] = useWidth<HTMLDivElement>();
	const open = openPlace(model, state.layer);
	const original = useContext(Original);
	const before = original && plateOf(original);
	const isWhole = hasLens && state.zoom === "model";
	const choose = (layer: number | string) => change({ layer: parseLayer(`${layer}`), zoom: "" });
	return (
		<div ref={ref} class="plate plate-whole">
			{plate.kinds.length > 1 && <Kinds plate={plate} open={open} />}
			{width > 99 && (
				<Skyline
					plate={plate}
					width={width}
					barHeight={isWhole ? WHOLE_HEIGHT : barHeight}
					most={
						most ?? (before ? Math.max(...[plate, before].map(tallestBar)) : undefined)
					}
					before={before ?? undefined}
					open={open}
					choose={choose}
				/>
			)}
			{hasLens && width > 99 && !isWhole && (
				<Lens at={openX(plate, width, open)} width={width} />
			)}
		</div>
	);
}

/** From the open bar down to the panel in which it is shown large. */
function Lens({ at: [left, right], width }: { at: [number, number]; width: number }) {
	return (
		<svg class="lens" width={width} height={14} viewBox={`0 0 ${width} 14`} aria-hidden="true">
			<path d={`M${left} 0H${right}L${width - 14} 14H14Z`} />
		</svg>
	);
}

/** The open layer, the part "embedding" or "head", or a stage of a tower such as "vision.1". */
export function openPlace(model: ModelData, chosen: State["layer"]): number | string {
	if (chosen === "embedding" || chosen === "head" || towerAt(model, chosen)) return chosen;
	const plate = plateOf(model);
	return typeof chosen === "number" && chosen < numLayers(plate) ? chosen : middleLayer(plate);
}

function Kinds({ plate, open }: { plate: PlateData; open: number | string }) {
	const rove = useRoving(plate.kinds.length);
	return (
		<div class="plate-kinds" role="group" aria-label="Kinds of layers" data-roving>
			{plate.kinds.map((x, i) => (
				<button
					type="button"
					key={i}
					{...rove(i)}
					aria-pressed={typeof open === "number" && kindAt(plate, open) === i}
					onClick={() => change({ layer: firstOfKind(plate, i), zoom: "" })}
				>
					<i style={{ background: kindFill(i) }} class="swatch data" />
					{grouped(layersOfKind(plate, i))} × {x.label}
				</button>
			))}
		</div>
	);
}

/** What is open: a part of the path that the model has; the rest of the path is ignored. */
interface Opened {
	block: Block | null;
	step: Step | null;
	head: number | null;
	/** What the open head is: of queries, or of keys and values. */
	unit: string;
}

function openedAt(zoom: string, stage: Stage | null, kind: LayerKind | null): Opened {
	const [blockName, stepName, head] = splitZoom(zoom);
	const block =
		stage && blockName ? (blocksOf(stage).find((x) => x.name === blockName) ?? null) : null;
	const step =
		block?.steps.find((x) => x.name === stepName && x.uses.some((y) => y.shape.length >= 1)) ??
		null;
	const split = step
		? headSplit(weightAt(kind, step.uses.find((x) => x.shape.length >= 2)?.path ?? ""))
		: null;
	const isHead = split && head !== undefined && Number(head) < split[1];
	return {
		block,
		step,
		head: isHead ? Number(head) : null,
		unit: isHead ? unitName(split[2]) : "",
	};
}

export function Plate({
	model,
	whole,
	tour,
}: {
	model: ModelData;
	whole?: ComponentChildren;
	tour?: ComponentChildren;
}) {
	const state = useAppState(...PLATE_SETTINGS);
	const plate = plateOf(model);
	const [ref, width] = useWidth<HTMLDivElement>();
	const isDrawn = useRef(false);
	const open = openPlace(model, state.layer);
	const tower = towerAt(model, open);
	const kind =
		typeof open === "number" ? plate.kinds[kindAt(plate, open)]! : (tower?.stage?.kind ?? null);
	const stages = stagesOf(model, state.pass);
	const ofText =
		typeof open === "number"
			? stageOfKind(stages, kind!, open)
			: (stages.find((x) => x.name === open) ?? null);
	const stage = tower ? (tower.stage ?? null) : ofText;
	const opened = openedAt(state.zoom, stage, kind);
	useLayoutEffect(() => {
		// what the model does not have leaves the address
		const [block, step, head] = splitZoom(state.zoom);
		const isKnown =
			(!block || opened.block) && (!step || opened.step) && (!head || opened.head !== null);
		const to = {
			...(state.layer !== "" && state.layer !== open && { layer: "" as const }),
			...(!isKnown && { zoom: "" }),
		};
		if (Object.keys(to).length) dropUnknown(to);
	}, [state.layer, state.zoom, open]);
	useZoomGestures(ref);
	useLayoutEffect(() => {
		// what had the focus went with its level
		const crumb = ref.current!.querySelector<HTMLElement>(".plate-path [aria-current]");
		if (isDrawn.current && document.activeElement === document.body)
			crumb?.focus({ preventScroll: true });
		isDrawn.current = true;
	}, [state.zoom]);
	const WithMarks = liveViews.WithMarks ?? Fragment;
	return (
		<div id="plate" data-title={`${model.name}: ${grouped(model.counts[0]!.value)} parameters`}>
			<div
				ref={ref}
				class={`plate poster ${state.zoom === "model" ? "at-model" : ""}`}
				role="group"
				aria-label={`${model.name}: the whole model, ${nameOfPlace(open)}`}
			>
				<Path model={model} open={open} opened={opened} state={state}>
					{tour}
				</Path>
				{whole}
				{state.zoom !== "model" && width > 0 && (
					<div class="plate-panel" data-numbers>
						<WithMarks model={model} open={open}>
							<Panel
								key={`${state.layer}`}
								model={model}
								stage={stage}
								kind={kind}
								open={open}
								tower={tower}
								opened={opened}
								state={state}
								width={width - (width < 600 ? 26 : 34)}
							/>
						</WithMarks>
					</div>
				)}
			</div>
		</div>
	);
}

function stageOfKind(stages: Stage[], kind: LayerKind, layer: number): Stage | null {
	return stageAt(stages, layer) ?? (kind.stage === null ? null : (stages[kind.stage] ?? null));
}

const nameOfPlace = (open: number | string): string =>
	typeof open === "number"
		? `Layer ${grouped(open)}`
		: open === "head"
			? "Head"
			: open === "embedding"
				? "Embedding"
				: nameOfTower(open);

/** Model › Layer 12 › attention › q › head 3, and the buttons that go a level up or down. */
function Path({
	model,
	open,
	opened,
	state,
	children,
}: {
	model: ModelData;
	open: number | string;
	opened: Opened;
	state: PlateState;
	children?: ComponentChildren;
}) {
	const plate = plateOf(model);
	const { block, step, head } = opened;
	const levels: [string, string][] = [
		["model", model.name],
		["", nameOfPlace(open)],
	];
	if (block) levels.push([block.name, block.title]);
	if (step) levels.push([`${block!.name}/${step.name}`, step.name]);
	if (head !== null) levels.push([`${block!.name}/${step!.name}/${head}`, `head ${head}`]);
	const at = state.zoom === "model" ? 0 : levels.length - 1;
	const shown = state.zoom === "model" ? levels.slice(0, 2) : levels;
	const last = numLayers(plate) - 1;
	return (
		<nav class="plate-bar no-export" aria-label="Levels of the picture">
			<ol class="plate-path">
				{shown.map(([zoom, name], i) => (
					<li key={zoom}>
						<button
							type="button"
							tabIndex={i === at ? -1 : 0}
							data-level={zoom || "layer"}
							aria-current={i === at ? "true" : undefined}
							onClick={() => zoomTo(zoom)}
						>
							{name}
						</button>
					</li>
				))}
			</ol>
			{children}
			<span class="plate-controls">
				{typeof open === "number" && (
					<>
						<button
							type="button"
							class="button icon"
							aria-label="Previous layer"
							title="Previous layer"
							aria-disabled={open <= 0}
							onClick={() => open > 0 && change({ layer: open - 1 })}
						>
							‹
						</button>
						<button
							type="button"
							class="button icon"
							aria-label="Next layer"
							title="Next layer"
							aria-disabled={open >= last}
							onClick={() => open < last && change({ layer: open + 1 })}
						>
							›
						</button>
					</>
				)}
				<button
					type="button"
					class="button icon"
					aria-label="Zoom out"
					title="Zoom out"
					aria-disabled={state.zoom === "model"}
					onClick={zoomOut}
				>
					−
				</button>
				<button
					type="button"
					class="button icon"
					aria-label="Zoom in"
					title="Zoom in"
					aria-disabled={head !== null}
					onClick={() => zoomInFrom(null)}
				>
					+
				</button>
				<SectionMenu id="plate" topic="the picture of the model" />
			</span>
		</nav>
	);
}

interface PanelProps {
	model: ModelData;
	stage: Stage | null;
	kind: LayerKind | null;
	open: number | string;
	tower: TowerPlace | null;
	opened: Opened;
	state: PlateState;
	width: number;
}

function Panel({ model, stage, kind, open, tower, opened, state: settings, width }: PanelProps) {
	// of the text that the page runs
	const length = liveViews.useLength?.(model);
	const state = length ? { ...settings, context: BigInt(length), batch: 1n } : settings;
	const names = useMemo(() => schemeNames(model), [model]);
	const scheme = state.names;
	const isLayer = typeof open === "number";
	const prefix = prefixOf(stage);
	const nameOf = useCallback(
		(path: string) => shortName(fullName(names, path, scheme, prefix) || path),
		[names, scheme, prefix],
	);
	const variables = variablesOf(state);
	const { block, step, head, unit } = opened;
	const walk = useWalk(stage?.steps.length ?? 0, `${state.pass} ${open}`);
	const walked = walk.index === null ? null : (stage?.steps[walk.index]?.name ?? null);
	const blocks = useMemo(() => (stage ? blocksOf(stage) : []), [stage]);
	const rove = useRoving(blocks.length);
	const blockOf = (name: string) =>
		blocks.find((x) => x.steps.some((y) => y.name === name))?.name ?? blocks[0]?.name ?? "";
	const isAsking = useIsAsking();
	const openNode = (node: PlateNode, name: string, from: Element) =>
		isAsking
			? fieldOf(node)?.focus()
			: zoomTo(
					node.matrices.length
						? `${blockOf(name)}/${(node.matrices.find((x) => x.step.name === name) ?? node.matrices[0]!).step.name}`
						: blockOf(name),
					from,
				);
	const level = head !== null ? "head" : step ? "matrix" : block ? "block" : "layer";
	const letters = state.shapes === "letters";
	const sizes = kind?.sizes;
	return (
		<>
			<div class="plate-head">
				<h2>
					{[
						nameOfPlace(open),
						tower?.stage &&
							tower.stage.name !== tower.tower.name &&
							`: ${tower.stage.name}`,
						block && `: ${block.title}`,
						step && `, ${step.name}`,
						unit && `, ${unit} ${head}`,
					]
						.filter(Boolean)
						.join("")}
				</h2>
				{level === "layer" && sizes && isAsking && (
					<span class="quiz-layer">
						<small>parameters of this layer</small>
						<LayerField parameters={sizes.parameters} />
					</span>
				)}
				{level === "layer" && sizes && !isAsking && (
					<span>
						{kind.label === stage?.name ? "" : `${kind.label} · `}
						<NumberButton
							derive={() => sizesDerivation(kind, "parameters")}
							label="parameters of the layer"
							data-layer="parameters"
						>
							{grouped(sizes.parameters)}
						</NumberButton>{" "}
						parameters
						{sizes.active !== sizes.parameters && (
							<>
								,{" "}
								<NumberButton
									derive={() => sizesDerivation(kind, "active")}
									label="active parameters of the layer"
									data-layer="active"
								>
									{shortCount(sizes.active)}
								</NumberButton>{" "}
								active
							</>
						)}
					</span>
				)}
				{level === "block" && (
					<span>
						<Totals
							name={`${open}: ${block!.name}`}
							steps={block!.steps}
							variables={variables}
							isTower={tower !== null}
						/>
					</span>
				)}
				{level === "layer" && tower?.stage && !sizes && (
					<span>
						<Totals
							name={tower.stage.name}
							steps={tower.stage.steps}
							variables={variables}
							isTower
						/>
					</span>
				)}
				{(level === "layer" || level === "block") && (
					<span class="plate-controls no-print no-export">
						<Segmented<Scheme>
							id="choice-names"
							label="Names"
							labelHidden
							options={[
								["path", "llamath"],
								["hf", "HF"],
								["gguf", "GGUF"],
							]}
							chosen={scheme}
							choose={(x) => change({ names: x })}
						/>
						<Segmented
							id="choice-shapes"
							label="Shapes"
							labelHidden
							options={[
								["numbers", "numbers"],
								["letters", "letters"],
							]}
							chosen={state.shapes}
							choose={(x) => change({ shapes: x })}
						/>
					</span>
				)}
			</div>
			{tower && level === "layer" && <TowerStages model={model} place={tower} />}
			<Scene at={state.zoom}>
				{!stage?.steps.length ? (
					tower ? (
						<UnknownTower model={model} tower={tower.tower} />
					) : (
						<Skipped kind={kind} />
					)
				) : level === "head" ? (
					<HeadView
						model={model}
						kind={kind}
						layer={isLayer ? open : -1}
						step={step!}
						head={head!}
						width={width}
					/>
				) : level === "matrix" ? (
					<MatrixView
						model={model}
						stage={stage}
						kind={kind}
						layer={isLayer ? open : -1}
						block={block!.name}
						step={step!}
						width={width}
						variables={variables}
						names={names}
					/>
				) : level === "block" ? (
					<BlockList
						stage={stage}
						steps={block!.steps}
						width={width}
						letters={letters}
						variables={variables}
						nameOf={nameOf}
						walked={walked}
						openMatrix={(x, from) => zoomTo(`${block!.name}/${x.name}`, from)}
					/>
				) : (
					<OpenLayer
						list={
							<BlockList
								stage={stage}
								steps={stage.steps}
								width={width}
								letters={letters}
								variables={variables}
								nameOf={nameOf}
								walked={walked}
								openMatrix={(x, from) =>
									zoomTo(`${blockOf(x.name)}/${x.name}`, from)
								}
							/>
						}
						stage={stage}
						modelWidth={asNumber(stage.stream[2]!)}
						width={width}
						isPhone={width < NARROW}
						letters={letters}
						scheme={scheme}
						nameOf={nameOf}
						walked={walked}
						cachedCells={filledCells(stage, walk.index, state.pass === "next")}
						zoomPath={(node, name) =>
							node.matrices.length
								? `${blockOf(name)}/${node.matrices[0]!.step.name}`
								: blockOf(name)
						}
						open={openNode}
					/>
				)}
			</Scene>
			{level === "layer" && blocks.length > 0 && stage!.steps.length > 0 && (
				<div class="plate-foot">
					<Key stage={stage} />
					{tower?.tower.image && (
						<p class="caption">
							Shapes and FLOPs of {tower.tower.image}.
							{tower.tower.unread.length > 0 &&
								` Stored, but read by no step: ${tower.tower.unread.map(([path, n]) => `${path} (${grouped(n)})`).join(", ")}.`}
						</p>
					)}
					<p class="plate-blocks no-export" data-roving hidden={isAsking}>
						Every step:{" "}
						{blocks.map((x, i) => (
							<button
								type="button"
								key={x.name}
								{...rove(i)}
								class="button"
								data-zoom={x.name}
								onClick={(event) => zoomTo(x.name, event.currentTarget)}
							>
								{x.title}
							</button>
						))}
					</p>
					<p class="caption">Matrices to one scale</p>
				</div>
			)}
			{isLayer &&
				!isAsking &&
				stage &&
				stage.steps.length > 0 &&
				(level === "layer" || level === "block") && (
					<Flow model={model} stage={stage} layer={open} walk={walk} state={state} />
				)}
		</>
	);
}

/** A stage as it was, while one of other layers is the same. */
function useSame(stage: Stage): Stage {
	const kept = useRef({ text: "", stage });
	const text = JSON.stringify({ ...stage, name: "", ranges: [], times: "" });
	if (text !== kept.current.text) kept.current = { text, stage };
	return kept.current.stage;
}

/**
 * The picture of the layer, or on screens too narrow for its parallel matrices the list of its
 * steps.
 */
function OpenLayer({
	list,
	stage: drawn,
	...rest
}: Omit<Parameters<typeof LayerPicture>[0], "layout"> & { list: ComponentChildren }) {
	const props = { ...rest, stage: useSame(drawn) };
	const asking = useContext(AskingOf);
	const original = useContext(Original);
	const before = original && originalStage(original, props.stage);
	const isAsking = asking !== null && !props.isPhone;
	const other = useMemo(
		() => (isAsking ? roomForFields(asking) : before ? comparedWith(before) : undefined),
		[isAsking, before, props.stage],
	);
	const layout = useLayerLayout({ ...props, other });
	// no slider changes the picture
	const same = useMemo(
		() => ({ ...props, layout }),
		[layout, props.walked, props.cachedCells, asking === null],
	);
	const picture = <LayerPicture {...same} label={drawn.name} />;
	return <>{layout.width > props.width + 1 && !isAsking ? list : picture}</>;
}

/** The field of one of a node's weights. */
const fieldOf = (node: PlateNode): HTMLElement | null | undefined =>
	node.steps
		.flatMap((x) => x.uses)
		.map((x) => document.querySelector<HTMLElement>(`[data-field="${CSS.escape(x.path)}"]`))
		.find(Boolean);

function sizesDerivation({ label, sizes }: LayerKind, key: "parameters" | "active"): Derivation {
	const parts = sizes.groups
		.filter((x) => x[key] !== "0")
		.map((x): [string, string] => [x.group, x[key]]);
	return {
		title: `${label}: ${key === "active" ? "active parameters" : "parameters"} of one layer`,
		lines: [
			key === "active" && "the parameters that one token uses",
			sumFormula(parts),
			...inShort(key, sizes[key]),
		],
	};
}

/** Moves the camera to a new level: from the element that was chosen, or out from the middle. */
function Scene({ at, children }: { at: string; children: ComponentChildren }) {
	const ref = useRef<HTMLDivElement>(null);
	const before = useRef(at);
	useLayoutEffect(() => {
		if (before.current === at) return;
		const isOut = at.length < before.current.length;
		before.current = at;
		const from = takeOrigin();
		if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
		const box = ref.current!.getBoundingClientRect();
		const start =
			from && !isOut
				? `translate(${from.left - box.left}px, ${from.top - box.top}px) ` +
					`scale(${Math.max(0.05, from.width / box.width)}, ` +
					`${Math.max(0.05, from.height / box.height)})`
				: `translate(${-box.width * 0.06}px, ${-box.height * 0.06}px) scale(1.12)`;
		ref.current!.animate(
			[
				{ transform: start, opacity: 0.2 },
				{ transform: "none", opacity: 1 },
			],
			{ duration: 320, easing: "cubic-bezier(.2, .7, .2, 1)" },
		);
	}, [at]);
	return (
		<div ref={ref} class="plate-scene">
			{children}
		</div>
	);
}

/** A layer that the recorded pass leaves out: text alone does not reach it. */
function Skipped({ kind }: { kind: LayerKind | null }) {
	if (!kind) return null;
	const matrices = kind.weights.filter((x) => x.shape.length >= 2);
	const scale = SKIPPED_SIZE / Math.max(...matrices.flatMap((x) => x.shape.map(Number)));
	const order = (group: string) => (group === "attention" ? 0 : 1);
	return (
		<div>
			<p class="caption">
				Text alone skips this layer: its queries are of the text, its keys and values of an
				image. It is counted, not computed. Its matrices to one scale:
			</p>
			<ul class="skipped drawn">
				{matrices
					.toSorted((a, b) => order(a.group) - order(b.group))
					.map(({ path, group, shape }) => (
						<li key={path}>
							<i
								class="data"
								style={{
									background: fill(group),
									width: `${Number(shape.at(-1)) * scale}px`,
									height: `${Number(shape[0]) * scale}px`,
								}}
							/>
							<code>{path.replace(/\.weight$/, "")}</code>
							<span>
								{grouped(shape.at(-1)!)} → {grouped(shape[0]!)}
							</span>
						</li>
					))}
			</ul>
		</div>
	);
}

function Key({ stage }: { stage: Stage | null }) {
	const found = new Set(stage?.steps.map((x) => (x.kind === "cache" ? "cache" : x.color)));
	const shown = COMPONENT_NAMES.filter(([x]) => found.has(x));
	if (!shown.length) return null;
	return (
		<div class="key" role="group" aria-label="Colours">
			{shown.map(([group, name]) => (
				<span key={group}>
					<i class="swatch data" style={{ background: fill(group) }} />
					{name}
				</span>
			))}
		</div>
	);
}

/** Opens what is under the pointer or has the focus, else the first of what can be opened. */
function zoomInFrom(target: Element | null): void {
	if (appState.zoom === "model") return zoomTo("");
	const scene = document.querySelector(".plate-panel");
	const chosen =
		target?.closest("[data-zoom]") ??
		scene?.querySelector(".plate-scene [data-zoom]") ??
		scene?.querySelector("[data-zoom]");
	if (chosen) zoomTo(chosen.getAttribute("data-zoom")!, chosen);
	else scene?.querySelector<HTMLElement>("[data-zoom-step]")?.click();
}

/** Escape goes a level up wherever the focus is, unless it closes something. */
function zoomOutOnEscape(event: KeyboardEvent): void {
	const isTyping = (event.target as Element).closest?.("input, select, textarea");
	if (event.key !== "Escape" || event.defaultPrevented || isTyping) return;
	if (appState.tour !== null || appState.quiz || document.querySelector("dialog[open]")) return;
	event.preventDefault();
	zoomOut();
}

/** Ctrl and wheel, pinch on a trackpad or a touch screen, and the keys + and − change the level. */
function useZoomGestures(ref: { current: HTMLElement | null }) {
	useEffect(() => {
		const element = ref.current;
		if (!element) return;
		let [turned, last] = [0, 0];
		const onWheel = (event: WheelEvent) => {
			if (!event.ctrlKey) return;
			event.preventDefault();
			if (event.timeStamp - last < 400) return;
			turned += event.deltaY;
			if (Math.abs(turned) < 30) return;
			if (turned < 0) zoomInFrom(event.target as Element);
			else zoomOut();
			[turned, last] = [0, event.timeStamp];
		};
		const touches = new Map<number, [number, number]>();
		let distance = 0;
		const spread = () => {
			const [a, b] = [...touches.values()];
			return a && b ? Math.hypot(a[0] - b[0], a[1] - b[1]) : 0;
		};
		const onDown = (event: PointerEvent) => {
			if (event.pointerType !== "touch") return;
			// the end of a touch is lost where its element went away
			if (event.isPrimary) touches.clear();
			touches.set(event.pointerId, [event.clientX, event.clientY]);
			distance = spread();
		};
		const onMove = (event: PointerEvent) => {
			if (!touches.has(event.pointerId)) return;
			touches.set(event.pointerId, [event.clientX, event.clientY]);
			const now = spread();
			if (touches.size !== 2 || !distance) return;
			const [a, b] = [...touches.values()] as [[number, number], [number, number]];
			if (now > distance * 1.4)
				zoomInFrom(document.elementFromPoint((a[0] + b[0]) / 2, (a[1] + b[1]) / 2));
			else if (now < distance / 1.4) zoomOut();
			else return;
			distance = 0;
		};
		const onUp = (event: PointerEvent) => void touches.delete(event.pointerId);
		const onKey = (event: KeyboardEvent) => {
			if (event.ctrlKey || event.metaKey || event.altKey) return;
			if (event.key === "+" || event.key === "=") zoomInFrom(event.target as Element);
			else if (event.key === "-") zoomOut();
			else return;
			event.preventDefault();
		};
		const listeners = {
			wheel: onWheel,
			pointerdown: onDown,
			pointermove: onMove,
			pointerup: onUp,
			pointercancel: onUp,
			keydown: onKey,
		} as unknown as Record<string, EventListener>;
		for (const [name, listener] of Object.entries(listeners))
			element.addEventListener(name, listener, { passive: false });
		addEventListener("keydown", zoomOutOnEscape);
		return () => {
			removeEventListener("keydown", zoomOutOnEscape);
			for (const [name, listener] of Object.entries(listeners))
				element.removeEventListener(name, listener);
		};
	}, []);
}
