// An answer that is typed: a number in full, one rounded with a suffix or exponent, or an expression of letters.
import { value, type Expression, type Variables } from "./expressions";

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
const TOKEN = /\s*(?:(\d{1,3}(?:[,_']\d{3})+(?!\d)|\d+)|([A-Za-z][\w′']*)|([-+−*×·⋅()^]))/y;

/** A number, and the half of its last digit by which it is rounded; of one in full that is 0. */
export interface Answer {
	/** This and `half` are multiplied by `unit`. */
	scaled: bigint;
	half: bigint;
	unit: bigint;
	digits: number;
}

const exact = (n: bigint): Answer => ({ scaled: 2n * n, half: 0n, unit: 2n, digits: 0 });

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

/** Of sums, products and powers of numbers and letters. */
function parseExpression(text: string, letters: readonly string[]): Expression | null {
	const tokens: string[] = [];
	text = text.replace(/(\d\s*)x(?=\s*\d)/g, "$1×");
	for (TOKEN.lastIndex = 0; TOKEN.lastIndex < text.length;) {
		const match = TOKEN.exec(text);
		if (!match) return null;
		tokens.push(match[1]?.replace(/[,_']/g, "") ?? match[2] ?? match[3]!);
	}
	let depth = 0;
	const take = (signs: string) =>
		tokens[0] !== undefined && signs.includes(tokens[0]) ? tokens.shift()! : "";
	const sum = (): Expression | null => {
		let found = product();
		for (let sign; found !== null && (sign = take("+-−"));) {
			const other = product();
			found = other === null ? null : ["+", found, sign === "+" ? other : ["*", -1, other]];
		}
		return found;
	};
	const product = (): Expression | null => {
		let found = power();
		while (found !== null && (take("*×·⋅") || /^[A-Za-z(]/.test(tokens[0] ?? ""))) {
			const other = power();
			found = other === null ? null : ["*", found, other];
		}
		return found;
	};
	const power = (): Expression | null => {
		const base = atom();
		// of a number or a letter alone, so that it stays small
		if (typeof base === "object" || !take("^")) return base;
		const n = Number(tokens.shift());
		if (!(Number.isInteger(n) && n >= 1 && n <= 64)) return null;
		return n === 1 ? base : ["*", ...Array<Expression>(n).fill(base)];
	};
	const atom = (): Expression | null => {
		const token = tokens.shift() ?? "";
		if (token === "(") {
			if (++depth > MAX_DEPTH) return null;
			const found = sum();
			return take(")") ? found : null;
		}
		if (/^\d/.test(token)) return token.length > MAX_DIGITS ? null : token;
		const found = /^[A-Za-z]/.test(token) ? lettersIn(token, letters) : null;
		return !found ? null : found.length > 1 ? ["*", ...found] : found[0]!;
	};
	const found = sum();
	return tokens.length ? null : found;
}

/** Null if the text is no number and no expression of these letters. */
export function parseAnswer(text: string, letters: Variables<bigint>, unit = ""): Answer | null {
	const written = text.trim();
	if (written.length > MAX_LENGTH) return null;
	const number = parseNumber(written, unit);
	if (number) return number;
	const found = parseExpression(written, Object.keys(letters));
	return found === null ? null : exact(value(found, letters));
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
