// The values of one matrix of a model that runs in the page: y = W x for the chosen token, and the
// dot product of which each output is the sum.
import { useState } from "preact/hooks";
import type { ModelData } from "../../lib/data";
import { useAppState } from "../../lib/state";
import type { Step } from "../plate/plate_model";
import { Cells, largestSize, rowOf, shortNumber } from "./cells";
import { tokenOf } from "./layer_values";
import { enteringStep, shownToken, useStory } from "./story";

interface Props {
	model: ModelData;
	layer: number;
	step: Step;
}

/** The bias of a product, if it has one. */
const biasOf = (step: Step) => step.uses.find((x) => x.shape.length === 1);

export function LiveMatrix({ model, layer, step }: Props) {
	const state = useAppState("token");
	const story = useStory(model);
	const [chosen, setRow] = useState(0);
	const use = step.uses.find((x) => x.shape.length === 2);
	if (!story?.length || step.kind !== "linear" || !use) return null;
	const prefix = `layers.${layer}.`;
	const token = shownToken(story, state);
	const { values } = story.passes[token]!;
	const from = step.takes[0] === "x" ? enteringStep(story, layer) : prefix + step.takes[0];
	const [x, y] = [values.get(from), values.get(prefix + step.name)];
	const weight = story.model.weight(prefix + use.path);
	const [rows, columns] = use.shape.map(Number) as [number, number];
	if (!x || !y || x.length !== columns || y.length !== rows || weight?.length !== rows * columns)
		return null;
	const bias = biasOf(step);
	const b = bias ? story.model.weight(prefix + bias.path) : null;
	if (bias && !b) return null;
	const row = Math.min(chosen, rows - 1);
	const own = weight.subarray(row * columns, (row + 1) * columns);
	const products = own.map((w, j) => w * x[j]!);
	const sum = products.reduce((n, p) => n + p, 0) + (b?.[row] ?? 0);
	const color = tokenOf(step);
	const most = largestSize(weight) || 1;
	const strip = (name: string, list: Float32Array, says: string) => {
		const size = largestSize(list) || 1;
		return (
			<div class="live-strip">
				<span class="live-strip-name">{name}</span>
				<Cells
					columns={list.length}
					rows={1}
					paint={rowOf(list, size)}
					label={`${says}, largest ${shortNumber(size)}`}
					color={color}
					of={[list, row]}
				/>
				<span class="live-strip-note">{says}</span>
			</div>
		);
	};
	const text = story.model.tokenizer.show(story.ids[token]!);
	return (
		<figure class="live-matrix">
			<h3>Its values, and W x for “{text}”</h3>
			<div
				class="live-matrix-cells"
				style={{ "--rows": rows, "--columns": columns, "--row": row }}
			>
				<Cells
					columns={columns}
					rows={rows}
					paint={(put) =>
						weight.forEach((w, i) =>
							put(i % columns, Math.floor(i / columns), w / most),
						)
					}
					label={`${rows} by ${columns} weights, largest ${shortNumber(most)}`}
					color={color}
					of={[weight]}
					hover={(_, j) => setRow(j)}
				/>
				<span class="live-matrix-row" />
			</div>
			<label class="control">
				<span class="control-label">Output</span>
				<input
					type="range"
					min="0"
					max={rows - 1}
					value={row}
					aria-valuetext={`output ${row}, ${shortNumber(y[row]!)}`}
					onInput={(event) => setRow(Number(event.currentTarget.value))}
				/>
				<span class="tabular">{row}</span>
			</label>
			{strip("x", x, `${columns} inputs`)}
			{strip(`W[${row}]`, own, `row ${row}`)}
			{strip("products", products, `${columns} products`)}
			<p class="live-sum" data-sum={sum} data-output={y[row]}>
				y[{row}] = Σ W[{row}, j] · x[j]
				{b ? " + b" : ""} = <b>{sum.toFixed(4).replace("-", "−")}</b>
			</p>
			<figcaption class="caption">
				Each row of W is one output: the sum of its products with the inputs. Point at a
				row, or move the slider.
			</figcaption>
		</figure>
	);
}
