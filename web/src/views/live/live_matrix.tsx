// The values of one matrix of a model that runs in the page: y = W x for the chosen token, and the
// dot product of which each output is the sum.
import { useState } from "preact/hooks";
import type { MatrixPart, MatrixProps } from "../../lib/live_views";
import { useAppState } from "../../lib/state";
import { inputLetter, leafOf, stageAt, stagesOf, type Step } from "../plate/plate_model";
import { Cells, largestSize, rowOf, shortNumber } from "./cells";
import { STREAM, tokenOf } from "./layer_values";
import { enteringStep, shownToken, useStory, type Story } from "./story";

const MOST_CELL = 7;
const MOST_HEIGHT = 320;
const EDGES = 96;
const SHOWN_TERMS = 3;

/** A product y = W x + b of a layer with its values for a token. */
interface Product {
	x: Float32Array;
	y: Float32Array;
	weight: Float32Array;
	bias: Float32Array | null;
	rows: number;
	columns: number;
}

/** The values of a step that is a product; null where the page lacks one of them. */
export function productAt(story: Story, layer: number, step: Step, token: number): Product | null {
	const use = step.uses.find((x) => x.shape.length === 2);
	if (step.kind !== "linear" || !use) return null;
	const prefix = `layers.${layer}.`;
	const { values } = story.passes[token]!;
	const from = step.takes[0] === "x" ? enteringStep(story, layer) : prefix + step.takes[0];
	const [x, y] = [values.get(from), values.get(prefix + step.name)];
	const weight = story.model.weight(prefix + use.path);
	const [rows, columns] = use.shape.map(Number) as [number, number];
	if (!x || !y || x.length !== columns || y.length !== rows || weight?.length !== rows * columns)
		return null;
	const added = step.uses.find((u) => u.shape.length === 1);
	const bias = added ? story.model.weight(prefix + added.path) : null;
	return added && !bias ? null : { x, y, weight, bias, rows, columns };
}

const inBrackets = (n: number): string => (n < 0 ? `(${shortNumber(n)})` : shortNumber(n));

/** One output: its products in letters, the first of them in numbers, and their sum. */
export function DotProduct({
	step,
	product: { x, y, weight, bias, columns },
	row,
	part,
}: {
	step: Step;
	product: Product;
	row: number;
	part?: MatrixPart;
}) {
	const [first, count] = part?.axis === 1 ? [part.start, part.size] : [0, columns];
	const isWhole = count === columns;
	const b = isWhole ? bias?.[row] : undefined;
	let sum = b ?? 0;
	for (let j = first; j < first + count; j++) sum += weight[row * columns + j]! * x[j]!;
	const shown = Array.from({ length: Math.min(SHOWN_TERMS, count) }, (_, i) => first + i);
	const last = first + count - 1;
	const end = (text: string) => (count > SHOWN_TERMS ? ` + … + ${text}` : "");
	const read = inputLetter(step.takes[0]!) ?? "x";
	const inLetters = (j: number) => `W[${row},${j}]·${read}[${j}]`;
	const inNumbers = (j: number) =>
		`${inBrackets(weight[row * columns + j]!)}·${inBrackets(x[j]!)}`;
	return (
		<p class="live-sum" data-sum={sum} data-output={isWhole ? y[row] : undefined}>
			<code>
				{isWhole ? "" : `${part!.name}'s part of `}
				{leafOf(step.name)}[{row}] = {shown.map(inLetters).join(" + ")}
				{end(inLetters(last))}
				{b === undefined ? "" : " + b"}
			</code>
			<code>
				= {shown.map(inNumbers).join(" + ")}
				{end(inNumbers(last))}
				{b === undefined ? "" : ` + ${inBrackets(b)}`} ={" "}
				<b>{sum.toFixed(4).replace("-", "−")}</b>
			</code>
		</p>
	);
}

export function LiveMatrix({ model, layer, step, width, part, heads, children }: MatrixProps) {
	const state = useAppState("token");
	const story = useStory(model);
	const [chosen, setRow] = useState(0);
	const token = story?.length ? shownToken(story, state) : 0;
	const product = story?.length ? productAt(story, layer, step, token) : null;
	if (!story || !product) return <>{children}</>;
	const { x, y, weight, rows: all, columns: wide } = product;
	const [top, rows] = part?.axis === 0 ? [part.start, part.size] : [0, all];
	const [left, columns] = part?.axis === 1 ? [part.start, part.size] : [0, wide];
	const row = Math.max(top, Math.min(chosen, top + rows - 1));
	const inputs = x.subarray(left, left + columns);
	const outputs =
		columns === wide
			? y.subarray(top, top + rows)
			: Float32Array.from({ length: rows }, (_, i) =>
					inputs.reduce((n, v, j) => n + v * weight[i * wide + left + j]!, 0),
				);
	const own = weight.subarray(row * wide + left, row * wide + left + columns);
	const products = own.map((w, j) => w * inputs[j]!);
	const color = tokenOf(step);
	const given = stageAt(stagesOf(model, "prompt"), layer)?.steps;
	const before = given?.find((s) => s.name === step.takes[0]);
	const colorOfX = before ? tokenOf(before) : STREAM;
	const most = largestSize(weight) || 1;
	const cell = Math.min(MOST_CELL, (width - EDGES) / columns, MOST_HEIGHT / rows);
	const largestOutput = largestSize(outputs) || 1;
	const strip = (name: string, list: Float32Array, says: string, of = color) => {
		const size = largestSize(list) || 1;
		return (
			<div class="live-strip">
				<span class="live-strip-name">{name}</span>
				<Cells
					columns={list.length}
					rows={1}
					paint={rowOf(list, size)}
					label={`${says}, largest ${shortNumber(size)}`}
					color={of}
					of={[list, row]}
				/>
				<span class="live-strip-note">{says}</span>
			</div>
		);
	};
	const text = story.model.tokenizer.show(story.ids[token]!);
	const letter = leafOf(step.name);
	return (
		<figure class="live-matrix">
			<h3>
				{letter} = W x for “{text}”
			</h3>
			<div
				class="live-product"
				style={{
					"--width": `${cell * columns}px`,
					"--rows": rows,
					"--columns": columns,
					"--row": row - top,
				}}
			>
				<span>x: {columns} inputs</span>
				<div class="live-matrix-x">
					<Cells
						columns={columns}
						rows={1}
						paint={rowOf(inputs)}
						label=""
						color={colorOfX}
						of={[inputs, left]}
					/>
				</div>
				{heads}
				<div class="live-matrix-cells">
					<Cells
						columns={columns}
						rows={rows}
						paint={(put) => {
							for (let i = 0; i < rows; i++)
								for (let j = 0; j < columns; j++)
									put(j, i, weight[(top + i) * wide + left + j]! / most);
						}}
						label={`${rows} by ${columns} weights, largest ${shortNumber(most)}`}
						color={color}
						of={[weight, top, left]}
						hover={(_, i) => setRow(top + i)}
					/>
					<span class="live-matrix-row" />
				</div>
				<div class="live-matrix-y">
					<Cells
						columns={1}
						rows={rows}
						paint={(put) => outputs.forEach((v, i) => put(0, i, v / largestOutput))}
						label=""
						color={color}
						of={[outputs, top, left]}
						hover={(_, i) => setRow(top + i)}
					/>
					<span class="live-matrix-row" />
				</div>
				<span class="live-matrix-says">
					{letter}: {rows} outputs
				</span>
			</div>
			<label class="control">
				<span class="control-label">Output</span>
				<input
					type="range"
					min={top}
					max={top + rows - 1}
					value={row}
					aria-valuetext={`output ${row}, ${shortNumber(outputs[row - top]!)}`}
					onInput={(event) => setRow(Number(event.currentTarget.value))}
				/>
				<span class="tabular">{row}</span>
			</label>
			<DotProduct step={step} product={product} row={row} part={part} />
			{strip("x", inputs, `${columns} inputs`, colorOfX)}
			{strip(`W[${row}]`, own, `row ${row}`)}
			{strip("products", products, `${columns} products`)}
			<figcaption class="caption">
				Each row of W is one output: the sum of its products with the inputs. Point at a
				row, or move the slider. Coloured: positive; in the colour of text: negative.
			</figcaption>
		</figure>
	);
}
