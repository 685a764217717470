// The classic questions about a model, as other dimensions of it, each of which keeps what was edited
// before; those that change nothing or make no model are left out.
import { evaluateDesign, type Design, type Dimensions } from "../../lib/design";
import { editedDimensions, withValues } from "../../lib/editing";
import { grouped } from "../../lib/format";

type Values = Record<string, bigint>;
type Change = Record<string, bigint | boolean>;

export interface Question {
	name: string;
	/** The dimensions that it changes from the published ones: `hidden size 4,096 → 8,192`. */
	title: string;
	/** The dimensions that it asks for, of a model that may be edited already. */
	to: (now: Dimensions) => Change;
}

/** The letters of all widths of a layer: the stream's, and those inside of FFNs and experts. */
const WIDTHS = ["d", "F", "Fd", "Fe", "Fs", "i"];

/** Twice the heads of the same size read a stream of twice the width, as in larger models of a family. */
function twiceAsWide(own: Values): Values | null {
	if (!own.d) return null;
	const heads = own.K ? (own.K === own.H ? ["H", "K"] : ["H"]) : [];
	const doubled = [...WIDTHS, ...heads].filter((x) => own[x]);
	return Object.fromEntries(doubled.map((x) => [x, 2n * own[x]!] as const));
}

/** By the published dimensions, and by those that the model has now. */
const QUESTIONS: [name: string, to: (own: Values, now: Values) => Partial<Values> | null][] = [
	["multi-head attention", ({ K }, { H }) => (K && H ? { K: H } : null)],
	["one KV head", ({ K }) => (K ? { K: 1n } : null)],
	["a vocabulary of 32,000", ({ V }) => (V ? { V: 32000n } : null)],
	["twice as deep", ({ L }) => (L ? { L: 2n * L } : null)],
	["half as deep", ({ L }) => (L && L % 2n === 0n ? { L: L / 2n } : null)],
	["twice as wide", twiceAsWide],
	// of latent attention, whose rotary key is of p numbers
	["half the KV latent", ({ r, p }) => (r && p && r % 2n === 0n ? { r: r / 2n } : null)],
	["twice as many experts", ({ E }) => (E ? { E: 2n * E } : null)],
	["all experts at once", ({ k }, { E }) => (E && k ? { k: E } : null)],
];

/** Whether dimensions are those that a change asks for. */
export const hasChange = ({ values, tied }: Dimensions, to: Change): boolean =>
	Object.entries(to).every(([name, n]) => (name === "tied" ? tied : values[name]) === n);

/** The published dimensions in the place of those of a change. */
export const withoutChange = (own: Dimensions, to: Change): Change =>
	Object.fromEntries(
		Object.keys(to).map((name) => [name, name === "tied" ? own.tied! : own.values[name]!]),
	);

const changesOf = ({ letters }: Design, own: Values, to: Change): string =>
	letters
		.filter(({ letter }) => typeof to[letter] === "bigint" && to[letter] !== own[letter])
		.map(
			({ letter, says, key }) =>
				`${says || key} ${grouped(own[letter]!)} → ${grouped(to[letter] as bigint)}`,
		)
		.join(", ");

export function classicQuestions(design: Design): Question[] {
	const own = editedDimensions(design, "");
	const letters = new Set(design.letters.map((x) => x.letter));
	const found = QUESTIONS.map(([name, to]): Question => ({
		...{ name, title: "" },
		to: (now) => (to(own.values, now.values) ?? {}) as Values,
	}));
	if (own.tied !== null)
		found.push({
			...{ name: own.tied ? "an untied head" : "a tied head", title: "" },
			to: () => ({ tied: !own.tied }),
		});
	return found.filter((x) => {
		const to = x.to(own);
		x.title = changesOf(design, own.values, to);
		const isKnown = Object.keys(to).every((name) => name === "tied" || letters.has(name));
		if (!isKnown || hasChange(own, to)) return false;
		const asked = editedDimensions(design, withValues(design, "", to));
		return !evaluateDesign(design, asked).broken.length;
	});
}
