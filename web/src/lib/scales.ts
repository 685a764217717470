// Scales from numbers to pixels, and round numbers for their ticks.

export interface Scale {
	(x: number): number;
	/** About so many round numbers of its domain. */
	ticks: (count: number) => number[];
}

type Range = readonly [from: number, to: number];

const scale = (of: (x: number) => number, [a, b]: Range, [from, to]: Range): Scale =>
	Object.assign(
		(x: number) => {
			const t = of(b) === of(a) ? 0.5 : (of(x) - of(a)) / (of(b) - of(a));
			return from * (1 - t) + to * t;
		},
		{ ticks: (count: number) => roundNumbers(a, b, count) },
	);

export const scaleLinear = (domain: Range, range: Range): Scale => scale((x) => x, domain, range);
export const scaleLog = (domain: Range, range: Range): Scale => scale(Math.log, domain, range);

/** Multiples of 1, 2 or 5 times a power of ten between two numbers, about so many. */
export function roundNumbers(from: number, to: number, count: number): number[] {
	if (!(to > from)) return to === from ? [from] : [];
	const step = (to - from) / Math.max(1, count);
	const power = Math.floor(Math.log10(step));
	const error = step / 10 ** power;
	const factor =
		error >= Math.sqrt(50) ? 10 : error >= Math.sqrt(10) ? 5 : error >= Math.SQRT2 ? 2 : 1;
	// below one, multiples are quotients: 0.3 is 3 / 10, and 3 · 0.1 is not
	const unit = power < 0 ? 10 ** -power / factor : 10 ** power * factor;
	const [places, number] =
		power < 0
			? [(x: number) => x * unit, (i: number) => i / unit]
			: [(x: number) => x / unit, (i: number) => i * unit];
	const [first, last] = [Math.ceil(places(from) - 1e-9), Math.floor(places(to) + 1e-9)];
	return Array.from({ length: last - first + 1 }, (_, i) => number(first + i)).filter(
		(x) => x >= from && x <= to,
	);
}
