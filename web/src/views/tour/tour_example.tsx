// The results of a stop's steps in the bundled model or a small one, for pages of models without weights.
import type { Example, TourStop } from "./tour_stops";

export function StopExample({ stop, example }: { stop: TourStop; example: Example }) {
	const { columns, rows, product } = example;
	return (
		<figure class="tour-example">
			<figcaption class="caption">
				The same step in {example.in}
				{example.turn && `, ${example.turn}`}: {example.says}.
			</figcaption>
			{stop.name === "token" ? (
				<ol class="tour-ids" aria-label="Tokens and their ids">
					{rows.map(([text, id], i) => (
						<li key={i} aria-current={i === rows.length - 1 ? "true" : undefined}>
							<span class="live-token">{text}</span>
							<small>{id}</small>
						</li>
					))}
				</ol>
			) : stop.name === "softmax" && columns.length === rows.length ? (
				<Shares tokens={columns} rows={rows} />
			) : (
				<NumberTable columns={columns} rows={rows} />
			)}
			{product && (
				<p class="tour-product">
					<code>{product}</code>
				</p>
			)}
		</figure>
	);
}

/** Rows of numbers with their names. */
export function NumberTable({ columns, rows }: Pick<Example, "columns" | "rows">) {
	return (
		<table>
			<thead>
				<tr>
					{columns.map((x, i) =>
						x ? (
							<th scope="col" class={i ? "n" : ""}>
								{x}
							</th>
						) : (
							<td />
						),
					)}
				</tr>
			</thead>
			<tbody>
				{rows.map(([first, ...numbers], i) => (
					<tr key={i}>
						<th scope="row">{first}</th>
						{columns.slice(1).map((_, i) => (
							<td class="n">{numbers[i]}</td>
						))}
					</tr>
				))}
			</tbody>
		</table>
	);
}

const CELL = 13;

/** A triangle of shares: how much each token reads of itself and of those before it. */
function Shares({ tokens, rows }: { tokens: string[]; rows: string[][] }) {
	const side = CELL * rows.length;
	const most = rows
		.at(-1)!
		.flatMap((x, i) => (Number(x) > 2 ? [`${tokens[i]} ${x}%`] : []))
		.join(", ");
	return (
		<svg
			class="data"
			role="img"
			aria-label={`${tokens.at(-1)} reads ${most}`}
			width={side + 64}
			height={side}
		>
			<path d={`M${CELL} 0H${side}V${side - CELL}z`} class="masked" />
			<text x={side - 4} y={CELL} text-anchor="end">
				masked
			</text>
			{rows.map((row, y) => [
				row.map((x, i) => (
					<rect
						x={CELL * i}
						y={CELL * y}
						width={CELL - 1}
						height={CELL - 1}
						opacity={Math.sqrt(Number(x) / 100)}
					/>
				)),
				<text x={CELL * (y + 1) + 3} y={CELL * (y + 0.8)}>
					{tokens[y]}
				</text>,
			])}
		</svg>
	);
}
