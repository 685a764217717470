// The difference of two models, as src/llamath/web/page_data/page_data.py writes it.
import { data, type Digits } from "../../lib/data";
import { inWords } from "../../lib/format";

export interface Cause {
	/** A letter, or a kind of structure. */
	kind: string;
	cause: string;
	label: string;
	where: string;
	delta: Digits;
	groups: [group: string, delta: Digits][];
	of: string[][];
}

export interface WeightEntry {
	shape: Digits[];
	dims: string[];
	copies: Digits;
	parameters: Digits;
	tied: boolean;
	lookup: boolean;
}

export interface WeightPair {
	path: string;
	group: string;
	a: WeightEntry | null;
	b: WeightEntry | null;
	delta: Digits;
}

export interface Causes {
	totals: [Digits, Digits];
	delta: Digits;
	/** Of each total: in letters, in numbers. */
	formulas: [symbols: string, numbers: string][];
	method: string;
	causes: Cause[];
}

export interface Difference extends Causes {
	weights: WeightPair[];
	shared: { weights: string[]; parameters: Digits };
	config: { key: string; a: string; b: string; moves: string }[];
	agreed: string[];
}

export const difference = data.difference as Difference;

export const isSameModel = ({ weights, config }: Difference): boolean =>
	!weights.length && !config.length;

const magnitude = (n: Digits) => (BigInt(n) < 0n ? -BigInt(n) : BigInt(n));

function causeName({ kind, cause, delta }: Cause): string {
	return kind === "V" ? `a ${BigInt(delta) > 0n ? "larger" : "smaller"} ${cause}` : cause;
}

/**
 * Why the second model has its size: the largest causes in its direction, and the largest against
 * it.
 */
function causesInWords({ causes, delta }: Causes): string {
	const isMore = BigInt(delta) > 0n;
	const bySize = [...causes].sort((a, b) => (magnitude(a.delta) < magnitude(b.delta) ? 1 : -1));
	const along = bySize.filter((x) => BigInt(x.delta) > 0n === isMore);
	const against = bySize.find((x) => BigInt(x.delta) > 0n !== isMore);
	// what is less than a hundredth of the largest cause does not explain a size
	const matters = (x: Cause) => magnitude(x.delta) * 100n >= magnitude(bySize[0]!.delta);
	const most = inWords(along.filter(matters).slice(0, 2).map(causeName));
	return against && matters(against)
		? `${most}, ${isMore ? "in part offset by" : "in spite of"} ${causeName(against)}`
		: most;
}

/** A title: why the second model has its size; the sizes are those of both. */
export const whyInWords = (found: Causes, [first, second]: readonly [string, string]): string =>
	!found.causes.length || found.delta === "0"
		? "The same number of parameters, for different reasons"
		: `Why ${second} and not ${first}: ${causesInWords(found)}`;

/** What a waterfall shows, and how its causes were found. */
export const howInWords = (method: string, [first, second]: readonly [string, string]): string =>
	`From ${first} to ${second}, one cause at a time: ${method}`;
