// The matrix of GPUs and numbers of them, or of GPUs and two models: the fill is the number of
// sequences that fit.
import { useRef } from "preact/hooks";
import { grouped, shortTokens, threeDigits } from "../../lib/format";
import { change } from "../../lib/state";
import { prefixed, shortTitle } from "../../lib/sizing/facts";
import type { Gpu } from "../../lib/sizing/data";
import type { Cell, Hardware } from "../../lib/sizing/fit";

interface Props {
	rows: Cell[][];
	/** What the columns are. */
	heads: string[];
	label: string;
	chosen: Hardware;
	/** The smallest hardware of each column's model. */
	smallest: (Cell | null)[];
	context: bigint;
	/** The dtype of products that a GPU lacks for the weights. */
	lacks?: (gpu: Gpu) => string;
	/** Columns are models, and each cell has its number of GPUs. */
	isCounted?: boolean;
}

/** The shade of a cell by the sequences that fit: below 4, 16, 64, 256, or more. */
const shade = (n: bigint | null) =>
	n === null ? 5 : 1 + [4n, 16n, 64n, 256n].filter((least) => n >= least).length;
const many = (n: bigint | null) =>
	n === null
		? "any number of"
		: n >= 1_000_000n
			? `${threeDigits(Number(n) / 1e6)}M`
			: n >= 100_000n
				? `${threeDigits(Number(n) / 1e3)}k`
				: grouped(n);
/** Missing memory, never none. */
const gib = (bytes: number) => {
	const n = Math.max(bytes / 2 ** 30, 0.01);
	return `${n.toFixed(n < 100 ? 2 : 0)} GiB`;
};
const rate = (x: number) => threeDigits(x);

function describe(cell: Cell, context: bigint): string {
	const name = `${cell.count} × ${cell.gpu.title}`;
	if (cell.fits)
		return `${name}: fits, ${cell.sequences === null ? "any number of" : grouped(cell.sequences)} sequences of ${grouped(context)} tokens, ${cell.decode === null ? "" : `at most ${rate(cell.decode)} tokens per second, `}${cell.split.layout.name}`;
	if (cell.context !== 0n)
		return `${name}: does not fit; only ${cell.context === null ? "any" : grouped(cell.context)} tokens of context`;
	return `${name}: does not fit, each GPU has ${gib(cell.short)} too little`;
}

function CellContent({
	cell,
	context,
	isSmallest,
	isCounted,
}: {
	cell: Cell;
	context: bigint;
	isSmallest: boolean;
	isCounted: boolean;
}) {
	if (isCounted && !cell.fits) return <small>more than {cell.count}</small>;
	if (cell.fits) {
		const sequences = (
			<>
				{many(cell.sequences)}
				<span class="wide"> {cell.sequences === 1n ? "sequence" : "sequences"}</span>
			</>
		);
		return (
			<>
				<b>{isCounted ? <>{cell.count} ×</> : sequences}</b>
				<small>
					{isCounted && <span class="wide">{sequences}, </span>}
					{cell.decode === null ? (
						cell.split.layout.name
					) : (
						<>
							≤ {rate(cell.decode)}
							<span class="wide"> tokens/s</span>
						</>
					)}
				</small>
				{isSmallest && <em>best fit</em>}
			</>
		);
	}
	if (cell.context) {
		return (
			<>
				<b>
					{shortTokens(
						cell.context >= 10_000n ? (cell.context / 1024n) * 1024n : cell.context,
					)}
					<span class="wide"> tokens</span>
				</b>
				<small>of {shortTokens(context)}</small>
			</>
		);
	}
	return (
		<small>
			<span class="narrow">−</span>
			{gib(cell.short)}
			<span class="wide"> too little</span>
		</small>
	);
}

export function HardwareMatrix({
	rows,
	heads,
	label,
	chosen: at,
	smallest,
	context,
	lacks = () => "",
	isCounted = false,
}: Props) {
	const ref = useRef<HTMLTableElement>(null);
	const chosen = rows.findIndex((x) => x[0]!.gpu.name === at.gpu.name);
	const column = (rows[chosen] ?? []).findIndex((x) => x.count === at.count);
	const [tabRow, tabColumn] = [Math.max(chosen, 0), Math.max(column, 0)];
	// one tab stop: arrows move within the matrix
	const move = (event: KeyboardEvent, i: number, j: number) => {
		const [down, right] = {
			ArrowDown: [1, 0],
			ArrowUp: [-1, 0],
			ArrowRight: [0, 1],
			ArrowLeft: [0, -1],
		}[event.key] ?? [0, 0];
		const next =
			(down || right) &&
			ref.current!.querySelector<HTMLElement>(`[data-cell="${i + down!} ${j + right!}"]`);
		if (!next) return;
		event.preventDefault();
		next.focus();
	};
	return (
		<table class={`hardware ${isCounted ? "of-models" : ""}`} ref={ref} aria-label={label}>
			<thead>
				<tr>
					<th scope="col">
						<span class="hidden">GPU</span>
					</th>
					{heads.map((x, i) => (
						<th scope="col" key={i}>
							{x}
						</th>
					))}
				</tr>
			</thead>
			<tbody>
				{rows.map((row, i) => {
					const { gpu } = row[0]!;
					return (
						<tr key={gpu.name}>
							<th scope="row">
								<b>{shortTitle(gpu)}</b>
								<small>
									{Number((Number(gpu.memory) / 2 ** 30).toFixed(1))} GiB ·{" "}
									{prefixed(BigInt(gpu.bandwidth))}B/s
									{lacks(gpu) && ` · no ${lacks(gpu)}`}
								</small>
							</th>
							{row.map((cell, j) => {
								const kind = cell.fits
									? `f${shade(cell.sequences)}`
									: cell.context
										? "part"
										: "short";
								const fill =
									kind === "part"
										? {
												"--filled": `${Math.min((100 * Number(cell.context)) / Number(context), 100)}%`,
											}
										: undefined;
								const isChosen =
									gpu.name === at.gpu.name && cell.count === at.count;
								const least = smallest[j];
								const isSmallest =
									gpu.name === least?.gpu.name && cell.count === least.count;
								return (
									<td key={j}>
										<button
											type="button"
											class={`cell ${kind}`}
											style={fill}
											data-cell={`${i} ${j}`}
											data-fit={`${gpu.name} ${cell.count}`}
											aria-pressed={isChosen}
											tabIndex={i === tabRow && j === tabColumn ? 0 : -1}
											onKeyDown={(event) => move(event, i, j)}
											onClick={() =>
												change({
													card: gpu.name,
													gpus: cell.count,
													tp: "",
													mode: "run",
												})
											}
										>
											<CellContent
												cell={cell}
												context={context}
												isSmallest={isSmallest}
												isCounted={isCounted}
											/>
											<span class="hidden">
												: {isCounted ? `${heads[j]}, ` : ""}
												{describe(cell, context)}
												{isSmallest &&
													`; the smallest ${gpu.common && "of common GPUs "}that runs it with memory to spare`}
											</span>
										</button>
									</td>
								);
							})}
						</tr>
					);
				})}
			</tbody>
		</table>
	);
}
