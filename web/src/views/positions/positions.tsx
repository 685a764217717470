// Rotary positions: the wavelength of each pair of dimensions, as trained and as scaled to a longer
// context.
import { scaleLinear, scaleLog } from "../../lib/scales";
import { Measured } from "../../components/measured";
import { NumberButton } from "../../components/number";
import { Section, SubHeading } from "../../components/section";
import type { Digits, ModelData } from "../../lib/data";
import { formula } from "../../lib/derivation";
import { grouped, shortTokens, threeDigits } from "../../lib/format";
import { linePath } from "../../lib/lines";
import { textWidth } from "../../lib/measure_text";
import type { AttentionKind } from "../attention/attention";
import "./positions.css";

interface Rope {
	scaling: string;
	theta: string;
	dim: Digits;
	factor: number | null;
	original: Digits | null;
	attentionFactor: number;
	/** Tokens of a whole turn of each pair; null for one that does not turn. */
	base: (number | null)[];
	used: (number | null)[];
}

const HEIGHT = 200;
const PAD = { left: 64, right: 16, top: 18, bottom: 40 };

const tokens = (x: number): string =>
	x >= 1e6 ? `${threeDigits(x / 1e6)}M` : x >= 1e4 ? `${threeDigits(x / 1e3)}k` : threeDigits(x);
const turning = (list: (number | null)[]): [number, number][] =>
	list.flatMap((x, i): [number, number][] => (x === null ? [] : [[i, x]]));
const slowest = (rope: Rope): number => Math.max(...turning(rope.used).map((x) => x[1]));
const isScaled = (rope: Rope): boolean => rope.used.some((x, i) => x !== rope.base[i]);

function Chart({ rope, context, width }: { rope: Rope; context: number; width: number }) {
	const points = turning(rope.used);
	const x = scaleLinear([0, Math.max(rope.used.length - 1, 1)], [PAD.left, width - PAD.right]);
	const most = Math.max(slowest(rope), context * 2, ...turning(rope.base).map((y) => y[1]));
	const y = scaleLog([4, most * 1.3], [HEIGHT - PAD.bottom, PAD.top]);
	const path = (points: readonly [number, number][]) =>
		linePath(points.map((d) => [x(d[0]), y(Math.max(d[1], 4))]));
	const ticks = Array.from({ length: 12 }, (_, i) => 10 ** i).filter(
		(n) => n >= 4 && n <= most * 1.3,
	);
	const limits: [number, string][] = [
		...(rope.original && Number(rope.original) !== context
			? [[Number(rope.original), "trained context"] as [number, string]]
			: []),
		...(context ? [[context, "context length"] as [number, string]] : []),
	];
	return (
		<svg
			width={width}
			height={HEIGHT}
			role="img"
			aria-label={`Wavelengths of ${rope.used.length} rotary pairs, from ${tokens(points[0]?.[1] ?? 0)} to ${tokens(slowest(rope))} tokens`}
		>
			{ticks.map((n) => (
				<g key={n}>
					<path d={`M${PAD.left} ${y(n)}H${width - PAD.right}`} stroke="var(--rule)" />
					<text x={PAD.left - 8} y={y(n) + 4} text-anchor="end" class="muted tabular">
						{tokens(n)}
					</text>
				</g>
			))}
			{limits.map(([n, name]) => (
				<g key={name}>
					<path
						d={`M${PAD.left} ${y(n)}H${width - PAD.right}`}
						stroke="var(--ink)"
						stroke-dasharray="5 4"
					/>
					<text x={PAD.left + 8} y={y(n) - 6}>
						{name}: {shortTokens(n)} tokens
					</text>
				</g>
			))}
			{isScaled(rope) && <path class="rope-base" d={path(turning(rope.base))} />}
			<path class="rope-used data" d={path(points)} />
			{points.map(([i, n]) => (
				<circle
					key={i}
					class="data"
					cx={x(i)}
					cy={y(Math.max(n, 4))}
					r={rope.used.length > 48 ? 2 : 3}
					fill="var(--c-attn)"
				/>
			))}
			<text x={PAD.left} y={HEIGHT - 8} class="muted">
				pair 0: fastest
			</text>
			<text x={width - PAD.right} y={HEIGHT - 8} class="muted" text-anchor="end">
				pair {rope.used.length - 1}
			</text>
			<text x={PAD.left - 8} y={12} class="muted" text-anchor="end">
				{textWidth("tokens a turn") < PAD.left - 8 ? "tokens a turn" : "tokens"}
			</text>
		</svg>
	);
}

function describe(rope: Rope): string {
	if (rope.scaling === "none")
		return `θ = ${rope.theta}, ${grouped(rope.dim)} dimensions of each head`;
	const factor = rope.factor === null ? "" : ` by ${rope.factor}`;
	return `θ = ${rope.theta}, ${grouped(rope.dim)} dimensions of each head, ${rope.scaling} scaling${factor}${rope.original ? ` of ${shortTokens(rope.original)} tokens` : ""}`;
}

function finding(ropes: Rope[], context: number): string {
	const rope = ropes.find(isScaled) ?? ropes[ropes.length - 1]!;
	if (isScaled(rope)) {
		const ratios = rope.used.map((x, i) =>
			x === null || rope.base[i] === null ? 1 : x / rope.base[i]!,
		);
		const kept = ratios.filter((x) => Math.abs(x - 1) < 1e-5).length;
		const most = Math.max(...ratios);
		const scaling = `${rope.scaling[0]!.toUpperCase()}${rope.scaling.slice(1)} scaling`;
		return kept
			? `${scaling} keeps the ${kept} fastest pairs and slows the others by up to ` +
					`${threeDigits(most)} times`
			: `${scaling} slows the pairs by up to ${threeDigits(most)} times`;
	}
	const within = turning(rope.used).filter((x) => x[1] <= context).length;
	return context
		? `${within} of ${rope.used.length} pairs turn at least once within the context`
		: `The slowest pair turns once in ${tokens(slowest(rope))} tokens`;
}

export function PositionsSection({ model }: { model: ModelData }) {
	const { ropes, kinds, context } = model.attention as {
		ropes: Rope[];
		kinds: (AttentionKind & { rope: number | null })[];
		context: Digits;
	};
	if (!ropes.length) return null;
	const limit = Number(context || 0);
	const without = kinds.filter((x) => x.rope === null && x.positions === "none");
	return (
		<Section
			id="positions"
			topic="Rotary positions (RoPE)"
			title={finding(ropes, limit)}
			lead={
				<>
					Each pair of dimensions of a query and a key turns with its position; the line
					shows after how many tokens a pair has turned once. Fast pairs tell neighbors
					apart, slow ones distant tokens.
					{without.length > 0 &&
						` ${without.map((x) => `${grouped(x.layers)} layers (${x.where})`).join(", ")} have no positional encoding.`}
				</>
			}
		>
			<div class={ropes.length === 1 ? "rope-charts beside-text" : "rope-charts"}>
				{ropes.map((rope, i) => {
					const layers = kinds.filter((x) => x.rope === i);
					const last = turning(rope.used).at(-1);
					return (
						<figure key={i}>
							<figcaption>
								<SubHeading>
									{ropes.length > 1
										? layers
												.map(
													(x) =>
														`${grouped(x.layers)} layers (${x.where})`,
												)
												.join(", ")
										: "All layers with RoPE"}
								</SubHeading>
								<p class="caption">{describe(rope)}</p>
							</figcaption>
							<Measured>
								{(width) => <Chart rope={rope} context={limit} width={width} />}
							</Measured>
							<p class="caption">
								{isScaled(rope) && "Thin line: without scaling. "}
								{last && (
									<>
										Slowest pair:{" "}
										<NumberButton
											label="tokens of a turn of the slowest pair"
											derive={() => ({
												title: "The slowest rotary pair",
												lines: [
													formula(
														"2π / frequency",
														isScaled(rope)
															? `frequency after ${rope.scaling} ` +
																	"scaling"
															: "2π · θ^(2i / dim) = 2π · " +
																	`${rope.theta}^(${2 * last[0]} / ` +
																	`${rope.dim})`,
														`${threeDigits(last[1])} tokens`,
													),
													`${rope.scaling === "none" ? "Without scaling" : `Scaling: ${rope.scaling}`}, i = ${last[0]}.`,
												],
											})}
										>
											{tokens(last[1])}
										</NumberButton>{" "}
										tokens a turn.
									</>
								)}
								{rope.attentionFactor !== 1 &&
									` Cosines and sines are multiplied by ${rope.attentionFactor}.`}
							</p>
							<details>
								<summary>Wavelengths of all pairs</summary>
								<div
									class="scroll"
									tabIndex={0}
									role="region"
									aria-label="wavelengths of all pairs"
								>
									<table>
										<thead>
											<tr>
												<th scope="col">pair</th>
												<th scope="col" class="n">
													without scaling
												</th>
												<th scope="col" class="n">
													as used
												</th>
											</tr>
										</thead>
										<tbody>
											{rope.used.map((x, pair) => (
												<tr key={pair}>
													<th scope="row">{pair}</th>
													<td class="n">
														{rope.base[pair] ?? "does not turn"}
													</td>
													<td class="n">{x ?? "does not turn"}</td>
												</tr>
											))}
										</tbody>
									</table>
								</div>
							</details>
						</figure>
					);
				})}
			</div>
		</Section>
	);
}
