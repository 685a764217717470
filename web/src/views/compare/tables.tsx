// Two fact sheets, the weights and the configurations of two models side by side.
import { ComparedTable, differFinding, type ComparedRow } from "../../components/compared_table";
import { NumberButton } from "../../components/number";
import { data } from "../../lib/data";
import { formula, sumFormula } from "../../lib/derivation";
import { grouped, signed } from "../../lib/format";
import { sizesOf } from "../../lib/sizing/data";
import { fitterOf } from "../../lib/sizing/fit";
import { factsOf, type FactRow } from "../facts/fact_sheet";
import { hardwareLoad, hardwareName, ownSettings } from "../facts/runs_on";
import type { ModelSection } from "../../lib/weights";
import { pairDerivation, shapeCell } from "./shapes";
import type { Difference } from "./difference";

const models = data.models.map((x) => x.name);

const withNote = (x?: FactRow) =>
	x && (
		<>
			{x.value} <small>{x.note}</small>
		</>
	);

/** The facts of both models by their names. */
function factRows(): ComparedRow[] {
	const sheets = data.models.map((x) => new Map(factsOf(x).rows.map((row) => [row.name, row])));
	const names = [...new Set(sheets.flatMap((x) => [...x.keys()]))];
	const row = (name: string, [a, b]: string[]): ComparedRow => ({
		key: name,
		values: [a, b],
		differs: a !== b,
	});
	const hardware = data.models.map((x) => {
		const own = ownSettings(x);
		const { smallest } = fitterOf(sizesOf(x), own);
		const name = smallest ? hardwareName(smallest) : "nothing in the catalog";
		return [name, ...hardwareLoad(x, own, smallest)].join(", ");
	});
	return [
		row(
			"Published",
			data.models.map((x) => factsOf(x).origin.join(" · ")),
		),
		row(
			"Kind",
			data.models.map((x) => factsOf(x).kinds.join(", ")),
		),
		...names.map((name) => {
			const [a, b] = sheets.map((x) => x.get(name));
			return {
				...row(
					name,
					[a, b].map((x) => (x ? `${x.value} ${x.note}` : "")),
				),
				values: [withNote(a), withNote(b)] as const,
			};
		}),
		row("Runs on", hardware),
	];
}

export const factsFinding = (): string => differFinding(factRows(), "facts differ");

export const FactTable = () => (
	<ComparedTable
		class="sheets"
		caption="Fact sheets of both models"
		of="fact"
		models={models}
		rows={factRows()}
	/>
);

export function WeightTable({ difference }: { difference: Difference }) {
	const { weights, parameters } = difference.shared;
	const rows = (data.models[0]!.sections as ModelSection[])
		.flatMap((x) => x.rows)
		.filter((x) => weights.includes(x.path));
	return (
		<>
			<p class="lead-line">
				<NumberButton
					derive={() => ({
						title: "weights of the same shape",
						lines: [formula(`|{${weights.join(", ")}}|`, String(weights.length))],
					})}
					label="weights"
				>
					{String(weights.length)}
				</NumberButton>{" "}
				weights have the same shape in both,{" "}
				<NumberButton
					derive={() => ({
						title: "of the same shape in both",
						lines: [sumFormula(rows.map((x) => [x.path, x.total]))],
					})}
					label="parameters"
				>
					{grouped(parameters)}
				</NumberButton>{" "}
				parameters.
			</p>
			{difference.weights.length > 0 && (
				<ComparedTable
					class="pairs"
					caption="Weights that differ"
					of="weight"
					models={models}
					change="difference"
					isNumber
					rows={difference.weights.map((x) => ({
						key: x.path,
						values: [shapeCell(x.a), shapeCell(x.b)],
						change: (
							<NumberButton
								derive={() => pairDerivation(x)}
								label={`${x.path}, difference`}
							>
								{signed(x.delta)}
							</NumberButton>
						),
					}))}
				/>
			)}
		</>
	);
}

export function ConfigTable({ difference }: { difference: Difference }) {
	const { agreed, config } = difference;
	return (
		<>
			<p class="lead-line">
				<NumberButton
					derive={() => ({
						title: "keys that are equal",
						lines: [formula(`|{${agreed.join(", ")}}|`, String(agreed.length))],
					})}
					label="keys"
				>
					{String(agreed.length)}
				</NumberButton>{" "}
				keys are equal. * a default, – no such key
			</p>
			{config.length > 0 && (
				<ComparedTable
					class="pairs"
					caption="Keys that differ"
					of="key"
					models={models}
					change="affects"
					rows={config.map((x) => ({ key: x.key, values: [x.a, x.b], change: x.moves }))}
				/>
			)}
		</>
	);
}
