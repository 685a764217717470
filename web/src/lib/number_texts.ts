// Numbers as the library writes them, by the kinds of marks in src/llamath/utils/number_marks.py.
import { grouped } from "./format";

/** Writes a number with N decimals; halves are rounded to even digits, as Python does. */
function fixed(x: number, decimals: number): string {
	const exact = x.toFixed(decimals + 40);
	if (!/50{39}$/.test(exact)) return x.toFixed(decimals);
	const below = exact.slice(0, decimals ? -40 : -41);
	return /[02468]$/.test(below) ? below : x.toFixed(decimals);
}

const withoutZeros = (text: string): string => text.replace(/\.?0+$/, "");

/** The quotient as a float: exact operands are rounded once. */
function quotient(n: bigint, by: bigint): number {
	const isExact = n < 2n ** 53n && by < 2n ** 53n;
	return isExact ? Number(n) / Number(by) : Number((n * 10n ** 20n) / by) / 1e20;
}

const UNITS: readonly [bigint, string][] = [
	[10n ** 12n, "T"],
	[10n ** 9n, "B"],
	[10n ** 6n, "M"],
	[10n ** 3n, "K"],
];
const BINARY: readonly [bigint, string][] = [
	[2n ** 40n, "TiB"],
	[2n ** 30n, "GiB"],
	[2n ** 20n, "MiB"],
	[2n ** 10n, "KiB"],
];

function short(n: bigint): string {
	const found = UNITS.find(([unit]) => n * 2000n >= unit * 1999n);
	if (!found) return String(n);
	const value = quotient(n, found[0]);
	return `${fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0)}${found[1]}`;
}

function bytes(n: bigint): string {
	const found = BINARY.find(([unit]) => n >= unit);
	if (!found) return `${grouped(n)} B`;
	const value = quotient(n, found[0]);
	return value >= 99.95 || Number.isInteger(value)
		? `${grouped(fixed(value, 0))} ${found[1]}`
		: `${withoutZeros(fixed(value, value < 9.995 ? 2 : 1))} ${found[1]}`;
}

function flops(n: bigint): string {
	for (let i = 0, power = 24n; power > 0n; i++, power -= 3n) {
		if (n * 10_000n < 99_995n * 10n ** (power - 1n)) continue;
		const value = quotient(n, 10n ** power);
		return `${fixed(value, value < 9.9995 ? 3 : value < 99.995 ? 2 : 1)} ${"YZEPTGMk"[i]}FLOPs`;
	}
	return `${n} FLOPs`;
}

function percent(n: bigint, whole: bigint): string {
	if (n > 0n && n * 20_000n < whole) return "<0.01%";
	return `${fixed(quotient(n * 100n, whole), 2)}%`;
}

const KINDS: Record<string, (...numbers: [bigint, bigint]) => string> = {
	d: (n) => String(n),
	"#": (n) => String(n),
	",": (n) => grouped(n).replace("−", "-"),
	"%": percent,
	"factor,": (n) => (n === 1n ? "" : `${grouped(n)}·`),
	factor: (n) => (n === 1n ? "" : `${n}·`),
	short,
	bytes,
	FLOPs: flops,
	tokens: (n) => (n >= 1024n && n % 1024n === 0n ? `${grouped(n / 1024n)}k` : grouped(n)),
};

export const numberText = (kind: string, ...numbers: bigint[]): string =>
	KINDS[kind]!(...(numbers as [bigint, bigint]));
