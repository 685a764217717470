// The data of the page, and its expressions: exact evaluation and rendering. `Expr.to_expression_json` in core/expr.py writes them.
export const data = JSON.parse(document.getElementById("data").textContent);
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

// Compile an expression to a function of its variables; `number` is BigInt for exact values, or Number for pixel positions.
function compile(expression, number) {
	if (typeof expression !== "object") {
		const n = isNumber(expression) && number(expression);
		return n === false ? (variables) => variables[expression] : () => n;
	}
	const [name, ...rest] = expression;
	if (name === "let" || name === "as") return compile(rest[1], number);
	const parts = rest.map((x) => compile(x, number));
	return (variables) => FUNCTIONS[name](...parts.map((part) => part(variables)));
}

const COMPILED = new Map([[BigInt, new WeakMap()], [Number, new WeakMap()]]);

function run(expression, variables, number) {
	if (typeof expression !== "object") return compile(expression, number)(variables);
	const cache = COMPILED.get(number);
	if (!cache.has(expression)) cache.set(expression, compile(expression, number));
	return cache.get(expression)(variables);
}

export const value = (expression, variables) => run(expression, variables, BigInt);
export const approximate = (expression, variables) => run(expression, variables, Number);

const quotient = (a, b) => `${a} / ${/^[^(]*·/.test(b) ? `(${b})` : b}`;
const FORMATS = {
	"+": (...xs) => xs.join(" + ").replaceAll("+ −", "− "),
	"*": (...xs) => (xs[0] === "−1" ? `−${FORMATS["*"](...xs.slice(1))}` : xs.join("·")),
	min: (a, b) => `min(${a}, ${b})`,
	max: (a, b) => `max(${a}, ${b})`,
	floor: (a, b) => `⌊${quotient(a, b)}⌋`,
	ceil: (a, b) => `⌈${quotient(a, b)}⌉`,
	round: (a, b) => `round(${quotient(a, b)})`,
	routed: (size, unit, missed, experts, tokens) => `round(${quotient(size, unit)}·(1 − (${missed} / ${experts})^${/^\w+$/.test(tokens) ? tokens : `(${tokens})`}))`,
};

// Write an expression with letters, or with their values. A quotient by 1 is written as its dividend.
export function formatExpression(expression, variables, letters) {
	if (typeof expression !== "object") return isNumber(expression) ? grouped(expression) : letters ? expression : grouped(variables[expression]);
	const [name, ...parts] = expression;
	if (name === "let" || name === "as") return letters ? parts[0] : grouped(value(parts[1], variables));
	const text = (x) => (x[0] === "+" && !["+", "min", "max"].includes(name) ? `(${formatExpression(x, variables, letters)})` : formatExpression(x, variables, letters));
	if (name === "routed" && (value(parts[4], variables) >= value(parts[5], variables) || value(parts[2], variables) === 0n)) return formatExpression(["round", ...parts.slice(0, 2)], variables, letters);
	if (["floor", "ceil", "round"].includes(name) && value(parts[1], variables) === 1n) return text(parts[0]);
	return FORMATS[name](...parts.map(text));
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
