// The table of tensors: by kind of layer, with search, sorting and four naming schemes; each number
// opens its derivation.
import "./tensors.css";
import { Fragment } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { Segmented } from "../../components/controls";
import { NumberButton } from "../../components/number";
import { Section, SubHeading } from "../../components/section";
import { data, type ModelData } from "../../lib/data";
import { formula, shareFormula, type Derivation } from "../../lib/derivation";
import { grouped, matchWords } from "../../lib/format";
import { usePrintedState } from "../../lib/printing";
import { change, dropUnknown, useAppState, type State } from "../../lib/state";
import {
	inFactor,
	productFormula,
	shapeText,
	sideFormulas,
	type ModelSection,
	type WeightRow,
} from "../../lib/weights";

const NAMES = [
	["path", "llamath"],
	["hf", "Hugging Face"],
	["meta", "Meta"],
	["gguf", "GGUF"],
] as const;
const COLUMNS: readonly (readonly [key: string, text: string, isNumber: boolean])[] = [
	["path", "weight", false],
	["", "shape", false],
	["each", "parameters", true],
	["", "copies", true],
	["total", "total", true],
	["", "share", true],
];

const displayName = (row: WeightRow, scheme: string) =>
	scheme === "path" ? row.path : row.names[scheme] || `– (${row.path})`;

const NUMBER_NAMES = ["parameters of one", "copies", "total", "share"];

/** The derivations of the four numbers of a row, or of a section. */
function derivations(
	row: WeightRow | null,
	section: ModelSection,
	whole: bigint,
): (() => Derivation)[] {
	const [title, total] = row ? [row.path, row.total] : [section.where, section.total];
	const entry = (what: string, i: number, lines: () => Derivation["lines"]) => () => ({
		title: `${title}: ${what}`,
		lines: row ? lines() : [formula(...section.of[i]!)],
	});
	const layers = section.of[1]![0]!;
	return [
		entry("each", 0, () => [productFormula(row!, [], grouped(row!.each))]),
		entry("copies", 1, () => [
			formula(
				row!.copies === "1" ? layers : `${grouped(row!.copies)}·${inFactor(layers)}`,
				`${grouped(row!.copies)}·${grouped(row!.times)}`,
				grouped(BigInt(row!.copies) * BigInt(row!.times)),
			),
		]),
		entry("all", 2, () => [
			row!.tied
				? `Tied to ${row!.tied}: it adds no parameters.`
				: productFormula(
						row!,
						[
							[grouped(row!.copies), row!.copies],
							[layers, row!.times],
						],
						grouped(row!.total),
					),
		]),
		() => ({
			title: `${title}: share`,
			lines: [shareFormula(title, BigInt(total), whole), data.words.percent as string],
		}),
	];
}

function sorted(rows: WeightRow[], key: string): WeightRow[] {
	if (!key) return rows;
	if (key === "path") return rows.toSorted((a, b) => (a.path < b.path ? -1 : 1));
	const size = (x: WeightRow) => BigInt(key === "each" ? x.each : x.total);
	return rows.toSorted((a, b) => (size(a) < size(b) ? 1 : -1));
}

/** The table is one tab stop: arrow keys move between the numbers and the groups. */
function moveInTable(event: KeyboardEvent): void {
	const [column, row] =
		{ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[
			event.key
		] ?? [];
	const from = (event.target as Element).closest<HTMLElement>("[data-column]");
	if (column === undefined || row === undefined || !from) return;
	const isGroup = from.dataset.column === "group";
	const table = from.closest("table")!;
	const list = [
		...(row ? table : from.closest("tr")!).querySelectorAll<HTMLElement>(
			row ? `[data-column="${from.dataset.column}"]` : "[data-column]",
		),
	];
	if (isGroup && column) return;
	const next = list[list.indexOf(from) + column + row];
	if (!next || (next.dataset.column === "group") !== isGroup) return;
	event.preventDefault();
	next.focus();
}

function Numbers({
	title,
	texts,
	derive,
}: {
	title: string;
	texts: string[];
	derive: (() => Derivation)[];
}) {
	return (
		<>
			{texts.map((text, i) => (
				<td key={i} class="n" role="cell" data-label={NUMBER_NAMES[i]}>
					<NumberButton
						derive={derive[i]!}
						label={`${title}, ${NUMBER_NAMES[i]}`}
						tabIndex={-1}
						data-column={`${i}`}
					>
						{text}
					</NumberButton>
				</td>
			))}
		</>
	);
}

interface GroupProps {
	section: ModelSection;
	index: number;
	rows: WeightRow[];
	state: Pick<State, "names">;
	whole: bigint;
	isOpen: boolean;
	setOpen: (open: boolean) => void;
	isFirst: boolean;
}

function Group({ section, index, rows, state, whole, isOpen, setOpen, isFirst }: GroupProps) {
	const onKeyDown = (event: KeyboardEvent) => {
		if (event.key === "ArrowRight" && !isOpen) setOpen(true);
		else if (event.key === "ArrowLeft" && isOpen) setOpen(false);
		else return;
		event.preventDefault();
	};
	return (
		<tbody role="rowgroup">
			<tr class="group" role="row">
				<th scope="rowgroup" colSpan={2} role="rowheader">
					<button
						type="button"
						class="fold"
						aria-expanded={isOpen}
						data-section={index}
						data-column="group"
						tabIndex={isFirst ? 0 : -1}
						onClick={() => setOpen(!isOpen)}
						onKeyDown={onKeyDown}
					>
						{section.where}
					</button>
				</th>
				<Numbers
					title={section.where}
					texts={[
						grouped(section.each),
						grouped(section.times),
						grouped(section.total),
						section.share,
					]}
					derive={derivations(null, section, whole)}
				/>
			</tr>
			{isOpen &&
				rows.map((x) => (
					<tr key={`${x.path} ${x.shape}`} role="row">
						<th scope="row" role="rowheader" class="path">
							{displayName(x, state.names)}
						</th>
						<td role="cell" data-label="shape">
							<NumberButton
								derive={() => ({
									title: `${x.path}: shape`,
									lines: sideFormulas(x),
								})}
								label={`${x.path}, shape`}
								tabIndex={-1}
								data-column="shape"
							>
								{shapeText({ ...x, copies: "1" })}
							</NumberButton>
						</td>
						<Numbers
							title={x.path}
							texts={[
								grouped(x.each),
								grouped(BigInt(x.copies) * BigInt(x.times)),
								x.tied ? "tied" : grouped(x.total),
								x.share,
							]}
							derive={derivations(x, section, whole)}
						/>
					</tr>
				))}
		</tbody>
	);
}

function Heading({ sort }: { sort: string }) {
	return (
		<thead role="rowgroup">
			<tr role="row">
				{COLUMNS.map(([key, text, isNumber]) => {
					const isChosen = key !== "" && sort === key;
					return (
						<th
							key={text}
							scope="col"
							role="columnheader"
							class={isNumber ? "n" : undefined}
							aria-sort={
								isChosen ? (key === "path" ? "ascending" : "descending") : undefined
							}
						>
							{key ? (
								<button
									type="button"
									class="sort"
									data-sort={key}
									onClick={() => change({ sort: isChosen ? "" : key })}
								>
									{text}
								</button>
							) : (
								text
							)}
						</th>
					);
				})}
			</tr>
		</thead>
	);
}

/** Rows that are open before one opens or closes parts; on a phone, where a row takes four lines, none. */
const FIRST_ROWS = 24;
const NONE: ReadonlySet<number> = new Set();

function firstClosed(sections: readonly ModelSection[]): ReadonlySet<number> {
	let rows = matchMedia("(max-width: 760px)").matches ? Infinity : 0;
	return new Set(sections.flatMap((x, i) => ((rows += x.rows.length) > FIRST_ROWS ? [i] : [])));
}

export function Tensors({ model }: { model: ModelData }) {
	const state = useAppState("find", "names", "sort");
	useLayoutEffect(() => {
		if (!COLUMNS.some(([key]) => key === state.sort)) dropUnknown({ sort: "" });
	}, [state.sort]);
	const sections = model.sections as ModelSection[];
	const [closed, setClosed] = usePrintedState(() => firstClosed(sections), NONE);
	const matches = matchWords(state.find);
	const groups = sections
		.map((section, index) => ({
			section,
			index,
			rows: sorted(
				section.rows.filter((x) => matches(x.path, x.group, ...Object.values(x.names))),
				state.sort,
			),
		}))
		.filter((x) => x.rows.length);
	const isSearching = state.find.trim() !== "";
	const setOpen = (index: number, open: boolean) =>
		setClosed(new Set(open ? [...closed].filter((x) => x !== index) : [...closed, index]));
	const whole = BigInt(model.counts[0]!.value);
	const distinct = new Set(sections.flatMap((x) => x.rows.map((y) => y.path))).size;
	const title = `${distinct.toLocaleString("en-US")} distinct weights, in ${sections.length} parts`;
	return (
		<Section
			id="tensors"
			topic="Every weight"
			title={title}
			controls={
				<>
					<span class="control">
						<label class="control-label" for="find">
							Find ( / )
						</label>
						<input
							type="search"
							id="find"
							maxLength={80}
							value={state.find}
							onInput={(event) => change({ find: event.currentTarget.value })}
						/>
					</span>
					<Segmented
						id="names"
						label="Names"
						options={NAMES}
						chosen={state.names}
						choose={(names) => change({ names })}
					/>
				</>
			}
		>
			<p class="caption" role="status">
				{isSearching
					? `${groups.length} of ${sections.length} parts contain “${state.find}”`
					: ""}
			</p>
			<div class="scroll" role="region" aria-label="table of tensors" tabIndex={0}>
				<table class="tensors" role="table" onKeyDown={moveInTable}>
					<caption class="hidden">{`Tensors of ${model.name}`}</caption>
					<Heading sort={state.sort} />
					{groups.map(({ section, index, rows }, i) => (
						<Fragment key={index}>
							<Group
								section={section}
								index={index}
								rows={rows}
								state={state}
								whole={whole}
								isOpen={isSearching || !closed.has(index)}
								setOpen={(open) => setOpen(index, open)}
								isFirst={i === 0}
							/>
						</Fragment>
					))}
				</table>
			</div>
			<Letters model={model} />
		</Section>
	);
}

function Letters({ model }: { model: ModelData }) {
	return (
		<div class="letters">
			<SubHeading>Symbols of the shapes</SubHeading>
			<dl>
				{model.letters.map((x) => (
					<div key={x.letter}>
						<dt>{x.letter}</dt>
						<dd>
							<NumberButton
								derive={() => ({
									title: `${x.letter}: ${x.says || x.key}`,
									lines: [formula(...x.of), x.from],
								})}
								label={x.says || x.key}
								data-letter={x.letter}
							>
								{grouped(x.value)}
							</NumberButton>
							<span class="caption">{x.says || x.key}</span>
						</dd>
					</div>
				))}
			</dl>
		</div>
	);
}
