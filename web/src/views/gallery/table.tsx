// The models as a table: sorted by any column, with the columns of choice, and as a CSV file.
import { saveFile } from "../../components/export/clipboard";
import { useRoving } from "../../lib/roving";
import { change, useAppState } from "../../lib/state";
import { IS_PHONE, useMedia } from "../../lib/use_media";
import { COLUMNS, chosenColumns, shown, toCsv, type Column } from "./columns";
import type { Entry } from "./entries";
import { CompareButton, ModelLink, useModelStop, type Stop } from "./model_link";

function ColumnChoice({ columns }: { columns: Column[] }) {
	const keys = new Set(columns.map((x) => x.key));
	const rove = useRoving(COLUMNS.length);
	const toggle = (key: string) => {
		const chosen = COLUMNS.filter((x) => keys.has(x.key) !== (x.key === key)).map((x) => x.key);
		const initial = COLUMNS.filter((x) => x.isInitial).map((x) => x.key);
		change({ columns: chosen.length && chosen.join() !== initial.join() ? chosen.join() : "" });
	};
	return (
		<details class="column-choice">
			<summary class="button">Columns</summary>
			<fieldset data-roving>
				<legend class="hidden">Columns of the table; arrow keys move between them</legend>
				{COLUMNS.map((x, i) => (
					<label key={x.key}>
						<input
							type="checkbox"
							{...rove(i)}
							checked={keys.has(x.key)}
							onChange={() => toggle(x.key)}
						/>
						{x.name}
					</label>
				))}
			</fieldset>
		</details>
	);
}

export function ModelTable({ models }: { models: Entry[] }) {
	const { sort, columns } = useAppState("sort", "columns");
	const chosen = chosenColumns(columns!, useMedia(IS_PHONE));
	const stop = useModelStop(models);
	const key = sort!.replace(/^-/, "");
	const sortBy = (column: { key: string; isNumber: boolean }) => {
		const descending = column.isNumber || column.key === "released";
		const first = `${descending ? "-" : ""}${column.key}`;
		change({ sort: sort === first ? (descending ? column.key : `-${column.key}`) : first });
	};
	const ariaSort = (x: string) =>
		x !== key ? undefined : sort!.startsWith("-") ? "descending" : "ascending";
	const arrow = (x: string) => (x !== key ? "" : sort!.startsWith("-") ? " ↓" : " ↑");
	const head = (x: { key: string; name: string; isNumber: boolean }) => (
		<th key={x.key} scope="col" class={x.isNumber ? "n" : ""} aria-sort={ariaSort(x.key)}>
			<button type="button" class="sort" onClick={() => sortBy(x)}>
				{x.name}
				<span aria-hidden="true">{arrow(x.key)}</span>
			</button>
		</th>
	);
	return (
		<>
			<div class="tools no-print">
				<ColumnChoice columns={chosen} />
				<button
					type="button"
					class="button"
					onClick={() =>
						saveFile("llamath-models.csv", toCsv(models, chosen), "text/csv")
					}
				>
					Save CSV
				</button>
			</div>
			<div class="table-frame" tabIndex={0} role="region" aria-label="Models">
				<table class="models">
					<thead>
						<tr>
							{head({ key: "name", name: "Model", isNumber: false })}
							{chosen.map(head)}
							<th scope="col" class="no-print">
								<span class="hidden">Compare</span>
							</th>
						</tr>
					</thead>
					<tbody>
						{models.map((x) => (
							<Row key={x.id} entry={x} columns={chosen} stop={stop(x)} />
						))}
					</tbody>
				</table>
			</div>
			{!models.length && <p class="callout">No model matches.</p>}
		</>
	);
}

function Row({ entry, columns, stop }: { entry: Entry; columns: Column[]; stop: Stop }) {
	return (
		<tr data-model={entry.id}>
			<th scope="row">
				<ModelLink entry={entry} stop={stop} />
			</th>
			{columns.map((x) => (
				<td key={x.key} data-key={x.key} class={x.isNumber ? "n" : ""}>
					{shown(entry, x)}
				</td>
			))}
			<td class="no-print">
				<CompareButton entry={entry} stop={stop} />
			</td>
		</tr>
	);
}
