// Two fact sheets, the weights and the configurations of two models side by side.
import { NumberButton } from "../../components/number";
import { data } from "../../lib/data";
import { formula, sumFormula } from "../../lib/derivation";
import { grouped, signed } from "../../lib/format";
import { sizesOf } from "../../lib/sizing/data";
import { fitterOf } from "../../lib/sizing/fit";
import { factsOf } from "../facts/fact_sheet";
import { hardwareLoad, hardwareName, ownSettings } from "../facts/runs_on";
import type { ModelSection } from "../../lib/weights";
import { pairDerivation, shapeCell } from "./shapes";
import type { Difference } from "./difference";

const Names = () => (
	<>
		{data.models.map((x, i) => (
			<th key={i} scope="col" role="columnheader">
				{x.name}
			</th>
		))}
	</>
);

/** The facts of both models by their names. */
function factRows(): [string, string[]][] {
	const sheets = data.models.map((x) => new Map(factsOf(x).rows.map((row) => [row.name, row])));
	const names = [...new Set(sheets.flatMap((x) => [...x.keys()]))];
	const origin = data.models.map((x) => factsOf(x).origin.join(" · "));
	const kinds = data.models.map((x) => factsOf(x).kinds.join(", "));
	const hardware = data.models.map((x) => {
		const own = ownSettings(x);
		const { smallest } = fitterOf(sizesOf(x), own);
		const name = smallest ? hardwareName(smallest) : "nothing in the catalog";
		return [name, ...hardwareLoad(x, own, smallest)].join(", ");
	});
	return [
		["Published", origin],
		["Kind", kinds],
		...names.map((name): [string, string[]] => [
			name,
			sheets.map((x) => {
				const row = x.get(name);
				return row ? [row.value, row.note].filter(Boolean).join(" ") : "–";
			}),
		]),
		["Runs on", hardware],
	];
}

export function factsFinding(): string {
	const rows = factRows();
	return `${rows.filter(([, [a, b]]) => a !== b).length} of ${rows.length} facts differ`;
}

export function FactTable() {
	const rows = factRows();
	return (
		<table class="sheets" role="table">
			<caption class="hidden">Fact sheets of both models</caption>
			<thead role="rowgroup">
				<tr role="row">
					<th scope="col" role="columnheader">
						fact
					</th>
					<Names />
				</tr>
			</thead>
			<tbody role="rowgroup">
				{rows.map(([name, values]) => (
					<tr key={name} role="row" class={values[0] === values[1] ? "same" : "differs"}>
						<th scope="row" role="rowheader">
							{name}
						</th>
						{values.map((x, i) => (
							<td key={i} role="cell" data-label={data.models[i]!.name}>
								{x || "–"}
							</td>
						))}
					</tr>
				))}
			</tbody>
		</table>
	);
}

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
						title: "weights that are the same",
						lines: [formula(`|{${weights.join(", ")}}|`, String(weights.length))],
					})}
					label="weights"
				>
					{String(weights.length)}
				</NumberButton>{" "}
				weights are the same in both,{" "}
				<NumberButton
					derive={() => ({
						title: "the same in both",
						lines: [sumFormula(rows.map((x) => [x.path, x.total]))],
					})}
					label="parameters"
				>
					{grouped(parameters)}
				</NumberButton>{" "}
				parameters.
			</p>
			{difference.weights.length > 0 && (
				<table class="pairs" role="table">
					<caption class="hidden">Weights that differ</caption>
					<thead role="rowgroup">
						<tr role="row">
							<th scope="col" role="columnheader">
								weight
							</th>
							<Names />
							<th scope="col" role="columnheader" class="n">
								difference
							</th>
						</tr>
					</thead>
					<tbody role="rowgroup">
						{difference.weights.map((x, i) => (
							<tr key={`${x.path} ${i}`} role="row">
								<th scope="row" role="rowheader" class="path">
									{x.path}
								</th>
								{[x.a, x.b].map((y, j) => (
									<td key={j} role="cell" data-label={data.models[j]!.name}>
										{shapeCell(y)}
									</td>
								))}
								<td class="n" role="cell" data-label="difference">
									<NumberButton
										derive={() => pairDerivation(x)}
										label={`${x.path}, difference`}
									>
										{signed(x.delta)}
									</NumberButton>
								</td>
							</tr>
						))}
					</tbody>
				</table>
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
				<table class="pairs" role="table">
					<caption class="hidden">Keys that differ</caption>
					<thead role="rowgroup">
						<tr role="row">
							<th scope="col" role="columnheader">
								key
							</th>
							<Names />
							<th scope="col" role="columnheader">
								affects
							</th>
						</tr>
					</thead>
					<tbody role="rowgroup">
						{config.map((x) => (
							<tr key={x.key} role="row">
								<th scope="row" role="rowheader" class="path">
									{x.key}
								</th>
								<td role="cell" data-label={data.models[0]!.name}>
									{x.a}
								</td>
								<td role="cell" data-label={data.models[1]!.name}>
									{x.b}
								</td>
								<td role="cell" data-label="affects">
									{x.moves}
								</td>
							</tr>
						))}
					</tbody>
				</table>
			)}
		</>
	);
}
