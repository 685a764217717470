// Every number that the opened layer computes for the chosen token, in the order of its steps, with
// the rotation by position and the steps of the chosen head.
import { useState } from "preact/hooks";
import { SubHeading } from "../../components/section";
import type { ModelData } from "../../lib/data";
import { placeAfter, useRoving } from "../../lib/roving";
import { useAppState } from "../../lib/state";
import type { ChosenHead } from "./heads";
import { isLayerOpen, rowOfHead, shownHead, shownLayer } from "./heads";
import { Cells, largestSize, percentOf, rootMeanSquare, rowOf, shortNumber } from "./cells";
import { colorOf, stageAt, stagesOf, type Step } from "../plate/plate_model";
import { enteringStep, largest, shownToken, softmax, type Story } from "./story";

/** The colour token of the residual stream and its norms, which began as the embedding. */
export const STREAM = "--c-embed";

/** The colour token of a step's numbers: that of its weights' group, as in the picture. */
export function tokenOf(step: Step | undefined): string {
	const color = colorOf(step?.color ?? "");
	return color === "norm" ? STREAM : `--c-${color}`;
}

export type Rove = ReturnType<typeof useRoving>;

/** A row of numbers; ← and → name one after the other, ↑ and ↓ go to the row above and below. */
export function Strip({
	name,
	values,
	color,
	says,
	rove,
}: {
	name: string;
	values: Float32Array;
	color: string;
	/** What the step does. */
	says?: string;
	rove: ReturnType<Rove>;
}) {
	const [pointed, setPointed] = useState<number | null>(null);
	const at = pointed === null ? null : Math.min(pointed, values.length - 1);
	const most = largestSize(values) || 1;
	const rms = rootMeanSquare(values);
	const summary = `${values.length} numbers, rms ${shortNumber(rms)}`;
	const pointedText =
		at === null ? summary : `[${at}] = ${values[at]!.toFixed(4).replace("-", "−")}`;
	const onKeyDown = (event: KeyboardEvent) => {
		if (event.key === "ArrowUp" || event.key === "ArrowDown") return rove.onKeyDown(event);
		const next = placeAfter(event.key, at ?? -1, values.length);
		if (next === undefined) return undefined;
		event.preventDefault();
		return setPointed(next);
	};
	return (
		<li class="live-strip" onPointerLeave={() => setPointed(null)}>
			<span class="live-strip-name" title={says}>
				{name}
			</span>
			<div
				{...rove}
				class="live-strip-cells"
				role="slider"
				aria-label={`${name}: ${values.length} numbers, root mean square ${shortNumber(rms)}, largest ${shortNumber(most)}`}
				aria-valuemin={0}
				aria-valuemax={values.length - 1}
				aria-valuenow={at ?? 0}
				aria-valuetext={pointedText}
				onKeyDown={onKeyDown}
				onBlur={() => setPointed(null)}
			>
				<Cells
					columns={values.length}
					rows={1}
					paint={rowOf(values, most)}
					label=""
					color={color}
					of={[values]}
					hover={setPointed}
				/>
				{at !== null && (
					<i
						class="live-strip-at"
						style={{ left: `${(100 * (at + 0.5)) / values.length}%` }}
					/>
				)}
			</div>
			<span class="live-strip-note">{pointedText}</span>
		</li>
	);
}

/** After how many other steps each one can be computed: q, k and v at once, their rotations next. */
function depthsOf(steps: readonly Step[]): Map<string, number> {
	const depths = new Map<string, number>();
	for (const x of steps)
		depths.set(x.name, 1 + Math.max(0, ...x.takes.map((y) => depths.get(y) ?? 0)));
	return depths;
}

export function LayerValues({ model, story }: { model: ModelData; story: Story }) {
	const state = useAppState("layer", "token");
	const layer = shownLayer(model, state);
	const token = shownToken(story, state);
	const { values } = story.passes[token]!;
	const prefix = `layers.${layer}.`;
	const stage = stageAt(stagesOf(model, "prompt"), layer);
	const steps = new Map(stage?.steps.map((x) => [x.name, x]));
	const text = story.model.tokenizer.show(story.ids[token]!);
	const depth = depthsOf(stage?.steps ?? []);
	const depthOf = (x: string) => depth.get(x.slice(prefix.length)) ?? 0;
	const names = story.data.results
		.filter((x) => x.startsWith(prefix) && values.has(x))
		.sort((a, b) => depthOf(a) - depthOf(b));
	const rove = useRoving(names.length + 1);
	return (
		<figure class="live-values">
			<SubHeading>
				“{text}” in layer {layer}
			</SubHeading>
			<ol data-roving>
				<Strip
					rove={rove(0)}
					name="x, the stream"
					values={values.get(enteringStep(story, layer))!}
					color={STREAM}
				/>
				{names.map((name, i) => (
					<Strip
						key={name}
						rove={rove(i + 1)}
						name={name.slice(prefix.length)}
						values={values.get(name)!}
						color={tokenOf(steps.get(name.slice(prefix.length)))}
						says={steps.get(name.slice(prefix.length))?.does}
					/>
				))}
			</ol>
			<figcaption class="caption">
				Each cell is a number: coloured if positive, in the colour of text if negative,
				blank at zero. The scale of a row is its largest number.{" "}
				{isLayerOpen(model, state)
					? "The layer is the one opened in the picture above."
					: "Open another layer in the picture above."}
			</figcaption>
		</figure>
	);
}

const CLOCK = 42;

/** Pairs of a head before and after their rotation by the token's position. */
export function Rotation({ model, story }: { model: ModelData; story: Story }) {
	const [pair, setPair] = useState(0);
	const state = useAppState("layer", "head", "token");
	const chosen = shownHead(model, story, state);
	const rotation = story.data.rotations.find((x) => x.step === chosen?.facts.queries);
	const rove = useRoving(rotation?.frequencies.length ?? 1);
	if (!chosen || !rotation) return null;
	const token = shownToken(story, state);
	const { values } = story.passes[token]!;
	const pairs = rotation.frequencies.length;
	const [before, after] = [rotation.from, rotation.step].map((step) => {
		const all = values.get(step)!;
		const size = all.length / rotation.heads;
		return all.subarray(chosen.head * size, (chosen.head + 1) * size);
	}) as [Float32Array, Float32Array];
	const pairOf = (list: Float32Array, j: number): [number, number] =>
		rotation.interleaved ? [list[2 * j]!, list[2 * j + 1]!] : [list[j]!, list[j + pairs]!];
	const longest = Math.max(
		...Array.from({ length: pairs }, (_, j) => Math.hypot(...pairOf(before, j))),
		1e-9,
	);
	const radius = CLOCK / 2 - 2;
	const hand = ([x, y]: [number, number]): string => {
		const scale = radius / Math.max(Math.hypot(x, y), 1e-9);
		return `M${CLOCK / 2} ${CLOCK / 2}l${(scale * x).toFixed(2)} ${(-scale * y).toFixed(2)}`;
	};
	return (
		<figure class="live-rotation">
			<SubHeading>
				Layer {chosen.layer}, head {chosen.head}: the query's pairs of numbers, turned by
				position {token}
			</SubHeading>
			<ol class="live-clocks" data-roving>
				{rotation.frequencies.map((frequency, j) => {
					const degrees = ((token * frequency * 180) / Math.PI) % 360;
					const turn = `${degrees.toFixed(degrees > 0 && degrees < 1 ? 2 : 0)}°`;
					return (
						<li key={j}>
							<button
								type="button"
								{...rove(j)}
								aria-label={`${turn}: pair ${j}`}
								aria-pressed={j === pair}
								onFocus={() => {
									rove(j).onFocus();
									setPair(j);
								}}
								onPointerEnter={() => setPair(j)}
							>
								<svg
									width={CLOCK}
									height={CLOCK + 6}
									class="data"
									aria-hidden="true"
								>
									<circle
										class="clock"
										cx={CLOCK / 2}
										cy={CLOCK / 2}
										r={radius}
									/>
									<path class="hand before" d={hand(pairOf(before, j))} />
									<path class="hand" d={hand(pairOf(after, j))} />
									<rect
										class="length"
										y={CLOCK + 2}
										width={(CLOCK * Math.hypot(...pairOf(after, j))) / longest}
										height={3}
									/>
								</svg>
								<span>{turn}</span>
							</button>
						</li>
					);
				})}
			</ol>
			<figcaption class="caption">
				Thin: before; bold: after; the bar is the pair's length. Pair {pair}, (
				{pairOf(before, pair).map(shortNumber).join(", ")}), becomes (
				{pairOf(after, pair).map(shortNumber).join(", ")}). It turns by{" "}
				{shortNumber((rotation.frequencies[pair]! * 180) / Math.PI)}° for each token, so the
				angle between a query and a key depends on their distance alone.
			</figcaption>
		</figure>
	);
}

const SHOWN_KEYS = 6;

/** q · k → scaled → softmax → what is mixed, for the keys that a head reads most. */
export function HeadSteps({ model, story }: { model: ModelData; story: Story }) {
	const state = useAppState("layer", "head", "token");
	const chosen = shownHead(model, story, state);
	if (!chosen) return null;
	const token = shownToken(story, state);
	const products = productsOf(story, chosen, token);
	const { facts, head } = chosen;
	const weights = rowOfHead(story, facts, head, token);
	const shown = largest(weights, SHOWN_KEYS).sort((a, b) => a - b);
	const show = (i: number) => story.model.tokenizer.show(story.ids[i]!);
	const size = Math.round(1 / facts.scale ** 2);
	const isRoot = Math.abs(size * facts.scale ** 2 - 1) < 1e-6;
	const undivided = isRoot && products ? softmax(products) : null;
	const winner = largest(weights, 1)[0]!;
	const rest = token + 1 > shown.length ? 1 - shown.reduce((sum, i) => sum + weights[i]!, 0) : 0;
	const scale = isRoot ? `q·k / √${size}` : `q·k × ${facts.scale.toPrecision(4)}`;
	return (
		<figure class="live-steps">
			<SubHeading>
				Layer {chosen.layer}, head {head}: scores → softmax → mix, for “{show(token)}”
			</SubHeading>
			<table>
				<thead>
					<tr>
						<th scope="col">key of</th>
						{products && (
							<>
								<th scope="col" class="n">
									q·k
								</th>
								<th scope="col" class="n">
									{scale}
								</th>
							</>
						)}
						<th scope="col" class="n">
							softmax
						</th>
						{undivided && (
							<th scope="col" class="n">
								if not divided
							</th>
						)}
					</tr>
				</thead>
				<tbody>
					{shown.map((i) => (
						<tr key={i}>
							<th scope="row">
								<span class="live-token">{show(i)}</span> <small>{i}</small>
							</th>
							{products && (
								<>
									<td class="n">{shortNumber(products[i]!)}</td>
									<td class="n">{shortNumber(products[i]! * facts.scale)}</td>
								</>
							)}
							<td class="n">{percentOf(weights[i]!)}</td>
							{undivided && <td class="n">{percentOf(undivided[i]!)}</td>}
						</tr>
					))}
				</tbody>
			</table>
			{undivided && weights[winner]! > 0.99 && token > 0 && (
				<p class="caption">
					Here one key wins all the same: {shortNumber(products![winner]!)} / √{size} ={" "}
					{shortNumber(products![winner]! * facts.scale)}, far above the others.
				</p>
			)}
			<figcaption class="caption">
				{rest > 0 &&
					`The ${shown.length} most read of ${token + 1} keys, with their positions; the others share ${percentOf(rest)}. `}
				Keys after “{show(token)}” are masked. The values of the keys, weighted by the last
				column, are the head's result.
				{isRoot &&
					` q·k is a sum of ${size} products and grows like √${size}: divided by it, scores of wide and narrow heads are alike.`}
			</figcaption>
		</figure>
	);
}

/**
 * The products of a head's query with all keys up to its own, if they alone give the weights that
 * the engine computed; null where sinks, caps or biases take part.
 */
export function productsOf(story: Story, { facts, head }: ChosenHead, token: number) {
	if (!facts.isPlain) return null;
	const queries = story.passes[token]!.values.get(facts.queries);
	if (!queries) return null;
	const size = queries.length / facts.heads;
	const q = queries.subarray(head * size, (head + 1) * size);
	const kv = Math.floor((head * facts.kvHeads) / facts.heads);
	return Array.from({ length: token + 1 }, (_, i) => {
		const k = story.passes[i]!.values.get(facts.keys)!.subarray(kv * size, (kv + 1) * size);
		return q.reduce((n, x, j) => n + x * k[j]!, 0);
	});
}

/** Keys and values that the cache holds: a column for each token. */
export function Cache({ model, story }: { model: ModelData; story: Story }) {
	const chosen = shownHead(model, story, useAppState("layer", "head"));
	if (!chosen) return null;
	const { attention } = story.data;
	const shown = attention.length > 8 ? [chosen.facts] : attention;
	const sizes = attention.map((x) => {
		const { values } = story.passes[0]!;
		return (values.get(x.keys)?.length ?? 0) + (values.get(x.values)?.length ?? 0);
	});
	const each = sizes.reduce((n, x) => n + x, 0);
	return (
		<figure class="live-cache">
			<SubHeading>The KV cache: a column for each token</SubHeading>
			<div class="live-cache-row caption" aria-hidden="true">
				<span />
				<span>keys</span>
				<span>values</span>
			</div>
			{shown.map((facts) => (
				<div class="live-cache-row" key={facts.step}>
					<span class="control-label">
						{facts.step.split(".").slice(0, 2).join(" ").replace("layers", "layer")}
					</span>
					{(["keys", "values"] as const).map((what) => {
						const rows = story.passes[0]!.values.get(facts[what])!.length;
						const most = Math.max(
							...story.passes.map((x) => largestSize(x.values.get(facts[what])!)),
						);
						return (
							<Cells
								key={what}
								columns={story.length}
								rows={rows}
								paint={(put) =>
									story.passes.forEach((pass, x) =>
										pass.values
											.get(facts[what])!
											.forEach((value, y) => put(x, y, value / most)),
									)
								}
								label={`${what}: ${rows} numbers for each of ${story.length} tokens`}
								color="--c-kv"
								of={[story.passes.at(-1), story.length]}
							/>
						);
					})}
				</div>
			))}
			<figcaption class="caption">
				{story.length} {story.length === 1 ? "token" : "tokens"} × {each} numbers ={" "}
				{(story.length * each).toLocaleString("en-US")}. A new token adds one column to
				each; the others are not computed again.
			</figcaption>
		</figure>
	);
}
