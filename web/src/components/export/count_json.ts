// The output of `--json` from its parts.

/** JSON; `{"": text}` is what a script would write otherwise than Python. */
export type JsonParts =
	string | number | boolean | null | JsonParts[] | { [name: string]: JsonParts };

/** The output of `count --json`: each weight is sent once, and `order` says where it repeats. */
export interface CountParts {
	before: JsonParts;
	after: JsonParts;
	weights: { path: string; rest: JsonParts; names: [string, string | null][] }[];
	order: Order;
}

/**
 * A number is a weight; a list holds runs: the blocks of a pattern, and how often it is repeated.
 */
type Order = (number | [Order[], number][])[];

/** Quotes a string as Python's json.dumps does. */
const quoted = (text: string) =>
	JSON.stringify(text).replace(
		/[\u0080-\uffff]/g,
		(x) => `\\u${x.charCodeAt(0).toString(16).padStart(4, "0")}`,
	);

/** Writes JSON as Python's json.dumps does. */
export function writtenJson(x: JsonParts): string {
	if (typeof x === "string") return quoted(x);
	if (x === null || typeof x !== "object") return String(x);
	if (Array.isArray(x)) return `[${x.map(writtenJson).join(", ")}]`;
	if ("" in x) return String(x[""]);
	return `{${Object.entries(x)
		.map(([name, y]) => `${quoted(name)}: ${writtenJson(y)}`)
		.join(", ")}}`;
}

function* expanded(items: Order, indices: number[]): Generator<[number, number[]]> {
	for (const x of items) {
		if (typeof x === "number") yield [x, indices];
		else {
			let i = 0;
			for (const [blocks, times] of x)
				for (let n = 0; n < times; n += 1)
					for (const block of blocks) yield* expanded(block, [...indices, i++]);
		}
	}
}

export function countJson({ before, after, weights, order }: CountParts): string {
	const filled = (text: string, indices: number[]) =>
		["{l}", "{e}"].reduce(
			(x, letter, i) => (i < indices.length ? x.replaceAll(letter, String(indices[i])) : x),
			text,
		);
	const lines: string[] = [];
	for (const [i, indices] of expanded(order, [])) {
		const { path, rest, names } = weights[i]!;
		const entries = names.map(
			([kind, name]) =>
				`${quoted(kind)}: ${name === null ? "null" : quoted(filled(name, indices))}`,
		);
		lines.push(
			`{"path": ${quoted(filled(path, indices))}, ${writtenJson(rest).slice(1, -1)}, "names": {${entries.join(", ")}}}`,
		);
	}
	return `${writtenJson(before).slice(0, -1)}, "weights": [${lines.join(", ")}], ${writtenJson(after).slice(1)}`;
}
