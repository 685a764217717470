// Expressions of the library, which `Expr.to_expression_json` in core/expr.py writes: exact
// evaluation, and notation in letters or numbers.
import { grouped } from "./format";

/** A number, the name of a variable, or an operation with its operands. */
export interface Operation extends Array<Expression> {
	0: string;
}
export type Expression = number | string | Operation;
export type Variables<N> = Record<string, N>;
export type Evaluate<N> = (variables: Variables<N>) => N;

const isNumber = (x: number | string) => typeof x === "number" || /^-?\d+$/.test(x);

// `any` because TypeScript has no common type for the arithmetic of bigint and number.
type Numeric = any;
const floor = (a: Numeric, b: Numeric) => (a - (((a % b) + b) % b)) / b;
const round = (a: Numeric, b: Numeric) => floor(a + a + b, b + b);
export const EXACT: Record<string, (...xs: Numeric[]) => Numeric> = {
	"+": (a, b) => a + b,
	"*": (a, b) => a * b,
	min: (a, b) => (b < a ? b : a),
	max: (a, b) => (b > a ? b : a),
	choose: (a, b, less, otherwise) => (a < b ? less : otherwise),
	floor,
	ceil: (a, b) => -floor(-a, b),
	log2: (a) => BigInt(a > 1n ? (a - 1n).toString(2).length : 0),
	round,
	routed: (size, unit, missed, experts, tokens, most) =>
		tokens >= most
			? round(size, unit)
			: round(size * (experts ** tokens - missed ** tokens), unit * experts ** tokens),
};

/** In floating point, powers of the number of experts would overflow. */
const APPROXIMATIONS: typeof EXACT = {
	...EXACT,
	routed: (size, unit, missed, experts, tokens, most) =>
		(size / unit) * (1 - (tokens >= most ? 0 : (missed / experts) ** tokens)),
};

/**
 * Returns a function that binds expressions to variables that are known: what depends on no other
 * is computed once.
 */
function binder<N extends bigint | number>(number: (x: number | string) => N, functions = EXACT) {
	const bind = (x: Expression, known: Variables<N>): N | Evaluate<N> => {
		if (typeof x !== "object") {
			if (isNumber(x)) return number(x);
			if (known[x] !== undefined) return known[x]!;
			return (variables) => {
				const n = variables[x];
				if (n === undefined) throw new Error(`no value for ${x}`);
				return n;
			};
		}
		const [name, ...rest] = x as [string, ...Expression[]];
		if (name === "let" || name === "as") return bind(rest[1]!, known);
		const parts = rest.map((y) => bind(y, known));
		return name === "+" || name === "*"
			? chain(functions[name]!, parts)
			: call(functions[name]!, parts);
	};
	type Bound = N | Evaluate<N>;
	const isOpen = (x: Bound): x is Evaluate<N> => typeof x === "function";
	/** Sums and products, with one number for all that are known. */
	const chain = (apply: (a: N, b: N) => N, parts: Bound[]): Bound => {
		const open = parts.filter(isOpen);
		const numbers = parts.filter((x): x is N => !isOpen(x));
		const folded = numbers.length ? [numbers.reduce(apply)] : [];
		return [...folded, ...open].reduce((a, b) => call(apply, [a, b]));
	};
	const call = (apply: (...xs: N[]) => N, parts: Bound[]): Bound => {
		if (!parts.some(isOpen)) return apply(...(parts as N[]));
		if (parts.length === 2) {
			const [a, b] = parts as [Bound, Bound];
			if (!isOpen(a)) return (variables) => apply(a, (b as Evaluate<N>)(variables));
			if (!isOpen(b)) return (variables) => apply(a(variables), b);
			return (variables) => apply(a(variables), b(variables));
		}
		const all = parts.map((x) => (isOpen(x) ? x : () => x));
		return (variables) => apply(...all.map((x) => x(variables)));
	};
	return (x: Expression, known: Variables<N>): Evaluate<N> => {
		const found = bind(x, known);
		return isOpen(found) ? found : () => found;
	};
}

/** Returns a function that evaluates expressions; each is compiled once. */
function evaluator<N extends bigint | number>(
	bind: (x: Expression, known: Variables<N>) => Evaluate<N>,
) {
	const compiled = new WeakMap<object, Evaluate<N>>();
	return (x: Expression, variables: Variables<N>): N => {
		if (typeof x !== "object") return bind(x, {})(variables);
		let found = compiled.get(x);
		if (!found) compiled.set(x, (found = bind(x, {})));
		return found(variables);
	};
}

/** Binds an expression: the result is a function of the variables that are not known. */
export const bindExactly = binder<bigint>(BigInt);
export const bindApproximately = binder<number>(Number, APPROXIMATIONS);
/** The exact value. */
export const value = evaluator(bindExactly);
/** The value in floating point, for positions in pixels and first guesses. */
export const approximate = evaluator(bindApproximately);

const quotient = (a: string, b: string) => `${a} / ${/^[^(]*·/.test(b) ? `(${b})` : b}`;
const FORMATS: Record<string, (...xs: string[]) => string> = {
	"+": (...xs) => xs.join(" + ").replaceAll("+ −", "− "),
	"*": (...xs) => (xs[0] === "−1" ? `−${FORMATS["*"]!(...xs.slice(1))}` : xs.join("·")),
	min: (a, b) => `min(${a}, ${b})`,
	max: (a, b) => `max(${a}, ${b})`,
	floor: (a, b) => `⌊${quotient(a!, b!)}⌋`,
	ceil: (a, b) => `⌈${quotient(a!, b!)}⌉`,
	round: (a, b) => `round(${quotient(a!, b!)})`,
	routed: (size, unit, missed, experts, tokens) =>
		`round(${unit === "1" ? size : quotient(size!, unit!)}·(1 − (${missed} / ${experts})^${/·/.test(tokens!) ? `(${tokens})` : tokens}))`,
};

/** Whether every variable has a value; the definition of a symbol is written without. */
function isKnown(x: Expression, variables: Variables<bigint>): boolean {
	if (typeof x !== "object") return isNumber(x) || variables[x] !== undefined;
	const [name, ...parts] = x as [string, ...Expression[]];
	return name === "let" || name === "as"
		? isKnown(parts[1]!, variables)
		: parts.every((y) => isKnown(y, variables));
}

/**
 * Writes an expression in letters, or with their values. A quotient by 1 is its dividend, and
 * enough tokens use every expert.
 */
export function notation(
	x: Expression,
	variables: Variables<bigint>,
	inLetters: boolean,
	isFactor = false,
): string {
	if (typeof x !== "object")
		return isNumber(x) ? grouped(x) : inLetters ? String(x) : grouped(variables[x]!);
	const [name, ...parts] = x as [string, ...Expression[]];
	if (name === "let" || name === "as")
		return inLetters ? String(parts[0]) : grouped(value(parts[1]!, variables));
	if (
		name === "routed" &&
		isKnown(parts[4]!, variables) &&
		value(parts[4]!, variables) >= value(parts[5]!, variables)
	)
		return notation(
			["round", ...parts.slice(0, 2)] as Operation,
			variables,
			inLetters,
			isFactor,
		);
	if (
		["floor", "ceil", "round"].includes(name) &&
		isKnown(parts[1]!, variables) &&
		value(parts[1]!, variables) === 1n
	)
		return notation(parts[0]!, variables, inLetters, isFactor);
	const text = FORMATS[name]!(
		...parts.map((y) => notation(y, variables, inLetters, !["+", "min", "max"].includes(name))),
	);
	return isFactor && name === "+" ? `(${text})` : text;
}

export const sumOf = (forms: Expression[]): Expression =>
	forms.length > 1 ? (["+", ...forms] as Operation) : (forms[0] ?? 0);
