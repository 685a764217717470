// The fills of a memory picture: weights grey, KV cache in its colour, activations hatched,
// overhead dotted.
import type { Part } from "../../lib/sizing/gpu_memory";

export const PART_FILLS: Record<Part, string> = {
	weights: "var(--ramp-2)",
	gradients: "var(--ramp-3)",
	master: "var(--ramp-4)",
	optimizer: "var(--ramp-1)",
	cache: "var(--c-kv)",
	activations: "url(#hatched)",
	logits: "url(#crossed)",
	overhead: "url(#dotted)",
};

export function Patterns() {
	return (
		<defs>
			<pattern
				id="hatched"
				width="7"
				height="7"
				patternUnits="userSpaceOnUse"
				patternTransform="rotate(45)"
			>
				<rect width="7" height="7" fill="var(--panel)" />
				<path d="M0 0v7" stroke="var(--ink-2)" stroke-width="2.4" />
			</pattern>
			<pattern id="crossed" width="7" height="7" patternUnits="userSpaceOnUse">
				<rect width="7" height="7" fill="var(--panel)" />
				<path d="M0 0h7M0 0v7" stroke="var(--ink-2)" stroke-width="1.6" />
			</pattern>
			<pattern id="dotted" width="6" height="6" patternUnits="userSpaceOnUse">
				<rect width="6" height="6" fill="var(--panel)" />
				<circle cx="3" cy="3" r="1.3" fill="var(--ink-2)" />
			</pattern>
			<pattern
				id="beyond"
				width="8"
				height="8"
				patternUnits="userSpaceOnUse"
				patternTransform="rotate(-45)"
			>
				<path d="M0 0v8" stroke="var(--paper)" stroke-width="3" />
			</pattern>
		</defs>
	);
}

/** The key of a part in HTML. */
export function PartSwatch({ part }: { part: Part }) {
	return (
		<svg class="part-swatch data" width="14" height="14" aria-hidden="true">
			<rect
				x=".5"
				y=".5"
				width="13"
				height="13"
				fill={PART_FILLS[part]}
				stroke="var(--edge)"
			/>
		</svg>
	);
}
