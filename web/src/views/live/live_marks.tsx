// On the picture of the opened layer: the numbers that a model which runs in the page computed for
// the chosen token, along the edges of its matrices and on the residual stream.
import type { ComponentChildren } from "preact";
import type { ModelData } from "../../lib/data";
import { LiveMarksOfLayer, type LiveMarks } from "../../lib/live_views";
import { useAppState } from "../../lib/state";
import { firstNumbers, largestSize } from "./cells";
import { STREAM, tokenOf } from "./layer_values";
import { enteringStep, shownToken, useStory } from "./story";

const THICK = 6;
const LEVELS = 4;
const STREAM_STRIP = 84;

/** Numbers as cells along an edge: four tones above zero and four below. */
function Strip({
	values,
	x,
	y,
	w,
	h,
	color,
}: {
	values: Float32Array;
	color: string;
	x: number;
	y: number;
	w: number;
	h: number;
}) {
	const most = largestSize(values) || 1;
	const isVertical = h > w;
	const each = (isVertical ? h : w) / values.length;
	const paths = new Map<string, string>();
	values.forEach((value, i) => {
		const level = Math.round((LEVELS * Math.abs(value)) / most);
		if (!level) return;
		const key = `${value < 0 ? "below" : "above"} level-${level}`;
		const at = (i * each).toFixed(2);
		const cell = isVertical
			? `M${x} ${(y + Number(at)).toFixed(2)}h${w}v${each.toFixed(2)}h${-w}z`
			: `M${(x + Number(at)).toFixed(2)} ${y}h${each.toFixed(2)}v${h}h${(-each).toFixed(2)}z`;
		paths.set(key, (paths.get(key) ?? "") + cell);
	});
	return (
		<g class="live-mark" aria-hidden="true" style={{ "--live-color": `var(${color})` }}>
			<rect x={x} y={y} width={w} height={h} />
			{[...paths].map(([key, d]) => (
				<path key={key} class={key} d={d} />
			))}
		</g>
	);
}

export function WithLiveMarks({
	model,
	open,
	children,
}: {
	model: ModelData;
	open: number | string;
	children: ComponentChildren;
}) {
	const marks = useLiveMarks(model, open);
	return (
		<LiveMarksOfLayer.Provider value={marks}>
			{children}
			{marks && (
				<p class="caption live-legend">
					Along the edges of each matrix, its inputs and outputs for the chosen token; on
					the stream, what it carries there: colour above zero, the colour of text below;
					in a list of steps, the first numbers of each result.
				</p>
			)}
		</LiveMarksOfLayer.Provider>
	);
}

function useLiveMarks(model: ModelData, open: number | string): LiveMarks | null {
	const state = useAppState("token");
	const story = useStory(model);
	if (!story?.length || typeof open !== "number") return null;
	const { values } = story.passes[shownToken(story, state)]!;
	const prefix = `layers.${open}.`;
	const streamWidth = values.get(enteringStep(story, open))!.length;
	const valuesOf = (step: string): Float32Array | undefined =>
		values.get(step === "x" ? enteringStep(story, open) : prefix + step);
	return {
		ofStep: (name) => firstNumbers(valuesOf(name)),
		ofNode: ({ boxes }) =>
			boxes.map(({ matrix, x, y, w, h }) => {
				const [outputs, inputs] = matrix.use.shape.map(Number) as [number, number];
				const out = valuesOf(matrix.step.name);
				const given = valuesOf(matrix.step.takes[0] ?? "");
				if (out?.length !== outputs || given?.length !== inputs) return null;
				// the stream runs across: in what returns to it, outputs are columns
				const isTurned = outputs === streamWidth && inputs !== streamWidth;
				const [across, down] = isTurned ? [out, given] : [given, out];
				const own = tokenOf(matrix.step);
				const [acrossColor, downColor] = isTurned ? [own, STREAM] : [STREAM, own];
				const bottom = (
					<Strip
						values={across}
						color={acrossColor}
						x={x}
						y={isTurned ? y + h - THICK : y}
						w={w}
						h={THICK}
					/>
				);
				const side = (
					<Strip
						values={down}
						color={downColor}
						x={isTurned ? x : x + w - THICK}
						y={y}
						w={THICK}
						h={h}
					/>
				);
				return (
					<g key={matrix.use.path}>
						{bottom}
						{side}
					</g>
				);
			}),
		ofStream: ({ stream, isVertical, width, height }) => {
			if (!stream) return null;
			const [start] = stream.line;
			const places: [string, number, number][] = [
				["x", start![0], start![1]],
				...stream.nodes.map((n): [string, number, number] => [n.name, n.x, n.y]),
			];
			return places.map(([step, x, y], i) => {
				const found = valuesOf(step);
				if (!found) return null;
				const before = i ? 15 : 0;
				// what leaves the layer is what enters the next one
				const room = isVertical ? height - y : width - x;
				if (room < before + STREAM_STRIP) return null;
				return isVertical ? (
					<Strip
						key={step}
						values={found}
						color={STREAM}
						x={x - 5}
						y={y + before}
						w={10}
						h={STREAM_STRIP}
					/>
				) : (
					<Strip
						key={step}
						values={found}
						color={STREAM}
						x={x + before}
						y={y - 5}
						w={STREAM_STRIP}
						h={10}
					/>
				);
			});
		},
	};
}
