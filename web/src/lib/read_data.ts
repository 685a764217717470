// The data in the page: compressed JSON in base64, in which src/llamath/web/server/packed_json.py wrote equal parts once and records as columns.
import { decompress } from "./lzma";

type Packed = [keys: string[][], parts: unknown[], root: unknown];

/** Unpacks; equal parts become the same object, so that their expressions are compiled once. */
function expand([keys, parts, root]: Packed): unknown {
	const known: unknown[] = [];
	const read = (x: unknown): unknown => {
		if (!Array.isArray(x)) return x;
		const tag: unknown = x[0];
		if (typeof tag !== "number") return x.map(read);
		if (x.length === 1) return tag ? known[tag - 1] : [];
		const values = x.slice(1).map(read);
		if (tag === 0) return values;
		const names = keys[Math.abs(tag) - 1]!;
		const record = (value: (i: number) => unknown) => Object.fromEntries(names.map((name, i) => [name, value(i)]));
		if (tag > 0) return record((i) => values[i]);
		const columns = values as unknown[][];
		return columns[0]!.map((_, row) => record((i) => columns[i]![row]));
	};
	for (const x of parts) known.push(read(x));
	return read(root);
}

/** The data that `pack_json` packed. */
export function unpack(text: string): unknown {
	const packed = Uint8Array.from(atob(text), (x) => x.charCodeAt(0));
	const length = new DataView(packed.buffer).getUint32(0);
	return expand(JSON.parse(new TextDecoder().decode(decompress(packed.subarray(4), length))) as Packed);
}

export const readData = (): unknown => unpack(document.getElementById("data")!.textContent!);
