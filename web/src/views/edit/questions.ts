// The classic questions about a model, as other dimensions of it; those that change nothing or make no
// model are left out.
import { data } from "../../lib/data";
import {
	designedModels,
	encodeSizes,
	evaluateDesign,
	type Design,
	type Dimensions,
} from "../../lib/design";
import { editedDimensions, withValues } from "../../lib/editing";
import type { State } from "../../lib/state";

export interface Question {
	name: string;
	/** The dimensions as the address has them. */
	sizes: string;
	to: Dimensions;
}

type Values = Record<string, bigint>;
const QUESTIONS: [name: string, to: (x: Values) => Partial<Values> | null][] = [
	["multi-head attention", ({ H, K }) => (K && H ? { K: H } : null)],
	["one KV head", ({ K }) => (K ? { K: 1n } : null)],
	["a vocabulary of 32,000", ({ V }) => (V ? { V: 32000n } : null)],
	["twice as deep", ({ L }) => (L ? { L: 2n * L } : null)],
	["half as deep", ({ L }) => (L && L % 2n === 0n ? { L: L / 2n } : null)],
	["twice as wide", ({ d, F }) => (d ? { d: 2n * d, ...(F && { F: 2n * F }) } : null)],
	["twice as many experts", ({ E }) => (E ? { E: 2n * E } : null)],
	["all experts at once", ({ E, k }) => (E && k ? { k: E } : null)],
];

export function classicQuestions(design: Design): Question[] {
	const own = editedDimensions(design, "");
	const letters = new Set(design.letters.map((x) => x.letter));
	const asked = QUESTIONS.map(([name, to]) => ({ name, values: to(own.values) }));
	const found = asked.flatMap(({ name, values }) =>
		values && Object.keys(values).every((x) => letters.has(x))
			? [{ name, sizes: withValues(design, "", values as Values) }]
			: [],
	);
	if (own.tied !== null)
		found.push({
			name: own.tied ? "an untied head" : "a tied head",
			sizes: withValues(design, "", { tied: !own.tied }),
		});
	return found
		.map((x) => ({ ...x, to: editedDimensions(design, x.sizes) }))
		.filter((x) => x.sizes !== "" && !evaluateDesign(design, x.to).broken.length);
}

const MIXTURE = { like: "mixtral", E: 8n, k: 2n };

/**
 * The state in which a dense model is counted as a mixture of 8 experts, 2 of them for a token, by the
 * form of another family; null if its dimensions are not those of that family.
 */
export function asMixture(design: Design): Partial<State> | null {
	const other = designedModels(data).find((x) => x.like === MIXTURE.like);
	const own = editedDimensions(design, "");
	const isDense = !("E" in own.values) && DENSE.includes(design.type);
	if (!other || !isDense) return null;
	const { E, k } = MIXTURE;
	const values: Values = { ...own.values, E, k };
	if (!other.design.letters.every((x) => x.letter in values)) return null;
	const sizes = encodeSizes({
		values: Object.fromEntries(other.design.letters.map((x) => [x.letter, values[x.letter]!])),
		tied: other.design.tied === null ? null : (own.tied ?? false),
	});
	return { view: "design", like: MIXTURE.like, edit: "", sizes, section: "" };
}

/** Types whose layers are Mixtral's but for the experts. */
const DENSE = ["llama", "mistral"];
