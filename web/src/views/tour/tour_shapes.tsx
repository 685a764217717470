// The shapes of what the steps of a stop compute, and one output of its first product.
import type { ModelData } from "../../lib/data";
import { grouped } from "../../lib/format";
import { stagesOf, type Step } from "../plate/plate_model";
import { StopExample } from "./tour_example";
import type { TourStop } from "./tour_stops";

/** The first step of a stop that is a product with a matrix. */
export const productOf = (model: ModelData, stop: TourStop): Step | undefined => {
	const steps = stagesOf(model, "prompt").flatMap((x) => x.steps);
	return stop.steps
		.map((name) => steps.find((x) => x.name === name))
		.find((x) => x?.kind === "linear" && x.uses[0]?.shape.length === 2);
};

/** The shapes of the results, in letters and numbers, of one sequence of T tokens. */
export function Shapes({ model, stop }: { model: ModelData; stop: TourStop }) {
	const product = productOf(model, stop);
	if (!stop.shapes.length && !product && !stop.has_example) return null;
	return (
		<div class="tour-values">
			<StopExample stop={stop} />
			{product && <InLetters step={product} />}
			<ShapeList stop={stop} />
		</div>
	);
}

export function ShapeList({ stop }: { stop: TourStop }) {
	return (
		<ul class="tour-shapes">
			{stop.shapes.map((x) => (
				<li key={x.name}>
					<code>{x.name}</code> [{x.letters}]
					{x.letters === x.numbers ? "" : ` = [${x.numbers}]`}
				</li>
			))}
		</ul>
	);
}

/** One output as the sum of its products. */
function InLetters({ step }: { step: Step }) {
	const inputs = BigInt(step.uses[0]!.shape[1]!);
	const letter = step.name.split(".").at(-1);
	const last = `${inputs - 1n}`;
	return (
		<p class="tour-product">
			<code>
				{letter}[0] = W[0,0]·x[0] + W[0,1]·x[1] + … + W[0,{last}]·x[{last}]
			</code>
			<span>one output: {grouped(inputs)} multiplications</span>
		</p>
	);
}
