// Two models side by side: their pictures to one scale, their facts, and the shapes of their
// weights.
import { ComparedTable, differFinding, type ComparedRow } from "../../components/compared_table";
import { Segmented, Select } from "../../components/controls";
import { ratioText, signed } from "../../lib/format";
import { change, useAppState } from "../../lib/state";
import { useWidth } from "../../lib/use_width";
import { howInWords, whyInWords } from "../compare/difference";
import { Waterfall } from "../compare/waterfall";
import { COLUMNS, count, shown, type Column } from "./columns";
import { byId, gallery, linkToPair, type Entry, type Int, type Shape } from "./entries";
import { MiniPicture, tallest } from "./mini_picture";

const DEFAULTS = ["llama-2-7b", "llama-3-8b"];

function chosenPair(a: string, b: string): [Entry, Entry] {
	const ids = gallery.models.map((x) => x.id);
	const pick = (id: string, fallback: string, other: number) =>
		byId.get(id) ?? byId.get(fallback) ?? gallery.models[Math.min(other, ids.length - 1)]!;
	const [first, second] = [pick(a, DEFAULTS[0]!, 0), pick(b, DEFAULTS[1]!, 1)];
	// until the reader chooses it, the other model is another one
	const other = gallery.models.find((x) => x.id !== (a ? first : second).id);
	if (first !== second || (a && b) || !other) return [first, second];
	return a || !b ? [first, other] : [other, second];
}

export function Compare() {
	const state = useAppState("a", "b", "differ");
	const [a, b] = chosenPair(state.a, state.b);
	const options = gallery.models
		.toSorted((x, y) => x.name.localeCompare(y.name, "en", { numeric: true }))
		.map((x): [string, string] => [x.id, x.name]);
	const isOnly = state.differ === "only";
	return (
		<div class="compare">
			<div class="tools no-print">
				<Select
					id="model-a"
					label="From"
					options={options}
					chosen={a.id}
					choose={(id) => change({ a: id, b: b.id })}
				/>
				<Select
					id="model-b"
					label="to"
					options={options}
					chosen={b.id}
					choose={(id) => change({ a: a.id, b: id })}
				/>
				<button type="button" class="button" onClick={() => change({ a: b.id, b: a.id })}>
					Swap models
				</button>
				<Segmented
					id="differ"
					label="Show"
					options={[
						["all", "All"],
						["only", "Differences"],
					]}
					chosen={state.differ}
					choose={(x) => change({ differ: x })}
				/>
			</div>
			<Pictures pair={[a, b]} />
			<WhyTheyDiffer pair={[a, b]} />
			<Facts pair={[a, b]} isOnly={isOnly} />
			<Shapes pair={[a, b]} isOnly={isOnly} />
			{gallery.pair_link && (
				<p class="callout">
					<a href={linkToPair(a.id, b.id)}>Why they differ, cause by cause</a>
				</p>
			)}
		</div>
	);
}

/** The causes, which a gallery of few models has of each pair. */
function WhyTheyDiffer({ pair: [a, b] }: { pair: [Entry, Entry] }) {
	const found = gallery.causes[`${a.id} ${b.id}`];
	if (!found) return null;
	const names = [a.name, b.name] as const;
	return (
		<section class="facts-pair" data-numbers>
			<h2>{whyInWords(found, [count(a.total), count(b.total)])}</h2>
			<Waterfall names={names} causes={found} />
			<p class="caption">{howInWords(found.method, names)}</p>
		</section>
	);
}

function Pictures({ pair }: { pair: [Entry, Entry] }) {
	const [ref, width] = useWidth<HTMLDivElement>();
	const isWide = width > 720;
	const each = Math.floor(isWide ? (width - 32) / 2 : width);
	const most = Math.max(...pair.map((x) => (x.picture ? tallest(x) : 1)));
	return (
		<div ref={ref} class={`pair ${isWide ? "wide" : ""}`}>
			{pair.map((x, i) => (
				<figure key={i}>
					<figcaption>
						<h2>
							<a
								class="model"
								href={gallery.link.replace("{id}", encodeURIComponent(x.id))}
							>
								{x.name}
							</a>
						</h2>
						<p>
							<strong>{count(x.total)}</strong>
							{x.kinds?.includes("moe")
								? ` · ${count(x.active as number)} active`
								: ""}
						</p>
						<p class="caption">{x.description}</p>
					</figcaption>
					{width > 0 && (
						<MiniPicture
							entry={x}
							width={each}
							height={150}
							most={most}
							label={`${x.name}: ${String(x.layers ?? "")} layers, one bar each, as high as their parameters`}
						/>
					)}
				</figure>
			))}
		</div>
	);
}

const exactText = (x: Entry, column: Column) =>
	x[column.key] === null || x[column.key] === undefined ? "" : JSON.stringify(x[column.key]);

function ratio(a: unknown, b: unknown, column: Column): string {
	if (!column.isNumber || a == null || b == null || Number(a) === 0 || Number(a) === Number(b))
		return "";
	const factor = Number(b) / Number(a);
	return ratioText(factor);
}

function Facts({ pair: [a, b], isOnly }: { pair: [Entry, Entry]; isOnly: boolean }) {
	const columns = COLUMNS.filter((x) => x.key !== "id" && (shown(a, x) || shown(b, x)));
	const rows = columns.map((x) => ({
		key: x.key,
		name: x.name,
		values: [shown(a, x), shown(b, x)] as const,
		differs: exactText(a, x) !== exactText(b, x),
		change: ratio(a[x.key], b[x.key], x),
	}));
	return (
		<Table
			title={differFinding(rows, "facts differ")}
			of="Fact"
			pair={[a, b]}
			change="Change"
			rows={rows}
			isOnly={isOnly}
		/>
	);
}

function Table({
	title,
	pair,
	rows,
	isOnly,
	...rest
}: {
	title: string;
	of: string;
	change: string;
	class?: string;
	pair: [Entry, Entry];
	rows: ComparedRow[];
	isOnly: boolean;
}) {
	return (
		<section class="facts-pair">
			<h2>{title}</h2>
			<div class="scroll" tabIndex={0} role="region" aria-label={`${rest.of}s of both`}>
				<ComparedTable
					class=""
					caption={title}
					models={pair.map((x) => x.name)}
					isNumber
					rows={rows.filter((x) => x.differs || !isOnly)}
					{...rest}
				/>
			</div>
		</section>
	);
}

const elements = ([, dims, copies]: Shape): bigint =>
	dims.reduce<bigint>((n, x) => n * BigInt(x), BigInt(copies));
const written = (list: Shape[]): string =>
	list
		.map(
			([, dims, copies]) =>
				`${dims.map((x) => BigInt(x).toLocaleString("en-US")).join(" × ")}${Number(copies) === 1 ? "" : `, ${BigInt(copies).toLocaleString("en-US")} times`}`,
		)
		.join("; ");

function Shapes({ pair, isOnly }: { pair: [Entry, Entry]; isOnly: boolean }) {
	const [ofA, ofB] = pair.map((x) => Map.groupBy(x.shapes ?? [], (y) => y[0])) as [
		Map<string, Shape[]>,
		Map<string, Shape[]>,
	];
	const paths = [...new Set([...ofA.keys(), ...ofB.keys()])];
	const total = (list: Shape[]) => list.reduce<bigint>((n, s) => n + elements(s), 0n);
	const changeText = (n: bigint): string => (n ? signed(n) : "");
	const rows = paths.map((path) => {
		const [x, y] = [ofA.get(path) ?? [], ofB.get(path) ?? []];
		return {
			key: path,
			name: <code>{path}</code>,
			values: [written(x), written(y)] as const,
			differs: written(x) !== written(y),
			change: changeText(total(y) - total(x)),
		};
	});
	return (
		<Table
			class="shapes"
			title={differFinding(rows, "weights have other shapes")}
			of="Weight"
			pair={pair}
			change="Elements"
			rows={rows}
			isOnly={isOnly}
		/>
	);
}

export type { Int };
