// Layers of several kinds for any number of layers, and their numbers as the library writes them.

export function arranged<T>(
	first: readonly T[],
	repeated: readonly T[],
	last: readonly T[],
	number: number,
): T[] {
	const turns = number - first.length - last.length;
	const middle = Array.from({ length: turns }, (_, i) => repeated[i % repeated.length]!);
	return [...first, ...middle, ...last];
}

/** Equal neighbors as one, with their number. */
export function runsOf<T>(list: readonly T[]): [T, number][] {
	const runs: [T, number][] = [];
	for (const x of list)
		if (runs.at(-1)?.[0] === x) runs.at(-1)![1]++;
		else runs.push([x, 1]);
	return runs;
}

type Range = [first: number, last: number, step: number];

/** Of first, repeated and last layers, the numbers of those with a 1, as in `spans_of` of core/parameter_count.py. */
export function rangesOf(members: string, number: bigint | number): Range[] {
	const [first, repeated, last] = members.split("|") as [string, string, string];
	const spans: Range[] = [];
	for (const [i, x] of arranged([...first], [...repeated], [...last], Number(number)).entries()) {
		if (x === "0") continue;
		const span = spans.at(-1);
		if (span && (span[0] === span[1] || i - span[1] === span[2]))
			spans.splice(-1, 1, [span[0], i, i - span[1]]);
		else spans.push([i, i, 1]);
	}
	return spans;
}

const MAX_CHARS = 20;

/** Ranges as text, as `format_ranges` of utils/number_format.py writes them: `0–31`, `0, 2, … 30`. */
export function rangesText(ranges: readonly Range[]): string {
	const parts = ranges.flatMap(([first, last, step]) =>
		first === last
			? [`${first}`]
			: step === 1
				? [`${first}–${last}`]
				: last === first + step
					? [`${first}`, `${last}`]
					: [`${first}, ${first + step}, … ${last}`],
	);
	const shown = parts.slice(0, 3);
	const end = parts.at(-1)!;
	if (shown.join("").length > MAX_CHARS)
		return `${parts[0]} … ${end.slice(end.lastIndexOf(" ") + 1)}`;
	return shown.join(", ") + (parts.length > 3 ? ` … ${end}` : "");
}
