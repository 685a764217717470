// The data of the page, and its expressions: exact evaluation and rendering. `Expr.to_expression_json` in core/expr.py writes them.
import { readData } from "../lib/read_data";
export const data = readData();
export const texts = data.words;

const isNumber = (x) => typeof x === "number" || /^-?\d+$/.test(x);
const floor = (a, b) => (a - (((a % b) + b) % b)) / b;
const round = (a, b) => floor(a + a + b, b + b);
const routed = (size, unit, missed, experts, tokens, most) => (tokens >= most ? round(size, unit) : round(size * (experts ** tokens - missed ** tokens), unit * experts ** tokens));
const FUNCTIONS = {
	"+": (...xs) => xs.reduce((a, b) => a + b),
	"*": (...xs) => xs.reduce((a, b) => a * b),
	min: (a, b) => (b < a ? b : a),
	max: (a, b) => (b > a ? b : a),
	floor,
	ceil: (a, b) => -floor(-a, b),
	round,
	routed,
};

// Return a function that evaluates expressions; each is compiled once. `number` is BigInt for exact values, or Number for pixel positions.
function evaluator(number) {
	const compiled = new WeakMap();
	const compile = (x) => {
		if (typeof x !== "object") {
			const n = isNumber(x) && number(x);
			return (variables) => (n === false ? variables[x] : n);
		}
		const [name, ...rest] = x;
		if (name === "let" || name === "as") return compile(rest[1]);
		const parts = rest.map(compile);
		return (variables) => FUNCTIONS[name](...parts.map((part) => part(variables)));
	};
	return (x, variables) => {
		if (typeof x !== "object") return compile(x)(variables);
		if (!compiled.has(x)) compiled.set(x, compile(x));
		return compiled.get(x)(variables);
	};
}

export const value = evaluator(BigInt);
export const approximate = evaluator(Number);

const quotient = (a, b) => `${a} / ${/^[^(]*·/.test(b) ? `(${b})` : b}`;
const FORMATS = {
	"+": (...xs) => xs.join(" + ").replaceAll("+ −", "− "),
	"*": (...xs) => (xs[0] === "−1" ? `−${FORMATS["*"](...xs.slice(1))}` : xs.join("·")),
	min: (a, b) => `min(${a}, ${b})`,
	max: (a, b) => `max(${a}, ${b})`,
	floor: (a, b) => `⌊${quotient(a, b)}⌋`,
	ceil: (a, b) => `⌈${quotient(a, b)}⌉`,
	round: (a, b) => `round(${quotient(a, b)})`,
	routed: (size, unit, missed, experts, tokens) => `round(${unit === "1" ? size : quotient(size, unit)}·(1 − (${missed} / ${experts})^${/·/.test(tokens) ? `(${tokens})` : tokens}))`,
};

// Write an expression with letters, or with their values. A quotient by 1 is its dividend, and enough tokens use every expert.
export function notation(x, variables, letters, isFactor = false) {
	if (typeof x !== "object") return isNumber(x) ? grouped(x) : letters ? x : grouped(variables[x]);
	const [name, ...parts] = x;
	if (name === "let" || name === "as") return letters ? parts[0] : grouped(value(parts[1], variables));
	if (name === "routed" && value(parts[4], variables) >= value(parts[5], variables)) return notation(["round", ...parts.slice(0, 2)], variables, letters, isFactor);
	if (["floor", "ceil", "round"].includes(name) && value(parts[1], variables) === 1n) return notation(parts[0], variables, letters, isFactor);
	const text = FORMATS[name](...parts.map((y) => notation(y, variables, letters, !["+", "min", "max"].includes(name))));
	return isFactor && name === "+" ? `(${text})` : text;
}

// A number, or its digits.
export function grouped(from) {
	const n = BigInt(from);
	const text = String(n < 0n ? -n : n).replace(/\B(?=(\d{3})+$)/g, ",");
	return n < 0n ? `−${text}` : text;
}

export const sum = (list) => list.reduce((a, n) => a + BigInt(n), 0n);
export const signed = (n) => (BigInt(n) > 0n ? "+" : "") + grouped(n);

// n over a unit to two decimals, halves away from zero.
function decimals(n, unit) {
	const hundredths = (BigInt(n) * 200n + unit) / (2n * unit);
	return `${grouped(hundredths / 100n)}.${String(hundredths % 100n).padStart(2, "0")}`;
}

export const times = (n) => (BigInt(n) === 1n ? "" : ` × ${grouped(n)}`);
export const gigabytes = (n) => `${decimals(n, 10n ** 9n)} GB`;
export const gibibytes = (n) => `${decimals(n, 2n ** 30n)} GiB`;

export function percent(n, whole) {
	if (!whole) return "–";
	return n > 0n && n * 20_000n < whole ? "<0.01%" : `${decimals(n * 100n, whole)}%`;
}

// Return a predicate: do the texts together contain every word of the search?
export function matchWords(text) {
	const words = text.toLowerCase().split(/\s+/).filter(Boolean);
	return (...texts) => words.every((word) => texts.some((x) => x.toLowerCase().includes(word)));
}

// Units of short numbers: power, letter, notation.
export const UNITS = [[12n, "T", "10¹²"], [9n, "B", "10⁹"], [6n, "M", "10⁶"], [3n, "K", "10³"]];

export function shortCount(n) {
	const [power, letter] = UNITS.find((x) => n >= 10n ** x[0]) ?? [0n];
	return power ? `${decimals(n, 10n ** power)}${letter}` : grouped(n);
}
