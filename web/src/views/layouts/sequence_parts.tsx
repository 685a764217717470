// Context parallelism: which part of every sequence a rank has, why all have the same work, and
// what they send to each other.
import { useState } from "preact/hooks";
import { SubHeading } from "../../components/section";
import { NumberButton } from "../../components/number";
import { formula, inShort } from "../../lib/derivation";
import { grouped, shortBytes, shortCount } from "../../lib/format";
import { textWidth } from "../../lib/measure_text";
import { onActivate, useRoving } from "../../lib/roving";
import { useWidth } from "../../lib/use_width";
import type { PartsOfSequence, TrainingPlan, TrainingPlans } from "./data";

const UNITS: readonly [bigint, string][] = [
	[2n ** 40n, "2⁴⁰"],
	[2n ** 30n, "2³⁰"],
	[2n ** 20n, "2²⁰"],
	[2n ** 10n, "2¹⁰"],
];
const binary = (bytes: string) =>
	UNITS.filter(([n]) => BigInt(bytes) >= n)
		.slice(0, 1)
		.map(([, name]) =>
			formula(`bytes / ${name}`, `${grouped(bytes)} / ${name}`, shortBytes(bytes)),
		);
const LEFT = 62;
const TOP = 22;

/**
 * The rank that has a part: the first and the last part, the second and the last but one, and so
 * on.
 */
const rankOf = (part: number, parts: number) => Math.min(part, parts - 1 - part);

interface Chosen {
	rank: number;
	choose: (rank: number) => void;
}

/**
 * The causal mask, queries from top to bottom: the parts of one rank together have as many pairs as
 * those of any other.
 */
function Mask({
	parts,
	context,
	rank,
	choose,
	size,
}: Chosen & { parts: number; context: bigint; size: number }) {
	const rove = useRoving(parts / 2);
	const row = size / parts;
	const tokens = Number(context) / parts;
	const rowText = (i: number) => `CP ${rankOf(i, parts)}`;
	const every = Math.max(1, Math.ceil(14 / row));
	return (
		<svg
			width={LEFT + size + 2}
			height={TOP + size + 26}
			viewBox={`0 0 ${LEFT + size + 2} ${TOP + size + 26}`}
			role="group"
			aria-label={`Causal mask of ${grouped(context)} tokens in ${parts} parts`}
			data-roving
		>
			<text class="muted" x={LEFT + size / 2} y={14} text-anchor="middle">
				keys and values →
			</text>
			<rect x={LEFT} y={TOP} width={size} height={size} fill="none" stroke="var(--rule)" />
			{Array.from({ length: parts }, (_, i) => {
				const own = rankOf(i, parts) === rank;
				const [y, next] = [TOP + i * row, TOP + (i + 1) * row];
				const shape = `M${LEFT} ${y}H${LEFT + i * row}L${LEFT + (i + 1) * row} ${next}H${LEFT}Z`;
				const isStop = i < parts / 2;
				return (
					<g
						key={i}
						class="mask-part"
						onClick={() => choose(rankOf(i, parts))}
						{...(isStop
							? {
									...rove(i),
									role: "button",
									"aria-pressed": own,
									"aria-label":
										`CP rank ${i}: tokens ${grouped(i * tokens)} to ` +
										`${grouped((i + 1) * tokens - 1)} and ` +
										`${grouped((parts - 1 - i) * tokens)} to ` +
										`${grouped((parts - i) * tokens - 1)}`,
									onKeyDown: (event: KeyboardEvent) => {
										onActivate(() => choose(i))(event);
										(rove(i).onKeyDown as (e: KeyboardEvent) => void)(event);
									},
								}
							: {})}
					>
						<rect class="hit" x={0} y={y} width={LEFT + size} height={row} />
						<path
							class="data"
							d={shape}
							style={
								own
									? { fill: "var(--c-attn)" }
									: {
											fill:
												"color-mix(in srgb, var(--c-attn) var(--tint), " +
												"var(--panel))",
											stroke: "var(--c-attn)",
											strokeWidth: 0.6,
										}
							}
						/>
						{(row >= 14 || own || (i % every === 0 && parts <= 8)) && (
							<text
								class={own ? "bold" : "muted"}
								x={LEFT - 8}
								y={y + row / 2 + 4}
								text-anchor="end"
							>
								{rowText(i)}
							</text>
						)}
					</g>
				);
			})}
			<text class="muted" x={LEFT} y={TOP + size + 18}>
				queries ↓, one part has {grouped(Math.round(tokens))} tokens
			</text>
		</svg>
	);
}

/** The ranks in a ring: each sends the keys and values that it has to the next one. */
function Ring({
	ranks,
	rank,
	choose,
	received,
	size,
}: Chosen & { ranks: number; received: string; size: number }) {
	const radius = ranks > 24 ? 8 : ranks > 12 ? 11 : 17;
	const [center, far] = [size / 2, size / 2 - radius - 8];
	const at = (i: number, r = far): [number, number] => {
		const angle = (2 * Math.PI * i) / ranks - Math.PI / 2;
		return [center + r * Math.cos(angle), center + r * Math.sin(angle)];
	};
	const step = (2 * Math.PI) / ranks;
	const away = Math.min((radius + 3) / far, step * 0.42);
	const arrow = (i: number) => {
		const angle = (turn: number) => turn * step - Math.PI / 2;
		const [from, to] = [angle(i) + away, angle(i + 1) - away];
		const point = (a: number): [number, number] => [
			center + far * Math.cos(a),
			center + far * Math.sin(a),
		];
		const [a, b] = [point(from), point(to)];
		const head = to + Math.PI / 2;
		const tip = (turn: number) =>
			`${(b[0] - 7 * Math.cos(head + turn)).toFixed(1)} ` +
			`${(b[1] - 7 * Math.sin(head + turn)).toFixed(1)}`;
		return {
			line: `M${a.map((x) => x.toFixed(1)).join(" ")}A${far} ${far} 0 0 1 ${b.map((x) => x.toFixed(1)).join(" ")}`,
			head: `M${b.map((x) => x.toFixed(1)).join(" ")}L${tip(0.45)}L${tip(-0.45)}Z`,
		};
	};
	return (
		<svg
			class="data"
			width={size}
			height={size}
			viewBox={`0 0 ${size} ${size}`}
			role="img"
			aria-label={`${ranks} ranks in a ring, each of which sends its keys and values to the next`}
		>
			{Array.from({ length: ranks }, (_, i) => arrow(i)).map((x, i) => (
				<g key={i}>
					<path d={x.line} fill="none" stroke="var(--c-kv)" stroke-width="2" />
					<path d={x.head} fill="var(--c-kv)" />
				</g>
			))}
			{Array.from({ length: ranks }, (_, i) => {
				const [x, y] = at(i);
				const isText = textWidth(String(i), 12) + 4 <= 2 * radius;
				return (
					<g key={i} onClick={() => choose(i)}>
						<circle
							cx={x}
							cy={y}
							r={radius}
							style={
								i === rank
									? { fill: "var(--ink)" }
									: {
											fill: "var(--panel)",
											stroke: "var(--ramp-4)",
											strokeWidth: 1.5,
										}
							}
						/>
						{isText && (
							<text
								x={x}
								y={y + 4}
								text-anchor="middle"
								class="tabular stage-label"
								style={{ fill: i === rank ? "var(--panel)" : "var(--ink)" }}
							>
								{i}
							</text>
						)}
					</g>
				);
			})}
			<text
				class="bold"
				x={center}
				y={center - 14}
				text-anchor="middle"
				style={{ fill: "var(--c-kv)" }}
			>
				keys, values
			</text>
			<text x={center} y={center + 4} text-anchor="middle" class="tabular">
				{received}
			</text>
			<text class="muted" x={center} y={center + 22} text-anchor="middle">
				to each rank
			</text>
			<text class="muted" x={center} y={center + 38} text-anchor="middle">
				in a layer
			</text>
		</svg>
	);
}

export function SequenceParts({
	parts,
	plan,
	training,
}: {
	parts: PartsOfSequence;
	plan: TrainingPlan;
	training: TrainingPlans;
}) {
	const [ref, width] = useWidth<HTMLDivElement>();
	const [chosen, choose] = useState(0);
	const ranks = parts.parts / 2;
	const rank = Math.min(chosen, ranks - 1);
	const context = BigInt(training.context);
	const tokens = () => ({
		title: "Tokens of a rank",
		lines: [
			formula(
				"tokens of a sequence / CP",
				`${grouped(context)} / ${ranks}`,
				grouped(parts.tokens),
			),
			`In two of ${parts.parts} equal parts: part ${rank} and part ` +
				`${parts.parts - 1 - rank}.`,
		],
	});
	const pairs = () => ({
		title: "Query-key pairs of a rank",
		lines: [
			formula(
				"tokens·(tokens + 1) / 2 / CP",
				`${grouped(context)}·${grouped(context + 1n)} / 2 / ${ranks}`,
				grouped(parts.pairs[rank]!),
			),
			...inShort("pairs", parts.pairs[rank]!),
			"An early part has few earlier keys and a late part many: together, every rank " +
				"has the same number. Layers with a window have fewer.",
		],
	});
	const whole = BigInt(parts.elements) * context * BigInt(parts.bytes);
	const received = () => ({
		title: "Keys and values from other ranks",
		lines: [
			whole === BigInt(parts.gathered) &&
				formula(
					"elements of a token · tokens · bytes",
					`${grouped(parts.elements)}·${grouped(context)}·${parts.bytes}`,
					`${grouped(parts.gathered)} bytes`,
				),
			formula(
				"bytes·(CP − 1) / CP",
				`${grouped(parts.gathered)}·${ranks - 1} / ${ranks}`,
				`${grouped(parts.received)} bytes`,
			),
			"Of one layer and one sequence, on one rank of tensor parallelism.",
			...binary(parts.received),
		],
	});
	const sent = () => ({
		title: "Context parallelism in a step",
		lines: [
			formula("buffers of all layers and microbatches", `${grouped(parts.sent)} bytes`),
			`Gathered in the forward pass${plan.recompute === "full" ? ", when a layer is recomputed" : ""} and in the backward pass, in which their gradients are summed, too: ${plan.recompute === "full" ? 4 : 3} times. Whole buffers, of which a rank has 1 / CP itself.`,
			...binary(parts.sent),
		],
	});
	const size = Math.max(200, Math.min(320, width - LEFT - 4));
	return (
		<figure class="sequence-parts" ref={ref}>
			<SubHeading>
				CP {ranks}: every sequence is divided among {ranks} ranks, which have the same work
			</SubHeading>
			<div class="sequence-pictures">
				<Mask
					parts={parts.parts}
					context={context}
					rank={rank}
					choose={choose}
					size={size}
				/>
				<Ring
					ranks={ranks}
					rank={rank}
					choose={choose}
					received={shortBytes(parts.received)}
					size={Math.min(280, width)}
				/>
				<dl class="matrix-facts">
					<div>
						<dt>Rank {rank} has</dt>
						<dd>
							<NumberButton derive={tokens} label="tokens of a rank" data-cp="tokens">
								{grouped(parts.tokens)}
							</NumberButton>{" "}
							tokens of each sequence, in parts {rank} and {parts.parts - 1 - rank}
						</dd>
					</div>
					<div>
						<dt>Its pairs</dt>
						<dd>
							<NumberButton
								derive={pairs}
								label="query-key pairs of a rank"
								data-cp="pairs"
							>
								{shortCount(parts.pairs[rank]!)}
							</NumberButton>{" "}
							of queries and keys, as all ranks
						</dd>
					</div>
					<div>
						<dt>Receives</dt>
						<dd>
							<NumberButton
								derive={received}
								label="bytes from other ranks"
								data-cp="received"
							>
								{shortBytes(parts.received)}
							</NumberButton>{" "}
							of keys and values in a layer
						</dd>
					</div>
					<div>
						<dt>In a step</dt>
						<dd>
							<NumberButton derive={sent} label="bytes of a step" data-cp="sent">
								{shortBytes(parts.sent)}
							</NumberButton>{" "}
							of buffers, in{" "}
							{(plan.seconds.context! * 1000).toFixed(
								plan.seconds.context! < 0.1 ? 1 : 0,
							)}{" "}
							ms
						</dd>
					</div>
					<div>
						<dt>Weights</dt>
						<dd>
							the same on all {ranks} ranks
							{plan.zero === "0" ? "" : `; ZeRO-${plan.zero} shards over DP × CP`}
						</dd>
					</div>
				</dl>
			</div>
			<p class="caption">
				Each rank keeps the keys and values of its own tokens and passes on those of the
				others, as in ring attention; a gather of all of them sends the same bytes.
			</p>
		</figure>
	);
}
