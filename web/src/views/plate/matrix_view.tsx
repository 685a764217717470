// One matrix as the product W x, divided by heads: its shape and how it follows, its parameters,
// FLOPs, bytes and names; and one head in all matrices of its block.
import { NumberButton } from "../../components/number";
import type { ModelData } from "../../lib/data";
import { formula, inBytes, type Derivation } from "../../lib/derivation";
import { value, type Variables } from "../../lib/expressions";
import { grouped, shortCount } from "../../lib/format";
import { liveViews } from "../../lib/live_views";
import { useAppState } from "../../lib/state";
import { dtypeOf, weightBytes } from "./bytes";
import {
	fill,
	fullName,
	leafOf,
	matrixShape,
	prefixOf,
	textOn,
	tint,
	type LayerKind,
	type LayerWeight,
	type Stage,
	type Step,
	type WeightUse,
} from "./plate_model";
import { stepDerivation } from "./step_derivation";
import { headSplit, weightAt, zoomTo } from "./zoom";

interface Props {
	model: ModelData;
	stage: Stage;
	kind: LayerKind | null;
	layer: number;
	block: string;
	step: Step;
	width: number;
	variables: Variables<bigint>;
	names: Map<string, Record<string, string>>;
}

const UNITS: Record<string, string> = {
	heads: "head",
	kv_heads: "KV head",
	key_heads: "key head",
	value_heads: "value head",
	groups: "group",
};
export const unitName = (unit: string) =>
	UNITS[unit] ?? unit.replaceAll("_", " ").replace(/s$/, "");

/** The rows or columns of one part. */
export function partRange(
	weight: LayerWeight,
	part: number,
): [first: number, last: number, size: number] {
	const [axis, parts] = headSplit(weight)!;
	const size = Number(weight.shape[axis]) / parts;
	return [part * size, (part + 1) * size - 1, size];
}

function drawn(
	[outputs, inputs]: readonly [bigint | string, bigint | string],
	most: number,
	maxWidth: number,
	maxHeight: number,
): [number, number] {
	const scale = Math.min(maxWidth, maxHeight) / most;
	return [
		Math.max(6, Math.min(maxWidth, Number(inputs) * scale)),
		Math.max(6, Math.min(maxHeight, Number(outputs) * scale)),
	];
}

export function MatrixView({
	model,
	stage,
	kind,
	layer,
	block,
	step,
	width,
	variables,
	names,
}: Props) {
	const Live = liveViews.Matrix;
	const use = step.uses.find((x) => x.shape.length >= 2) ?? step.uses[0]!;
	const weight: LayerWeight = weightAt(kind, use.path) ?? {
		path: use.path,
		group: step.color,
		shape: matrixShape(use.shape),
		copies: use.copies,
		split: null,
	};
	const split = use.shape.length >= 2 ? headSplit(weight) : null;
	const isWide = width > 720;
	const pictureWidth = isWide ? Math.min(520, width * 0.55) : Math.min(width, 420);
	const prefix = prefixOf(stage);
	const dtype = dtypeOf(model, useAppState("dtype"));
	const bytes = layer >= 0 ? weightBytes(model, layer, use.path, dtype) : null;
	const derive = () => stepDerivation(step, stage, variables);
	const parts = split?.[1] ?? 0;
	const flops = step.each[0];
	const isTower = stage.prefix !== undefined;
	const picture = (
		<ProductPicture
			step={step}
			use={use}
			weight={weight}
			split={split}
			block={block}
			width={pictureWidth}
		/>
	);
	return (
		<div class={`matrix-view${isWide ? " wide" : ""}`}>
			{layer >= 0 && Live ? (
				<Live
					model={model}
					layer={layer}
					step={step}
					width={pictureWidth}
					heads={split && <HeadLinks split={split} at={`${block}/${step.name}`} />}
				>
					{picture}
				</Live>
			) : (
				picture
			)}
			<dl class="matrix-facts">
				<div>
					<dt>Shape</dt>
					<dd>
						<NumberButton derive={derive} label="shape" data-matrix-fact="shape">
							{use.dims.join(" × ")} = {use.shape.map((n) => grouped(n)).join(" × ")}
						</NumberButton>
					</dd>
				</div>
				{BigInt(use.copies) > 1n && (
					<div>
						<dt>Copies</dt>
						<dd>
							{grouped(use.copies)}, of which a token uses {grouped(use.live)}
						</dd>
					</div>
				)}
				<div>
					<dt>Parameters</dt>
					<dd>
						<NumberButton
							derive={derive}
							label="parameters"
							data-matrix-fact="parameters"
						>
							{use.tied ? `tied to ${use.tied}` : grouped(use.parameters)}
						</NumberButton>
					</dd>
				</div>
				{flops !== undefined && (
					<div>
						<dt>{isTower ? "FLOPs per patch" : "FLOPs per token"}</dt>
						<dd>
							<NumberButton
								derive={derive}
								label={isTower ? "FLOPs per patch" : "FLOPs per token"}
								data-matrix-fact="flops"
							>
								{grouped(value(flops, variables))}
							</NumberButton>
						</dd>
					</div>
				)}
				{bytes !== null && (
					<div>
						<dt>Bytes in {dtype}</dt>
						<dd>
							<NumberButton
								derive={() => bytesDerivation(use, bytes, dtype)}
								label={`bytes in ${dtype}`}
								data-matrix-fact="bytes"
							>
								{grouped(bytes)}
							</NumberButton>
						</dd>
					</div>
				)}
				{split && (
					<div>
						<dt>Divided</dt>
						<dd>
							{grouped(parts)} {unitName(split[2])}
							{parts === 1 ? "" : "s"} of {grouped(partRange(weight, 0)[2])}{" "}
							{split[0] === 0 ? "rows" : "columns"}
						</dd>
					</div>
				)}
				{(["path", "hf", "gguf"] as const).map((scheme) => (
					<div key={scheme}>
						<dt>{{ path: "llamath", hf: "Hugging Face", gguf: "GGUF" }[scheme]}</dt>
						<dd>
							<code>{fullName(names, use.path, scheme, prefix) || "–"}</code>
						</dd>
					</div>
				))}
				<div>
					<dt>Does</dt>
					<dd>{step.does}</dd>
				</div>
			</dl>
		</div>
	);
}

type Split = NonNullable<LayerWeight["split"]>;

/** ← and → go from head to head, Enter opens one. */
const onHeadKey = (event: KeyboardEvent): void => {
	const own = event.target as SVGElement;
	const all = [...(event.currentTarget as Element).querySelectorAll<SVGElement>("[data-head]")];
	const to = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
	if (event.key === "Enter" || event.key === " ") zoomTo(own.dataset.zoom!, own);
	else if (to) all[Math.max(0, Math.min(all.length - 1, all.indexOf(own) + to))]!.focus();
	else return;
	event.preventDefault();
	event.stopPropagation();
};

/** The heads beside the cells of a matrix, each as long as its part. */
function HeadLinks({ split: [axis, parts, unit], at }: { split: Split; at: string }) {
	return (
		<div
			class={`head-links axis-${axis}`}
			role="group"
			aria-label={`${unitName(unit)}s`}
			onKeyDown={onHeadKey}
		>
			{Array.from({ length: parts }, (_, i) => (
				<button
					type="button"
					key={i}
					tabIndex={i === 0 ? 0 : -1}
					data-head={i}
					data-zoom={`${at}/${i}`}
					aria-label={`${unitName(unit)} ${i}`}
					onClick={(event) => zoomTo(`${at}/${i}`, event.currentTarget)}
				>
					{i}
				</button>
			))}
		</div>
	);
}

const LEFT = 56;

/** y = W x, to one scale: the inputs above the matrix, the outputs at its right, and one of them. */
function ProductPicture({
	step,
	use,
	weight,
	split,
	block,
	width,
	part,
}: {
	step: Step;
	use: WeightUse;
	weight: LayerWeight;
	split: LayerWeight["split"];
	block: string;
	width: number;
	/** The only part that is shown, with its own size. */
	part?: { name: string; axis: number; size: number };
}) {
	const isProduct = step.kind === "linear" && weight.shape.length >= 2;
	const letter = leafOf(step.name);
	const [outputs, inputs] = weight.shape
		.slice(-2)
		.map((n, i) => (part?.axis === i ? BigInt(part.size) : BigInt(n))) as [bigint, bigint];
	const dims = use.dims.slice(-2);
	const sizeOf = (i: number, n: bigint) =>
		part?.axis === i || use.dims.length !== 2 ? grouped(n) : `${dims[i]} = ${grouped(n)}`;
	const most = Number(inputs > outputs ? inputs : (outputs ?? inputs));
	const [w, full] = drawn([outputs ?? 1n, inputs], most, width - (isProduct ? 110 : 64), 320);
	const h = part ? Math.max(full, 36) : full;
	const top = isProduct ? 46 : 24;
	const parts = split?.[1] ?? 0;
	const size = split ? (split[0] === 0 ? h : w) / parts : 0;
	const every = Math.max(1, Math.ceil(18 / Math.max(size, 0.1)));
	const rowHeight = Math.min(5, h / 3);
	const rowY = top + h * 0.36;
	const height = top + h + (split?.[0] === 1 ? 22 : 8);
	return (
		<div class="product-picture">
			<svg
				class="data"
				width={width}
				height={height}
				viewBox={`0 0 ${width} ${height}`}
				role="group"
				aria-label={`${use.path}: ${use.shape.map((n) => grouped(n)).join(" by ")}`}
				onKeyDown={onHeadKey}
			>
				<text class="muted" x={LEFT + w / 2} y={14} text-anchor="middle">
					{isProduct ? `x: ${sizeOf(1, inputs)} inputs` : `${grouped(inputs)} inputs`}
				</text>
				<text
					class="muted"
					transform={`translate(${isProduct ? LEFT + w + 42 : 14} ${top + h / 2}) rotate(-90)`}
					text-anchor="middle"
				>
					{isProduct && h > 150 ? `${letter}: ${sizeOf(0, outputs)} outputs` : ""}
					{isProduct || h < 60 ? "" : `${grouped(outputs)} outputs`}
				</text>
				{isProduct && h <= 150 && (
					<text class="muted" x={LEFT + w + 32} y={top + h / 2 + 4}>
						{letter}
					</text>
				)}
				{split ? (
					Array.from({ length: parts }, (_, i) => {
						const [x, y] =
							split[0] === 0 ? [LEFT, top + i * size] : [LEFT + i * size, top];
						const inner = Math.max(0.6, size - (size > 4 ? 1.5 : 0.3));
						return (
							<rect
								key={i}
								data-head={i}
								data-zoom={`${block}/${step.name}/${i}`}
								class="head-part"
								tabindex={i === 0 ? 0 : -1}
								role="button"
								aria-label={`${unitName(split[2])} ${i}`}
								x={x}
								y={y}
								width={split[0] === 0 ? w : inner}
								height={split[0] === 0 ? inner : h}
								style={{ fill: fill(step.color) }}
								onClick={(event) =>
									zoomTo(`${block}/${step.name}/${i}`, event.currentTarget)
								}
							/>
						);
					})
				) : (
					<rect
						x={LEFT}
						y={top}
						width={w}
						height={h}
						rx={2}
						style={{ fill: fill(step.color) }}
					/>
				)}
				{split &&
					size >= 3 &&
					Array.from({ length: Math.ceil(parts / every) }, (_, i) => i * every).map(
						(i) =>
							split[0] === 0 ? (
								<text
									key={i}
									x={LEFT - 6}
									y={top + i * size + Math.min(size / 2 + 4, 13)}
									text-anchor="end"
									class="muted tabular"
								>
									{i}
								</text>
							) : (
								(w / parts) * every > 22 && (
									<text
										key={i}
										x={LEFT + (i + 0.5) * size}
										y={top + h + 16}
										text-anchor="middle"
										class="muted tabular"
									>
										{i}
									</text>
								)
							),
					)}
				{isProduct && (
					<g class="product-marks" aria-hidden="true">
						<rect class="chosen" x={LEFT} y={24} width={w} height={12} />
						<rect
							x={LEFT + w + 12}
							y={top}
							width={12}
							height={h}
							style={{ fill: tint(step.color), stroke: fill(step.color) }}
						/>
						<rect
							class="chosen"
							x={LEFT - 2}
							y={rowY}
							width={w + 4}
							height={rowHeight}
						/>
						<path d={`M${LEFT + w + 2} ${rowY + rowHeight / 2}h10`} />
						<rect
							class="chosen"
							x={LEFT + w + 12}
							y={rowY}
							width={12}
							height={rowHeight}
						/>
					</g>
				)}
			</svg>
			{isProduct && (
				<p class="product-says">
					One output = one row · x: {grouped(inputs)} multiplications
					{part
						? `; the ${grouped(outputs)} outputs of ${part.name}: `
						: `; all ${grouped(outputs)} outputs: `}
					{grouped(inputs * outputs)}.
				</p>
			)}
		</div>
	);
}

function bytesDerivation(
	{ path, parameters }: WeightUse,
	bytes: bigint,
	dtype: string,
): Derivation {
	const n = BigInt(parameters);
	const isWhole = n > 0n && bytes % n === 0n;
	return {
		title: `${path} in ${dtype}: ${grouped(bytes)} bytes`,
		lines: [
			isWhole
				? formula(
						"parameters · bytes of each",
						`${grouped(n)} · ${grouped(bytes / n)}`,
						`${grouped(bytes)} bytes`,
					)
				: `${grouped(n)} parameters; the format stores scales beside them.`,
			...inBytes(bytes),
		],
	};
}

/**
 * One head: its rows or columns in every matrix of the layer that is divided by heads, and the
 * heads that share its keys and values.
 */
export function HeadView({
	model,
	kind,
	layer,
	step,
	head,
	width,
}: Pick<Props, "model" | "kind" | "layer" | "step" | "width"> & { head: number }) {
	const Live = liveViews.Matrix;
	const use = step.uses.find((x) => x.shape.length >= 2)!;
	const own = weightAt(kind, use.path)!;
	const prefix = use.path.split(".")[0]!;
	const weights = kind!.weights.filter(
		(x) => x.path.startsWith(`${prefix}.`) && x.shape.length >= 2 && headSplit(x),
	);
	const [axis, parts, unit] = headSplit(own)!;
	const [start, , rows] = partRange(own, head);
	const most = Math.max(...weights.flatMap((x) => x.shape.slice(-2).map(Number)));
	const columns = width > 720 ? Math.min(weights.length, 4) : 2;
	const cell = (width - (columns - 1) * 20) / columns;
	const finest = Math.max(...weights.map((x) => headSplit(x)![1]));
	// part i of n corresponds to the parts of m that cover the same share of the heads
	const partsOf = (x: LayerWeight): number[] => {
		const n = headSplit(x)![1];
		const [from, to] = [
			Math.floor((head * n) / parts),
			Math.max(Math.ceil(((head + 1) * n) / parts), Math.floor((head * n) / parts) + 1),
		];
		return Array.from({ length: to - from }, (_, i) => from + i);
	};
	const shared = weights.find((x) => headSplit(x)![1] < parts);
	const sharing = shared ? partsOf(shared)[0]! : null;
	const perGroup = shared ? parts / headSplit(shared)![1] : 1;
	const sentence =
		shared && sharing !== null
			? `${unitName(unit)} ${head} reads ${unitName(headSplit(shared)![2])} ${sharing}, ` +
				`as ${unitName(unit)}s ${sharing * perGroup}–${(sharing + 1) * perGroup - 1} do.`
			: finest > parts
				? `${unitName(unit)} ${head} serves heads ` +
					`${(head * finest) / parts}–${((head + 1) * finest) / parts - 1}.`
				: `${unitName(unit)} ${head} of ${parts}: no other shares its rows.`;
	const picture = (
		<ProductPicture
			step={step}
			use={use}
			weight={own}
			split={null}
			block=""
			width={Math.min(width, 640)}
			part={{ name: `${unitName(unit)} ${head}`, axis, size: rows }}
		/>
	);
	return (
		<div class="head-view">
			<p>{sentence[0]!.toUpperCase() + sentence.slice(1)}</p>
			{layer >= 0 && Live ? (
				<Live
					model={model}
					layer={layer}
					step={step}
					width={Math.min(width, 900)}
					part={{ name: `${unitName(unit)} ${head}`, axis, start, size: rows }}
				>
					{picture}
				</Live>
			) : (
				picture
			)}
			<div
				class="head-cells"
				style={{ gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))` }}
			>
				{weights.map((x) => {
					const [w, h] = drawn(
						[x.shape.at(-2)!, x.shape.at(-1)!],
						most,
						Math.min(cell, 210),
						190,
					);
					const [axis, n, name] = headSplit(x)!;
					const mine = partsOf(x);
					const size = (axis === 0 ? h : w) / n;
					const [first, , each] = partRange(x, mine[0]!);
					const last = partRange(x, mine.at(-1)!)[1];
					return (
						<figure key={x.path} data-head-weight={x.path}>
							<svg
								class="data"
								width={w + 2}
								height={h + 2}
								viewBox={`0 0 ${w + 2} ${h + 2}`}
								role="img"
								aria-label={`${x.path}: ${axis === 0 ? "rows" : "columns"} ${grouped(first)} to ${grouped(last)}`}
							>
								<rect
									x={1}
									y={1}
									width={w}
									height={h}
									rx={2}
									style={{ fill: tint(x.group), stroke: fill(x.group) }}
								/>
								<rect
									x={axis === 0 ? 1 : 1 + mine[0]! * size}
									y={axis === 0 ? 1 + mine[0]! * size : 1}
									width={axis === 0 ? w : Math.max(1.5, size * mine.length)}
									height={axis === 0 ? Math.max(1.5, size * mine.length) : h}
									style={{
										fill: fill(x.group),
										stroke: textOn(x.group),
										strokeWidth: 0,
									}}
								/>
							</svg>
							<figcaption>
								<strong>{x.path.replace(/\.weight$/, "")}</strong>{" "}
								{axis === 0 ? "rows" : "columns"} {grouped(first)}–{grouped(last)}
								<br />
								{unitName(name)}
								{mine.length > 1
									? `s ${mine[0]}–${mine.at(-1)}`
									: ` ${mine[0]}`} ·{" "}
								{shortCount(
									BigInt(Math.round(each)) *
										BigInt(mine.length) *
										BigInt(
											x.shape[
												axis === 0 ? x.shape.length - 1 : x.shape.length - 2
											]!,
										),
								)}{" "}
								parameters
							</figcaption>
						</figure>
					);
				})}
			</div>
		</div>
	);
}
