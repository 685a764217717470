// An answer that is typed: a number in full, one rounded with a suffix or exponent, or an expression
// of numbers and letters.
import type { Variables } from "./expressions";

const MAX_LENGTH = 200;
/** No number of a model has more digits. */
const MAX_DIGITS = 30;
const MAX_DEPTH = 20;
const POWERS: Record<string, number> = { k: 1, K: 1, M: 2, B: 3, G: 3, T: 4 };
const NUMBER =
	/^(\d{1,3}(?:[,_' \u00a0]\d{3})+|\d+)(?:\.(\d+))?(?:\s*([A-Za-z]+)|[eE]\+?(\d{1,2}))?$/;

/** What a suffix multiplies by: of bytes GB and GiB, of FLOPs GFLOPs, of others M and B. */
function suffixFactor(suffix: string, unit: string): bigint | undefined {
	if (suffix.toLowerCase() === unit.toLowerCase()) return 1n;
	const [, letter, isBinary, rest] = /^([kKMBGT]?)(i?)(.*)$/.exec(suffix)!;
	if (unit === "bytes" && suffix === "B") return 1n;
	const isKnown =
		rest === ""
			? !isBinary
			: unit === "bytes"
				? rest === "B"
				: /^flops?$/i.test(rest!) && unit === "FLOPs" && !isBinary;
	const power = POWERS[letter!] ?? (letter === "" ? 0 : undefined);
	return isKnown && power !== undefined ? (isBinary ? 1024n : 1000n) ** BigInt(power) : undefined;
}
const TOKEN =
	/\s*(?:((?:\d{1,3}(?:[,_' \u00a0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)|([A-Za-z][\w′']*)|(\*\*|[-+−*×·⋅/÷^()]))/y;
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** A number, and the half of its last digit by which it is rounded; of one in full that is 0. */
export interface Answer {
	/** This and `half` are multiplied by `unit`. */
	scaled: bigint;
	half: bigint;
	unit: bigint;
	digits: number;
}

/** A numerator and a denominator, which is positive. */
type Fraction = [bigint, bigint];

const exact = (n: bigint, unit = 1n): Answer => ({ scaled: n, half: 0n, unit, digits: 0 });

const LARGEST = 2n ** 1024n;
/** A fraction of numbers that are not too large, and whose denominator is not 0. */
function bounded(n: bigint, of: bigint): Fraction | null {
	if (of === 0n || n > LARGEST || n < -LARGEST || of > LARGEST || of < -LARGEST) return null;
	return of < 0n ? [-n, -of] : [n, of];
}

/** Of a number alone, such as 16,777,216 or 16.8M. */
function parseNumber(text: string, unit: string): Answer | null {
	const match = NUMBER.exec(text);
	if (!match) return null;
	const [, whole = "", fraction = "", suffix = "", exponent] = match;
	const digits = whole.replace(/\D/g, "") + fraction;
	if (digits.length > MAX_DIGITS) return null;
	if (!fraction && !exponent && (!suffix || suffixFactor(suffix, unit) === 1n))
		return exact(BigInt(digits));
	const power = exponent ? 10n ** BigInt(exponent) : suffixFactor(suffix, unit);
	if (power === undefined) return null;
	return {
		scaled: 2n * BigInt(digits) * power,
		half: power,
		unit: 2n * 10n ** BigInt(fraction.length),
		digits: digits.replace(/^0+/, "").length,
	};
}

/** Letters without a sign between them, such as dF, or null. */
function lettersIn(word: string, letters: readonly string[]): string[] | null {
	if (!word) return [];
	const longest = letters
		.filter((x) => word.startsWith(x))
		.toSorted((a, b) => b.length - a.length)[0];
	const rest = longest && lettersIn(word.slice(longest.length), letters);
	return rest ? [longest, ...rest] : null;
}

/** Of sums, products, quotients and powers of numbers and letters, as a fraction. */
function parseExpression(text: string, letters: Variables<bigint>): Fraction | null {
	const tokens: string[] = [];
	text = text
		.replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹]+/g, (x) => `^${[...x].map((y) => SUPERSCRIPTS.indexOf(y)).join("")}`)
		.replace(/([\d)]\s*)[xX](?=\s*[\d(])/g, "$1×");
	for (TOKEN.lastIndex = 0; TOKEN.lastIndex < text.length;) {
		const match = TOKEN.exec(text);
		if (!match) return null;
		tokens.push(match[1]?.replace(/[^\d.]/g, "") ?? match[2] ?? match[3]!);
	}
	const names = Object.keys(letters);
	let depth = 0;
	const take = (...signs: string[]) =>
		tokens[0] !== undefined && signs.includes(tokens[0]) ? tokens.shift()! : "";
	const sum = (): Fraction | null => {
		let found = product();
		for (let sign; found && (sign = take("+", "-", "−"));) {
			const other = product();
			const [a, b] = found;
			found =
				other && bounded(a * other[1] + (sign === "+" ? b : -b) * other[0], b * other[1]);
		}
		return found;
	};
	const product = (): Fraction | null => {
		let found = power();
		for (let sign; found;) {
			sign = take("*", "×", "·", "⋅", "/", "÷");
			if (!sign && !/^[A-Za-z(]/.test(tokens[0] ?? "")) break;
			const other = power();
			if (!other) return null;
			const [a, b] = sign === "/" || sign === "÷" ? [other[1], other[0]] : other;
			found = bounded(found[0] * a, found[1] * b);
		}
		return found;
	};
	const power = (): Fraction | null => {
		const base = atom();
		if (!base || !take("^", "**")) return base;
		const n = tokens.shift() ?? "";
		if (!/^\d{1,3}$/.test(n)) return null;
		let found: Fraction | null = [1n, 1n];
		for (let i = 0; found && i < Number(n); i++)
			found = bounded(found[0] * base[0], found[1] * base[1]);
		return found;
	};
	const atom = (): Fraction | null => {
		const token = tokens.shift() ?? "";
		if (token === "(" || token === "-" || token === "−") {
			if (++depth > MAX_DEPTH) return null;
			const found = token === "(" ? sum() : power();
			if (token === "(") return take(")") ? found : null;
			return found && [-found[0], found[1]];
		}
		if (/^[\d.]/.test(token)) {
			const [whole, fraction = ""] = token.split(".");
			return token.length > MAX_DIGITS
				? null
				: [BigInt(whole! + fraction), 10n ** BigInt(fraction.length)];
		}
		const found = /^[A-Za-z]/.test(token) ? lettersIn(token, names) : null;
		return found && [found.reduce((a, x) => a * letters[x]!, 1n), 1n];
	};
	const found = sum();
	return tokens.length ? null : found;
}

/** Null if the text is no number and no expression of these letters. */
export function parseAnswer(text: string, letters: Variables<bigint>, unit = ""): Answer | null {
	const written = text.trim().replace(/^[=≈~]\s*/, "");
	if (written.length > MAX_LENGTH) return null;
	const number = parseNumber(written, unit);
	if (number) return number;
	const found = parseExpression(written, letters);
	return found && exact(...found);
}

/** Whether a number is the answer, and not only rounds to it. */
export const isExactly = ({ scaled, unit }: Answer, n: bigint): boolean => scaled === n * unit;

/** Whether a number is the answer, or rounds to it with two digits or more. */
export function isAnswer(given: Answer, n: bigint): boolean {
	const { scaled, half, unit, digits } = given;
	if (half > 0n && digits < 2) return isExactly(given, n);
	const off = scaled - n * unit;
	return (off < 0n ? -off : off) <= half;
}
