// Why an edited model has another size: its dimensions applied one after the other, in the order and by
// the method of analysis/understand/diff/causes.py, to the form of the family.
import { data, type Digits } from "./data";
import { groupForms, totalForm, type Design, type Dimensions } from "./design";
import { notation, value } from "./expressions";
import { grouped, signed } from "./format";

export interface EditCause {
	/** A letter, "Hh" for heads and their size, or "head". */
	kind: string;
	cause: string;
	label: string;
	where: string;
	delta: Digits;
	groups: [group: string, delta: Digits][];
	of: string[][];
}

type Values = Record<string, bigint>;

/** The letters that change, in order, with those that change together. */
function stepsBetween(a: Values, b: Values): [kind: string, letters: string[]][] {
	const order = [...(data.words.order as string[])];
	const changed = new Set(Object.keys(a).filter((x) => x in b && a[x] !== b[x]));
	const heads = changed.has("H") ? ["H"] : [];
	const isMultiHead = [a, b].every((x) => "K" in x && x.K === x.H);
	if (heads.length && isMultiHead) heads.push("K");
	const isSwapped = heads.length > 0 && changed.has("h") && a.H! * a.h! === b.H! * b.h!;
	if (isSwapped) heads.push("h");
	order.push(...[...changed].filter((x) => !order.includes(x)).sort());
	if (changed.has("Fe") && changed.has("E") && a.Fe! < b.Fe! && a.E! > b.E!) {
		order.splice(order.indexOf("Fe"), 1);
		order.splice(order.indexOf("E") + 1, 0, "Fe");
	}
	return order.flatMap((letter): [string, string[]][] =>
		letter === "H" && heads.length
			? [[isSwapped ? "Hh" : "H", heads]]
			: changed.has(letter) && !heads.includes(letter)
				? [[letter, [letter]]]
				: [],
	);
}

/** The parts of the difference between two choices of dimensions of one family. */
export function editCauses(design: Design, from: Dimensions, to: Dimensions): EditCause[] {
	const countsOf = (tied: boolean | null) => design.totals.find((x) => x.tied === tied)!;
	const formOf = (tied: boolean | null) => totalForm(countsOf(tied));
	const totalOf = (x: Dimensions) => value(formOf(x.tied), x.values);
	const isReversed = totalOf(from) > totalOf(to);
	const [a, b] = isReversed ? [to, from] : [from, to];
	const groupsOf = ({ values, tied }: Dimensions) =>
		new Map(groupForms(countsOf(tied)).map((x) => [x.name, value(x.form, values)]));
	let now: Dimensions = { ...a, values: { ...a.values } };
	const causes: EditCause[] = [];
	const step = (kind: string, label: string, next: Dimensions, lines: string[][]) => {
		const before = now;
		const [own, other] = [groupsOf(before), groupsOf(next)];
		const sign = isReversed ? -1n : 1n;
		const groups = [...new Set([...own.keys(), ...other.keys()])]
			.map((x): [string, bigint] => [x, sign * ((other.get(x) ?? 0n) - (own.get(x) ?? 0n))])
			.filter((x) => x[1]);
		const delta = sign * (totalOf(next) - totalOf(before));
		const form = formOf(before.tied);
		if (delta)
			causes.push({
				kind,
				cause: label,
				label,
				where: "",
				delta: String(delta),
				groups: groups.map(([group, n]) => [group, String(n)]),
				// written out when it is asked for
				get of() {
					return [
						...lines,
						[notation(form, before.values, false), grouped(totalOf(before))],
						[notation(formOf(next.tied), next.values, false), grouped(totalOf(next))],
						["difference", signed(delta)],
					];
				},
			});
		now = next;
	};
	const changes = data.words.changes as unknown as Record<string, [string, string]>;
	for (const [kind, letters] of stepsBetween(a.values, b.values)) {
		const first = letters[0]!;
		const [low, high] = [a.values[first]!, b.values[first]!];
		const [own, other] = isReversed ? [high, low] : [low, high];
		const dimension = design.letters.find((x) => x.letter === kind);
		const name = dimension?.says || dimension?.key || kind;
		const word = changes[kind]?.[own > other ? 1 : 0];
		const cause = word ?? `${other > own ? "larger" : "smaller"} ${name}`;
		const values = { ...now.values };
		for (const x of letters) values[x] = b.values[x]!;
		const arrow = `${grouped(own)} → ${grouped(other)}`;
		step(kind, `${cause} ${arrow}`, { ...now, values }, [[cause, arrow]]);
	}
	const isTied = (isReversed ? a : b).tied;
	if (a.tied !== b.tied) step("head", changes.head![isTied ? 0 : 1], b, []);
	return isReversed ? causes.reverse() : causes;
}
