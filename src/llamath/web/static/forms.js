// The data of the page, and its expressions: exact evaluation and rendering. See web/page_data/forms.py.
export const data = JSON.parse(document.getElementById("data").textContent);
export const texts = data.words;

const OPERATORS = {
	"+": (xs) => xs.reduce((a, b) => a + b),
	"*": (xs) => xs.reduce((a, b) => a * b),
	min: (xs) => xs.reduce((a, b) => (b < a ? b : a)),
	max: (xs) => xs.reduce((a, b) => (b > a ? b : a)),
	"-": ([a, b]) => a - b,
	"^": ([a, b]) => a ** b,
};
const EXACT_DIVISION = { floor: (a, b) => a / b, ceil: (a, b) => (a + b - 1n) / b, round: (a, b) => (2n * a + b) / (2n * b) };
const FLOAT_DIVISION = { floor: (a, b) => Math.floor(a / b), ceil: (a, b) => Math.ceil(a / b), round: (a, b) => Math.round(a / b) };

const isInteger = (x) => /^-?\d+$/.test(x);

// Compile an expression to a function of its variables: exact with BigInt, or with floats for pixel positions.
function compile(form, exact) {
	const [kind, ...rest] = typeof form === "string" ? [form] : form;
	if (typeof form === "string" && !isInteger(form)) return (variables) => variables[form];
	if (typeof form === "string" || kind === "let") {
		const n = exact ? BigInt(rest[1] ?? form) : Number(rest[1] ?? form);
		return () => n;
	}
	if (kind === "as") return compile(rest[1], exact);
	const parts = rest.map((x) => compile(x, exact));
	if (kind === ">=") return (variables) => parts[parts[0](variables) >= parts[1](variables) ? 2 : 3](variables);
	const divide = (exact ? EXACT_DIVISION : FLOAT_DIVISION)[kind];
	if (divide) return (variables) => divide(parts[0](variables), parts[1](variables));
	return (variables) => OPERATORS[kind](parts.map((x) => x(variables)));
}

const COMPILED = [new WeakMap(), new WeakMap()];

function run(form, variables, exact) {
	if (typeof form === "string") return compile(form, exact)(variables);
	const cache = COMPILED[Number(exact)];
	if (!cache.has(form)) cache.set(form, compile(form, exact));
	return cache.get(form)(variables);
}

export const value = (form, variables) => run(form, variables, true);
export const approximate = (form, variables) => run(form, variables, false);

// Write an expression with letters, or with their values.
export function formatForm(form, variables, letters, outer = "") {
	if (typeof form === "string") {
		return isInteger(form) ? grouped(form) : letters ? form : grouped(variables[form]);
	}
	const [kind, ...parts] = form;
	if (kind === "let") return letters ? parts[0] : grouped(parts[1]);
	if (kind === "as") return letters ? parts[0] : grouped(value(parts[1], variables));
	if (kind === ">=") return formatForm(parts[value(parts[0], variables) >= value(parts[1], variables) ? 2 : 3], variables, letters, outer);
	const inner = (x) => formatForm(x, variables, letters, kind);
	if ((kind === "ceil" || kind === "floor" || kind === "round") && value(parts[1], variables) === 1n) return formatForm(parts[0], variables, letters, outer);
	const fraction = () => `${inner(parts[0])} / ${parts[1][0] === "*" ? `(${inner(parts[1])})` : inner(parts[1])}`;
	if (kind === "floor") return `⌊${fraction()}⌋`;
	if (kind === "ceil") return `⌈${fraction()}⌉`;
	if (kind === "round") return `round(${fraction()})`;
	if (kind === "min" || kind === "max") return `${kind}(${parts.map(inner).join(", ")})`;
	const text = parts.map(inner).join({ "+": " + ", "-": " − ", "^": "^" }[kind] ?? "·").replaceAll(" + −", " − ");
	const isSum = kind === "+" || kind === "-";
	const needsParentheses = ["*", "-", "^", "floor", "ceil", "round"].includes(outer);
	return (isSum && needsParentheses) || (kind === "*" && outer === "^") ? `(${text})` : text;
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
