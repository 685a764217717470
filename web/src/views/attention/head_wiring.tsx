// Query heads above, KV heads or the latent below, each query head joined to the one that it reads.
interface Props {
	width: number;
	heads: number;
	kvHeads: number;
	latent: boolean;
}

const HEIGHT = 128;
const MARGIN = 6;
const [QUERY_Y, CACHE_Y] = [15, 92];
/** With more heads, circles would touch. */
const MAX_CIRCLES = 40;

export function HeadWiring({ width, heads, kvHeads, latent }: Props) {
	const step = (width - 2 * MARGIN) / Math.max(heads - 1, 1);
	const queryX = (i: number) => MARGIN + i * step;
	const shared = heads / kvHeads;
	const cacheX = (i: number) => MARGIN + ((i + 0.5) * shared - 0.5) * step;
	const few = heads <= MAX_CIRCLES && step >= 8;
	const wires = Array.from({ length: heads }, (_, i) => {
		const [x, to] = [queryX(i), cacheX(Math.floor(i / shared))];
		return `M${x} ${QUERY_Y + 5}C${x} 58 ${to} 58 ${to} ${CACHE_Y}`;
	}).join("");
	const half = Math.max(1, Math.min(3.4, (step * shared - 2) / 2));
	return (
		<svg
			width={width}
			height={HEIGHT}
			role="img"
			aria-label={`${heads} query heads read ${latent ? "one latent" : `${kvHeads} KV ${kvHeads === 1 ? "head" : "heads"}`}`}
		>
			<path
				d={wires}
				fill="none"
				stroke="var(--c-attn)"
				stroke-width={few ? 1.2 : 0.7}
				class="data"
			/>
			{Array.from({ length: heads }, (_, i) =>
				few ? (
					<circle
						key={i}
						class="data"
						cx={queryX(i)}
						cy={QUERY_Y}
						r={3.6}
						fill="var(--c-attn)"
					/>
				) : (
					<rect
						key={i}
						class="data"
						x={queryX(i) - Math.min(0.8, step / 3)}
						y={QUERY_Y - 5}
						width={Math.min(1.6, step / 1.5)}
						height={9}
						fill="var(--c-attn)"
					/>
				),
			)}
			{latent ? (
				<rect
					class="data"
					x={width / 2 - 10}
					y={CACHE_Y}
					width={20}
					height={34}
					fill="var(--c-kv)"
				/>
			) : (
				Array.from({ length: kvHeads }, (_, i) => (
					<g key={i} class="data" fill="var(--c-kv)">
						<rect x={cacheX(i) - half} y={CACHE_Y} width={half * 0.9} height={34} />
						<rect
							x={cacheX(i) + half * 0.1}
							y={CACHE_Y}
							width={half * 0.9}
							height={34}
						/>
					</g>
				))
			)}
		</svg>
	);
}
