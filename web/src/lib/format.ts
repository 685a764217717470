// Numbers as text. Exact integers stay exact; only what says so is rounded.

/** A whole number with its digits in groups. */
export function grouped(from: bigint | number | string): string {
	const n = BigInt(from);
	const text = String(n < 0n ? -n : n).replace(/\B(?=(\d{3})+$)/g, ",");
	return n < 0n ? `−${text}` : text;
}

export const sum = (list: readonly (bigint | number | string)[]): bigint =>
	list.reduce<bigint>((a, n) => a + BigInt(n), 0n);
export const signed = (n: bigint | string): string => (BigInt(n) > 0n ? "+" : "") + grouped(n);
export const times = (n: bigint | string): string => (BigInt(n) === 1n ? "" : ` × ${grouped(n)}`);

/** n over a unit to two decimals, halves away from zero. */
function decimals(n: bigint | string, unit: bigint): string {
	const hundredths = (BigInt(n) * 200n + unit) / (2n * unit);
	return `${grouped(hundredths / 100n)}.${String(hundredths % 100n).padStart(2, "0")}`;
}

export const gigabytes = (n: bigint | string): string => `${decimals(n, 10n ** 9n)} GB`;
export const gibibytes = (n: bigint | string): string => `${decimals(n, 2n ** 30n)} GiB`;

export function percent(n: bigint, whole: bigint): string {
	if (!whole) return "–";
	return n > 0n && n * 20_000n < whole ? "<0.01%" : `${decimals(n * 100n, whole)}%`;
}

/** Units of short numbers: power of ten, letter, notation. */
export const UNITS: readonly [bigint, string, string][] = [
	[12n, "T", "10¹²"],
	[9n, "B", "10⁹"],
	[6n, "M", "10⁶"],
	[3n, "K", "10³"],
];

export function shortCount(from: bigint | string): string {
	const n = BigInt(from);
	const [power, letter] = UNITS.find((x) => n >= 10n ** x[0]) ?? [0n, ""];
	return power ? `${decimals(n, 10n ** power)}${letter}` : grouped(n);
}

/** A count to three significant digits: 58.7M. */
export function compactCount(from: bigint | string, digits = threeDigits): string {
	const n = BigInt(from);
	const [power, letter] = UNITS.find((x) => n >= 10n ** x[0]) ?? [0n, ""];
	return power ? `${digits(Number(n) / 10 ** Number(power))}${letter}` : grouped(n);
}

/** Digits that a number of 64 bits can have. */
const MOST_DIGITS = 17;

/** Labels of several counts: as many digits, three or more, as tell them apart. */
export function countLabels(counts: readonly bigint[], digits = 3): string[] {
	const labels = counts.map((n) => compactCount(n, (x) => significant(x, digits)));
	return new Set(labels).size === new Set(counts).size || digits === MOST_DIGITS
		? labels
		: countLabels(counts, digits + 1);
}

/** A count as sheets have it, also with zeros: 1.10B. */
export const everydayCount = (n: bigint): string =>
	compactCount(n, (x) => (x < 100 ? x.toPrecision(3) : threeDigits(x)));

/** A share to three significant digits; what is not everything is never 100%. */
export function share(n: bigint, whole: bigint): string {
	if (!whole) return "–";
	const percentage = Number((n * 10n ** 12n) / whole) / 10 ** 10;
	if (n < whole && percentage > 99.95) return ">99.9%";
	return `${percentage && percentage < 0.1 ? Number(percentage.toPrecision(1)).toFixed(Math.min(8, Math.ceil(-Math.log10(percentage)))) : threeDigits(percentage)}%`;
}

const BINARY: readonly [number, string][] = [
	[2 ** 40, "TiB"],
	[2 ** 30, "GiB"],
	[2 ** 20, "MiB"],
	[2 ** 10, "KiB"],
];

/** Bytes to three significant digits in the largest binary unit. */
export function shortBytes(from: bigint | number | string): string {
	const n = Number(from);
	const [unit, name] = BINARY.find((x) => n >= x[0]) ?? [1, "B"];
	return `${threeDigits(n / unit)} ${name}`;
}

const DECIMAL: readonly [number, string][] = [
	[1e12, "TB"],
	[1e9, "GB"],
	[1e6, "MB"],
];

/** Bytes to three significant digits in the largest decimal unit, as sizes of files are stated. */
export function shortFileSize(from: bigint | number | string): string {
	const n = Number(from);
	const [unit, name] = DECIMAL.find((x) => n >= x[0]) ?? DECIMAL.at(-1)!;
	return `${threeDigits(n / unit)} ${name}`;
}

/** Made once: `toLocaleString` makes one at each call. */
const WHOLE = new Intl.NumberFormat("en-US");

/** A number with its digits in groups, which need not be whole. */
export const groupedNumber = (x: number): string => WHOLE.format(x);

/** So many significant digits, or all digits before the point. */
function significant(x: number, digits: number): string {
	if (x >= 10 ** (digits - 1)) return WHOLE.format(Math.round(x));
	return String(Number(x.toPrecision(digits)));
}

export const threeDigits = (x: number): string => significant(x, 3);

/** A ratio to be read: 1.19 ×, or 1/49 where that is easier than 0.0204 ×. */
export const ratioText = (ratio: number): string =>
	ratio > 0 && ratio < 0.1
		? `1/${threeDigits(Math.round(1 / ratio))}`
		: `${threeDigits(ratio)}\u00a0×`;

/** Tokens as in model names: 128k is 131,072; anything else in full. */
export function shortTokens(from: bigint | number | string): string {
	const n = Number(from);
	return n >= 1024 && n % 1024 === 0 ? `${WHOLE.format(n / 1024)}k` : WHOLE.format(n);
}

/** A predicate: do the texts together contain every word of the search? */
export function matchWords(text: string): (...texts: string[]) => boolean {
	const words = text.toLowerCase().split(/\s+/).filter(Boolean);
	return (...texts) => words.every((word) => texts.some((x) => x.toLowerCase().includes(word)));
}

/** A list in words: `a, b and c`. */
export const inWords = (list: readonly string[]): string =>
	[list.slice(0, -1).join(", "), list.at(-1)!].filter(Boolean).join(" and ");

/** The name of a control: begins with the words that are read on it, then says the rest. */
export function nameWith(shown: readonly string[], rest: string): string {
	const words = shown.join(" ");
	const first = `${shown[0]}: `;
	return rest.includes(words)
		? rest
		: `${words}: ${rest.startsWith(first) ? rest.slice(first.length) : rest}`;
}

/** Of how many GPUs a number is that of each; of one, nothing. */
export const onEachGpu = (gpus: string): string => (gpus === "1" ? "" : ` on each of ${gpus} GPUs`);
