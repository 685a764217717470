// The output of `count --json`, from its parts: each weight is sent once, and `order` says where it repeats.
export interface CountParts {
	before: string;
	after: string;
	weights: { path: string; rest: string; names: [string, string | null][] }[];
	order: Order;
}

/** A number is a weight; a list holds runs: the blocks of a pattern, and how often it is repeated. */
type Order = (number | [Order[], number][])[];

/** Quotes a string as Python's json.dumps does. */
const quoted = (text: string) => JSON.stringify(text).replace(/[\u0080-\uffff]/g, (x) => `\\u${x.charCodeAt(0).toString(16).padStart(4, "0")}`);

function* expanded(items: Order, indices: number[]): Generator<[number, number[]]> {
	for (const x of items) {
		if (typeof x === "number") yield [x, indices];
		else {
			let i = 0;
			for (const [blocks, times] of x) for (let n = 0; n < times; n += 1) for (const block of blocks) yield* expanded(block, [...indices, i++]);
		}
	}
}

export function countJson({ before, after, weights, order }: CountParts): string {
	const filled = (text: string, indices: number[]) => ["{l}", "{e}"].reduce((x, letter, i) => (i < indices.length ? x.replaceAll(letter, String(indices[i])) : x), text);
	const lines: string[] = [];
	for (const [i, indices] of expanded(order, [])) {
		const { path, rest, names } = weights[i]!;
		const entries = names.map(([kind, name]) => `${quoted(kind)}: ${name === null ? "null" : quoted(filled(name, indices))}`);
		lines.push(`{"path": ${quoted(filled(path, indices))}, ${rest.slice(1, -1)}, "names": {${entries.join(", ")}}}`);
	}
	return `${before.slice(0, -1)}, "weights": [${lines.join(", ")}], ${after.slice(1)}`;
}
