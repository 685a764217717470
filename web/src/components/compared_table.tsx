// Two models in columns beside each other: what each has under a name, and how it changes.
import type { ComponentChildren } from "preact";

export interface ComparedRow {
	key: string;
	name?: ComponentChildren;
	values: readonly [ComponentChildren, ComponentChildren];
	/** Undefined where only what differs is listed. */
	differs?: boolean;
	change?: ComponentChildren;
}

interface Props {
	class: string;
	caption: string;
	/** What the names name. */
	of: string;
	models: readonly string[];
	/** The heading of the changes, if there are any. */
	change?: string;
	isNumber?: boolean;
	rows: readonly ComparedRow[];
}

/** "7 of 20 facts differ". */
export const differFinding = (rows: readonly ComparedRow[], what: string): string =>
	`${rows.filter((x) => x.differs).length} of ${rows.length} ${what}`;

export function ComparedTable({ caption, of, models, change, isNumber, rows, ...rest }: Props) {
	const last = isNumber ? "n" : undefined;
	return (
		<table role="table" {...rest}>
			<caption class="hidden">{caption}</caption>
			<thead role="rowgroup">
				<tr role="row">
					<th scope="col" role="columnheader">
						{of}
					</th>
					{models.map((x, i) => (
						<th key={i} scope="col" role="columnheader">
							{x}
						</th>
					))}
					{change && (
						<th scope="col" role="columnheader" class={last}>
							{change}
						</th>
					)}
				</tr>
			</thead>
			<tbody role="rowgroup">
				{rows.map(({ key, name = key, values, differs, ...x }, i) => (
					<tr
						key={`${key} ${i}`}
						role="row"
						data-row={key}
						class={differs === undefined ? undefined : differs ? "differs" : "same"}
					>
						<th scope="row" role="rowheader" class="path">
							{name}
						</th>
						{values.map((y, j) => (
							<td key={j} role="cell" data-label={models[j]}>
								{y || "–"}
							</td>
						))}
						{change && (
							<td role="cell" class={last} data-label={change}>
								{x.change}
							</td>
						)}
					</tr>
				))}
			</tbody>
		</table>
	);
}
