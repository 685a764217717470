// The fact sheet: name, size, a row for each fact, and the size of the weights.
import { useContext } from "preact/hooks";
import "./facts.css";
import { NumberButton } from "../../components/number";
import type { Count, Digits, ModelData } from "../../lib/data";
import { formula, inBytes, inShort, shareFormula, type Derivation } from "../../lib/derivation";
import { designOf } from "../../lib/design";
import { Original } from "../../lib/editing";
import { grouped, percent, shortFileSize } from "../../lib/format";
import { liveOf } from "../../lib/live_views";
import { useIsAsking } from "../quiz/quiz_data";
import { CheckpointStatus } from "./checkpoint_status";

export interface FactRow {
	name: string;
	value: string;
	note: string;
	/** What its formulas do not say. */
	says: string;
	/** Letters of formulas that have this value. */
	letters: string[];
	/** Or formulas, each as lines that equal each other. */
	of: string[][];
}

interface WeightFact {
	dtype: string;
	name: string;
	bytes: Digits;
	released: boolean;
}

export interface Facts {
	origin: string[];
	kinds: string[];
	description: string;
	rows: FactRow[];
	weights: WeightFact[];
}

export const factsOf = (model: ModelData) => model.facts as Facts;

const countDerivation = (x: Count): Derivation => ({
	title:
		{ total: "How many parameters?", active: "How many parameters does one token use?" }[
			x.name
		] ?? `How many parameters, ${x.name}?`,
	lines: [
		x.says,
		formula(x.symbols, x.numbers, grouped(x.value)),
		...inShort(x.name, x.value, x.everyday),
	],
});

/** A name of more takes two lines in the size of a title. */
const MANY_LETTERS = 15;

/** Everything above the facts: origin, name, description, and the number of parameters. */
export function Intro({ model }: { model: ModelData }) {
	const { origin, kinds, description } = factsOf(model);
	const isAsking = useIsAsking();
	// an edited model is nobody's publication
	const original = useContext(Original);
	// it has a name of its own where it is that of a file
	const isEdited = original?.name === model.name;
	const total = model.counts[0]!;
	const active = model.counts.find((x) => x.name === "active");
	const { about = "", origin: part } = liveOf(model) ?? {};
	const from = isEdited ? ["edited"] : original ? ["your file"] : part ? [part] : origin;
	return (
		<div class="intro">
			<p class="eyebrow origin">{[...from, kinds.join(", ")].join(" · ")}</p>
			<h1 class={model.name.length > MANY_LETTERS ? "long" : ""}>
				{model.name}
				{isEdited && ", edited"}
			</h1>
			<p class="description">
				{about} {description}
			</p>
			{isAsking ? null : (
				<>
					<div class="hero-number">
						<NumberButton
							derive={() => countDerivation(total)}
							label="parameters, rounded"
						>
							{model.everyday}
						</NumberButton>
						<p>
							<strong>parameters</strong>
							<NumberButton
								derive={() => countDerivation(total)}
								label="parameters"
								data-part="parameters"
							>
								{grouped(total.value)}
							</NumberButton>
							{!active && <span>all active for every token</span>}
						</p>
					</div>
					{active && (
						<ActiveBar
							total={total}
							active={active}
							others={model.counts.find(
								(x) => x.name === "active without embeddings",
							)}
							hasExperts={model.experts !== null}
						/>
					)}
				</>
			)}
		</div>
	);
}

function ActiveBar({
	total,
	active,
	others,
	hasExperts,
}: {
	total: Count;
	active: Count;
	/** Without the embedding. */
	others: Count | undefined;
	hasExperts: boolean;
}) {
	const [n, whole] = [BigInt(active.value), BigInt(total.value)];
	const share = Number((n * 100_000n) / whole) / 1000;
	const derive = () => {
		const { title, lines } = countDerivation(active);
		return { title, lines: [...lines, shareFormula("active", n, whole)] };
	};
	return (
		<div class={hasExperts ? "active of-experts" : "active"}>
			<svg
				class="data"
				width="100%"
				height="12"
				role="img"
				aria-label={`${percent(n, whole)} of the parameters are active for each token`}
			>
				<rect class="idle" x="0.5" y="0.5" width="calc(100% - 1px)" height="11" rx="2" />
				<rect class="used" x="0" y="0" width={`${share}%`} height="12" rx="2" />
			</svg>
			<p class="caption">
				<strong>
					<NumberButton derive={derive} label="active parameters" data-part="active">
						{active.everyday}
					</NumberButton>{" "}
					active
				</strong>{" "}
				for each token, {percent(n, whole)} (
				<span class="tabular">{grouped(active.value)}</span>)
				{others && (
					<>
						;{" "}
						<NumberButton
							derive={() => countDerivation(others)}
							label="active parameters without embeddings"
							data-part="active-without-embeddings"
						>
							{others.everyday}
						</NumberButton>{" "}
						without the embedding
					</>
				)}
			</p>
		</div>
	);
}

/** A text whose numbers stay with their units. */
const withUnits = (text: string): string =>
	text.replace(/([\dθ×]|RoPE) (?=[\p{L}\dθ])/gu, "$1\u00a0");

/** Facts that "Count it yourself" asks for. */
const ASKED = ["KV cache", "Decode"];

export function FactRows({ model }: { model: ModelData }) {
	const isAsking = useIsAsking();
	const rows = factsOf(model).rows.filter((x) => !isAsking || !ASKED.includes(x.name));
	return (
		<dl class="facts">
			{rows.map((x, i) => (
				<div key={i}>
					<dt>{x.name}</dt>
					<dd>
						<FactValue row={x} model={model} />
						{x.note && <small> {withUnits(x.note)}</small>}
					</dd>
				</div>
			))}
			{!isAsking && <Weights model={model} />}
		</dl>
	);
}

const QUESTIONS: Record<string, string> = {
	Layers: "How many layers?",
	"Hidden size": "How wide is the residual stream?",
	Attention: "How many heads?",
	"Cross-attention": "How many heads in cross-attention?",
	"Head dim": "How wide is a head?",
	"FFN size": "How wide is the FFN?",
	Experts: "How many experts?",
	Vocabulary: "How many tokens are in the vocabulary?",
	"KV cache": "How many bytes does the KV cache take?",
	Decode: "How many FLOPs does decoding a token take?",
};

function FactValue({ row, model }: { row: FactRow; model: ModelData }) {
	const letters = model.letters.filter((x) => row.letters.includes(x.letter));
	if (!letters.length && !row.of.length) return <span>{row.value}</span>;
	const derive = (): Derivation => ({
		title: QUESTIONS[row.name] ?? row.name,
		lines: [
			row.note,
			...letters.flatMap((x) => [
				formula(...x.of),
				// the name of the row need not be said again
				x.says.toLowerCase() !== row.name.toLowerCase() && x.says,
			]),
			...row.of.map((lines) => formula(...lines)),
			row.says,
		],
	});
	return (
		<NumberButton derive={derive} label={row.name} data-fact={row.name}>
			{row.value}
		</NumberButton>
	);
}

function Weights({ model }: { model: ModelData }) {
	const { weights } = factsOf(model);
	const most = weights.reduce((most, x) => (BigInt(x.bytes) > most ? BigInt(x.bytes) : most), 1n);
	const sizes = model.sizes as { dtypes: { name: string; of: [string, string] }[] };
	const derive = (x: WeightFact): Derivation => {
		const known = sizes.dtypes.find((y) => y.name === x.dtype);
		return {
			title: `How large are the weights in ${x.name}?`,
			lines: [
				x.released && "the format of the released weights",
				known && formula(...known.of, `${grouped(x.bytes)} bytes`),
				formula("rounded", `${grouped(x.bytes)} bytes`, shortFileSize(x.bytes)),
				...inBytes(x.bytes),
			],
		};
	};
	return (
		<div class="weights">
			<dt>
				Weights{" "}
				<small>
					{weights.some((x) => x.released) && "● as released · "}GB = 10⁹ bytes, GiB = 2³⁰
				</small>
			</dt>
			<dd>
				{weights.map((x) => (
					<span key={x.dtype}>
						<small>
							{x.name}
							{x.released && <b title="as released"> ●</b>}
						</small>
						<NumberButton
							derive={() => derive(x)}
							label={`weights in ${x.name}${x.released ? ", as released" : ""}`}
							data-weights={x.dtype}
						>
							{shortFileSize(x.bytes)}
						</NumberButton>
						<span class="bar" aria-hidden="true">
							<i
								class="data"
								style={{
									width: `${Number((BigInt(x.bytes) * 1000n) / most) / 10}%`,
								}}
							/>
						</span>
					</span>
				))}
			</dd>
		</div>
	);
}

/** What the sheet is computed from, and what to know about it. */
export function Source({ model }: { model: ModelData }) {
	return (
		<div class="source">
			<CheckpointStatus model={model} />
			{model.source && <p class="caption">Source: {model.source}</p>}
			{!designOf(model).letters.length && (
				<p class="caption" data-part="no-edit">
					There is no <i>Edit</i>:{" "}
					{(model.towers as { parts: unknown[] } | undefined)?.parts.length
						? "the page edits models of text alone"
						: "the page has no closed form of its total"}
					. <code>llamath count --set KEY=VALUE</code> counts any change.
				</p>
			)}
			{model.notes.length > 0 && (
				<ul class="caption notes" aria-label="Notes">
					{model.notes.map((x) => (
						<li key={x}>{x}</li>
					))}
				</ul>
			)}
		</div>
	);
}
