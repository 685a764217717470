// The shapes of what the steps of a stop compute, and one output of its first product.
import type { ModelData } from "../../lib/data";
import { grouped } from "../../lib/format";
import { inputLetter, leafOf, stagesOf, type Step } from "../plate/plate_model";
import { StopExample } from "./tour_example";
import type { TourStop } from "./tour_stops";

/** The first step of a stop that is a product with a matrix. */
export const productOf = (model: ModelData, stop: TourStop): Step | undefined => {
	const steps = stagesOf(model, "prompt").flatMap((x) => x.steps);
	return stop.steps
		.map((name) => steps.find((x) => x.name === name))
		.find((x) => x?.kind === "linear" && x.uses[0]?.shape.length === 2);
};

/** The step in numbers, and one output of its first product. */
export function StopNumbers({ model, stop }: { model: ModelData; stop: TourStop }) {
	const product = productOf(model, stop);
	const { example } = stop;
	if (!product && !example) return null;
	return (
		<div class="tour-values">
			{example && <StopExample stop={stop} example={example} />}
			{product && <InLetters step={product} stop={stop} />}
		</div>
	);
}

/** The shapes of the results, in letters and numbers, of one sequence of T tokens. */
export function ShapeList({ stop, isFolded }: { stop: TourStop; isFolded?: boolean }) {
	const n = stop.shapes.length;
	if (!n) return null;
	if (isFolded && n > 1)
		return (
			<details class="tour-code" key={stop.name}>
				<summary class="caption">Shapes of {n} results</summary>
				<ShapeList stop={stop} />
			</details>
		);
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

/** What a product reads, as the formula of its stop calls it. */
function letterOf(read: string, stop: TourStop): string {
	const leaf = leafOf(read);
	return inputLetter(read) ?? (stop.steps.includes(read) || stop.name === "expand" ? leaf : "x");
}

/** One output as the sum of its products. */
function InLetters({ step, stop }: { step: Step; stop: TourStop }) {
	const inputs = BigInt(step.uses[0]!.shape[1]!);
	const made = leafOf(step.name);
	const read = letterOf(step.takes[0]!, stop);
	const last = `${inputs - 1n}`;
	const bias = step.uses.some((x) => x.path.endsWith(".bias")) ? " + b[0]" : "";
	return (
		<p class="tour-product">
			{!stop.example?.product && (
				<code>
					{made}[0] = W[0,0]·{read}[0] + W[0,1]·{read}[1] + … + W[0,{last}]·{read}[{last}]
					{bias}
				</code>
			)}
			<span>
				one output of {made}
				{stop.example?.product && " in this model"}: {grouped(inputs)} multiplications
			</span>
		</p>
	);
}
