// Attention: what a token leaves in the KV cache under four kinds of attention, and the mask of
// each kind of layer.
import { useMemo } from "preact/hooks";
import { NumberButton } from "../../components/number";
import { Section, SubHeading } from "../../components/section";
import type { Digits, ModelData } from "../../lib/data";
import { derivation, formula, type Derivation } from "../../lib/derivation";
import { value, type Expression } from "../../lib/expressions";
import { grouped, percent } from "../../lib/format";
import { kvVariables, type KvVariables } from "../../lib/kv_variables";
import { useAppState } from "../../lib/state";
import { useWidth } from "../../lib/use_width";
import { HeadWiring } from "./head_wiring";
import { Mask } from "./mask";
import "./attention.css";

export interface AttentionKind {
	kind: string;
	heads: Digits;
	kvHeads: Digits;
	keySize: Digits;
	valueSize: Digits;
	rows: { heads: Digits; size: Digits; of: string[] }[];
	cached: Expression | null;
	window: Digits | null;
	chunk: Digits | null;
	causal: boolean;
	/** The keys that an indexer chooses for each query, at most. */
	selected: Digits | null;
	sinks: boolean;
	softcap: number | null;
	positions: string;
	pairs: Expression;
	layers: Digits;
	where: string;
}

interface Alternative {
	kind: string;
	heads: Digits;
	kvHeads: Digits;
	own: boolean;
	note: string;
	cached: Expression;
	elements: string[];
}

interface Attention {
	kinds: AttentionKind[];
	of: Digits;
	alternatives: Alternative[];
}

const LONG_NAMES: Record<string, string> = {
	MHA: "multi-head: each query head has its own keys and values",
	GQA: "grouped-query: several query heads share a KV head",
	MQA: "multi-query: all query heads share one KV head",
	MLA: "multi-head latent: all heads read one compressed vector",
};

export const maskName = (x: AttentionKind): string => {
	if (x.selected) return `at most ${grouped(x.selected)} keys, chosen by an indexer`;
	if (x.window) return `sliding window of ${grouped(x.window)}`;
	if (x.chunk) return `chunks of ${grouped(x.chunk)}`;
	return x.causal ? "causal: all tokens up to its own" : "bidirectional: all tokens";
};

/** A ratio in words: "a quarter of", "1.4% of", "as much as". */
export function ratioInWords(part: bigint, whole: bigint): string {
	if (part === whole) return "as much as";
	const words: Record<string, string> = {
		2: "half of",
		3: "a third of",
		4: "a quarter of",
		8: "an eighth of",
		16: "a sixteenth of",
	};
	const times = whole / part;
	if (part < whole && times * part === whole && words[String(times)])
		return words[String(times)]!;
	return `${percent(part, whole)} of`;
}

function finding(attention: Attention, kv: KvVariables): string {
	const [first] = attention.kinds;
	const own = attention.alternatives.find((x) => x.own);
	const all = attention.alternatives.find((x) => x.kind === "MHA");
	const restricted = attention.kinds.filter((x) => x.window || x.chunk || x.selected);
	const layers = (list: AttentionKind[]) => list.reduce((n, x) => n + BigInt(x.layers), 0n);
	const partial =
		layers(attention.kinds) !== BigInt(attention.of)
			? `${grouped(layers(attention.kinds))} of ${grouped(attention.of)} layers use attention`
			: "";
	const masked =
		restricted.length && restricted.length < attention.kinds.length
			? `${grouped(layers(restricted))} of ${grouped(attention.of)} layers see only ${restricted[0]!.window ? `the last ${grouped(restricted[0]!.window)} tokens` : maskName(restricted[0]!)}`
			: "";
	const shared =
		!own || !all
			? `${grouped(first!.heads)} query heads`
			: own.kind === "MHA"
				? "Each query head keeps its own keys and values"
				: `${own.kind} keeps ` +
					`${ratioInWords(value(own.cached, kv), value(all.cached, kv))} what MHA ` +
					"would keep";
	return [shared, partial || masked].filter(Boolean).join("; ");
}

/** The bytes that a token adds to the cache of one layer, with their derivation. */
function cachedBytes(
	title: string,
	form: Expression,
	elements: string[],
	kv: KvVariables,
): () => Derivation {
	return () => ({
		title,
		lines: [
			formula("elements", ...elements),
			...derivation(form, kv, "bytes per token and layer"),
		],
	});
}

function Card({ x, most, kv }: { x: Alternative; most: bigint; kv: KvVariables }) {
	const [ref, width] = useWidth<HTMLDivElement>();
	const bytes = value(x.cached, kv);
	return (
		<div class={`attention-card${x.own ? " own" : ""}`} ref={ref}>
			<SubHeading>
				<span>
					{x.kind}
					{x.own && <em>this model</em>}
				</span>
				<small>{LONG_NAMES[x.kind]}</small>
			</SubHeading>
			{width > 0 && (
				<HeadWiring
					width={width}
					heads={Number(x.heads)}
					kvHeads={Number(x.kvHeads)}
					latent={x.kind === "MLA"}
				/>
			)}
			<p class="attention-bytes">
				<NumberButton
					label={`KV cache of a token and layer with ${x.kind}`}
					derive={cachedBytes(
						`${x.kind}: KV cache per token and layer`,
						x.cached,
						x.elements,
						kv,
					)}
					data-cached={x.kind}
				>
					{grouped(bytes)}
				</NumberButton>{" "}
				<small>bytes per token and layer</small>
			</p>
			<div
				class="attention-bar data"
				style={{ width: `${(100 * Number(bytes)) / Number(most)}%` }}
			/>
			<p class="caption">
				{x.own
					? `${grouped(x.heads)} query heads, ${x.kind === "MLA" ? "one latent" : `${grouped(x.kvHeads)} KV head${x.kvHeads === "1" ? "" : "s"}`}`
					: `The same ${grouped(x.heads)} query heads ${x.note}`}
			</p>
		</div>
	);
}

function Kind({
	x,
	of,
	tokens,
	kv,
}: {
	x: AttentionKind;
	of: Digits;
	tokens: bigint;
	kv: KvVariables;
}) {
	const pairs = value(x.pairs, { T: tokens });
	const full = (tokens * (tokens + 1n)) / 2n;
	const heads =
		x.cached === null
			? `${grouped(x.heads)} query heads; reads keys and values of another layer`
			: x.kind === "MLA"
				? `MLA, ${grouped(x.heads)} heads, a latent of ${grouped(x.rows[0]!.size)}`
				: `${x.kind}, ${grouped(x.heads)} query and ${grouped(x.kvHeads)} KV head${x.kvHeads === "1" ? "" : "s"} of ${grouped(x.keySize)}`;
	const extras = [
		x.positions === "none" && "no positional encoding",
		x.positions === "ALiBi" && "ALiBi",
		x.sinks && "one learned sink per head",
		x.softcap !== null && `scores capped at ±${x.softcap}`,
	]
		.filter(Boolean)
		.join(", ");
	return (
		<figure class="mask-card">
			<Mask kind={x} tokens={Number(tokens)} />
			<figcaption>
				<SubHeading>
					{grouped(x.layers)} of {grouped(of)} layers
					{x.where && <small> ({x.where})</small>}
				</SubHeading>
				<p>{maskName(x)}</p>
				<p class="caption">
					{heads}
					{extras && `; ${extras}`}
				</p>
				<p class="caption">
					<NumberButton
						label="query-key pairs per head"
						derive={() => ({
							title: "Query-key pairs per head",
							lines: derivation(x.pairs, { T: tokens }, "pairs"),
						})}
						data-pairs={x.where}
					>
						{grouped(pairs)}
					</NumberButton>{" "}
					query-key pairs per head in a prompt of {grouped(tokens)} tokens
					{pairs !== full && `, ${percent(pairs, full)} of a causal mask`}
				</p>
				{x.cached !== null && (
					<p class="caption">
						<NumberButton
							label="KV cache per token and layer"
							derive={cachedBytes(
								"KV cache per token and layer",
								x.cached,
								[
									x.rows.map((y) => y.of[0]).join(" + "),
									x.rows.map((y) => y.of[1]).join(" + "),
								],
								kv,
							)}
						>
							{grouped(value(x.cached, kv))}
						</NumberButton>{" "}
						bytes cached per token and layer
						{x.window || x.chunk
							? `, for at most ${grouped(x.window ?? x.chunk!)} tokens`
							: ""}
					</p>
				)}
			</figcaption>
		</figure>
	);
}

export function AttentionSection({ model }: { model: ModelData }) {
	const state = useAppState("context", "kv");
	const attention = model.attention as Attention;
	const kv = kvVariables(model, state);
	const cards = useMemo(() => {
		const most = attention.alternatives.reduce(
			(n, x) => (value(x.cached, kv) > n ? value(x.cached, kv) : n),
			1n,
		);
		return attention.alternatives.map((x) => <Card key={x.kind} x={x} most={most} kv={kv} />);
	}, [attention, state.kv]);
	if (!attention.kinds.length) return null;
	const tokens = state.context;
	return (
		<Section
			id="attention"
			topic="Attention and its KV cache"
			title={finding(attention, kv)}
			lead={
				attention.alternatives.length > 0 &&
				"Query heads above, what one token leaves in the KV cache of one layer " +
					"below; the bars are to one scale."
			}
		>
			<div class={cards.length && attention.kinds.length === 1 ? "beside-mask" : undefined}>
				<div class="attention-cards">{cards}</div>
				<div class="masks">
					<SubHeading>The mask of {grouped(tokens)} tokens</SubHeading>
					<div class="mask-cards">
						{attention.kinds.map((x) => (
							<Kind
								key={`${x.where} ${x.layers}`}
								x={x}
								of={attention.of}
								tokens={tokens}
								kv={kv}
							/>
						))}
					</div>
				</div>
			</div>
		</Section>
	);
}
