// The mask of attention as a picture: a row per query, a column per key, filled where the query
// attends to the key.
import { shortTokens } from "../../lib/format";
import type { AttentionKind } from "./attention";

const SIDE = 150;
const LEFT = 34;
const TOP = 22;
/** Chunks beyond this number are drawn as one band. */
const MAX_CHUNKS = 108;
const THINNEST = 2;

/** The outline of the pairs that the mask admits, in units of the picture's side. */
function outline(kind: AttentionKind, tokens: number): string {
	const reach = Number(kind.window ?? kind.chunk ?? tokens) / tokens;
	if (!kind.causal && reach >= 1) return "M0 0H1V1H0z";
	if (reach >= 1) return "M0 0L1 1H0z";
	if (kind.chunk && 1 / reach <= MAX_CHUNKS) {
		const starts = Array.from({ length: Math.ceil(1 / reach) }, (_, i) => i * reach);
		return starts
			.map((x) => `M${x} ${x}L${Math.min(x + reach, 1)} ${Math.min(x + reach, 1)}H${x}z`)
			.join("");
	}
	const back = Math.max(reach, THINNEST / SIDE);
	const ahead = kind.causal ? 0 : back;
	return ahead
		? `M0 0H${ahead}L1 ${1 - ahead}V1H${1 - back}L0 ${back}z`
		: `M0 0L1 1H${1 - back}L0 ${back}z`;
}

/** Scales a path of M, L, H, V and z commands with coordinates in 0…1. */
function scaled(path: string): string {
	return path.replace(
		/([MLHV])([\d.e-]+)(?: ([\d.e-]+))?/g,
		(_, command: string, a: string, b?: string) => {
			const x = (Number(a) * SIDE + (command === "V" ? TOP : LEFT)).toFixed(2);
			return b === undefined
				? `${command}${x}`
				: `${command}${x} ${(Number(b) * SIDE + TOP).toFixed(2)}`;
		},
	);
}

export function Mask({ kind, tokens }: { kind: AttentionKind; tokens: number }) {
	const reach = Number(kind.window ?? kind.chunk ?? tokens);
	const selected =
		kind.selected !== null && Number(kind.selected) < tokens
			? Number(kind.selected) / tokens
			: 0;
	const isWidened = reach < tokens && (reach / tokens) * SIDE < THINNEST;
	const label = `Mask: ${kind.window ? `each token sees the last ${reach}` : kind.chunk ? `each token sees its chunk of ${reach}` : kind.causal ? "each token sees all up to its own" : "each token sees all"}`;
	return (
		<div>
			<svg
				class="mask"
				width={LEFT + SIDE + 2}
				height={TOP + SIDE + 2}
				role="img"
				aria-label={label}
			>
				<text x={LEFT} y={15} class="muted">
					keys →
				</text>
				<text x={LEFT + SIDE} y={15} class="muted tabular" text-anchor="end">
					{shortTokens(tokens)}
				</text>
				<text x={-TOP - 2} y={13} transform="rotate(-90)" class="muted" text-anchor="end">
					queries
				</text>
				<rect x={LEFT} y={TOP} width={SIDE} height={SIDE} class="mask-ground" />
				<path
					class={`data mask-seen${selected ? " mask-chosen" : ""}`}
					d={scaled(outline(kind, tokens))}
				/>
				{selected > 0 && (
					<path class="data mask-seen" d={scaled(`M0 0L${selected} ${selected}H0z`)} />
				)}
				{kind.sinks && (
					<rect class="data mask-sink" x={LEFT - 9} y={TOP} width={6} height={SIDE} />
				)}
			</svg>
			{isWidened && (
				<p class="caption">
					The band is drawn {Math.round(THINNEST / ((reach / tokens) * SIDE))} times as
					wide as to scale.
				</p>
			)}
			{kind.sinks && <p class="caption">The stripe at the left is the sink.</p>}
		</div>
	);
}
