// Readers of safetensors and GGUF headers; they reject the same files as the library's Python
// readers.
import type { ParamsRule } from "./params";
import { shellWord } from "./shell_word";
import { FileError, parseStrictJson, refuse, refuseIf, type Json } from "./strict_json";

/** A metadata type of GGUF: its name, its bytes, and the method of DataView that reads it. */
type Kind = [name: string, width: number, getter: string];

/** The dtypes and limits by which headers are read, as the page's data have them. */
export interface FormatData {
	types: [name: string, block: number, bytes: number][];
	plain: string[];
	ggml: [number: number, name: string][];
	kinds: Kind[];
	groups: [group: string, pattern: string][];
	others: [what: string, pattern: string][];
	/** Files that the command line reads, and the page does not. */
	elsewhere: [what: string, pattern: string][];
	/** What an object in JSON is that has these keys, and no model type. */
	objects: [what: string, keys: string[]][];
	packed: string[];
	typed: [key: string, kind: string][];
	limits: Record<string, number>;
	headed: string[];
	nothing: string[];
	params: ParamsRule;
}

export interface Formats extends Omit<FormatData, "types" | "plain" | "ggml" | "typed"> {
	types: Map<string, [block: number, bytes: number]>;
	plain: Set<string>;
	ggml: Map<number, string>;
	typed: Map<string, string>;
}

export interface FileTensor {
	name: string;
	dtype: string;
	shape: bigint[];
	elements: bigint;
	bytes: bigint;
	/** Where its bytes begin in a safetensors file, after the header. */
	start?: bigint;
}

export interface Header {
	format: string;
	/** Where the tensors of a single safetensors file begin. */
	dataStart?: number;
	tensors: FileTensor[];
	metadata: [string, unknown][];
}

const MAX_HEADER_BYTES = 64 * 2 ** 20;
const NEEDS_MORE_BYTES = Symbol("more bytes are needed");
const U64 = 2n ** 64n;
const decimal = (n: number) => n.toLocaleString("en");

const numElements = (shape: bigint[]) => shape.reduce((a, b) => a * b, 1n);
const roundUp = (n: bigint, to: bigint) => ((n + to - 1n) / to) * to;
const bytesAt = async (file: Blob, start: number, end: number) =>
	new Uint8Array(await file.slice(start, end).arrayBuffer());

/** Reads one tensor from its header entry, with its start and end offsets. */
function readEntry(
	name: string,
	fields: Json | undefined,
	formats: Formats,
): FileTensor & { start: bigint; end: bigint } {
	const [dtype, shape, offsets] = ["dtype", "shape", "data_offsets"].map((x) =>
		fields instanceof Map ? fields.get(x) : undefined,
	);
	const isIntegerList = (list: Json | undefined, most: number): list is bigint[] =>
		Array.isArray(list) &&
		list.length <= most &&
		list.every((n) => typeof n === "bigint" && n >= 0n && n < U64);
	if (
		typeof dtype !== "string" ||
		!isIntegerList(shape, formats.limits.dimensions!) ||
		!isIntegerList(offsets, 2) ||
		offsets.length !== 2 ||
		(fields as Map<string, Json>).size !== 3
	)
		return refuse("entry", name);
	const [start, end] = offsets as [bigint, bigint];
	refuseIf(!formats.plain.has(dtype), "dtype", name, dtype.slice(0, 40));
	const [block, size] = formats.types.get(dtype)!;
	let bits = 1n;
	for (const n of [...shape, (BigInt(size) * 8n) / BigInt(block)])
		refuseIf((bits *= n) >= U64, "bits", name);
	refuseIf(bits % 8n, "bytes", name);
	refuseIf(end - start !== bits / 8n, "offsets", name, bits / 8n, end - start);
	return { name, dtype, shape, elements: numElements(shape), bytes: bits / 8n, start, end };
}

async function safetensors(file: Blob, formats: Formats): Promise<Header> {
	const prefix = await bytesAt(file, 0, 8);
	refuseIf(prefix.length < 8, "empty");
	const length = new DataView(prefix.buffer).getBigUint64(0, true);
	refuseIf(length > BigInt(file.size - 8), "header", length, decimal(file.size - 8));
	refuseIf(length > formats.limits.safetensors!, "long", length);
	const data = await bytesAt(file, 8, 8 + Number(length));
	refuseIf(data[0] !== 0x7b, "brace");
	const header = parseStrictJson(data, formats.limits.tensors! * 8) as Map<string, Json>;
	const metadata = header.get("__metadata__") ?? new Map<string, Json>();
	header.delete("__metadata__");
	if (
		!(metadata instanceof Map) ||
		metadata.size > formats.limits.strings! ||
		[...metadata].some((x) => x.some((y) => typeof y !== "string"))
	)
		return refuse("metadata");
	refuseIf(header.size > formats.limits.tensors!, "tensors", decimal(header.size));
	for (const x of [...header.keys(), ...([...metadata].flat() as string[])])
		refuseIf(!x.isWellFormed() || (header.has(x) && x.length > formats.limits.name!), "string");
	const tensors = [...header].map(([name, x]) => readEntry(name, x, formats));
	let position = 0n;
	for (const x of tensors.toSorted((a, b) => Number(a.start - b.start || a.end - b.end))) {
		refuseIf(
			x.start !== position,
			"hole",
			x.start > position ? "a hole" : "an overlap",
			x.name,
			position,
		);
		position = x.end;
	}
	const dataBytes = BigInt(file.size) - 8n - length;
	refuseIf(position > dataBytes, "short", position - dataBytes);
	refuseIf(position < dataBytes, "rest", dataBytes - position);
	const dataStart = 8 + Number(length);
	return { format: "safetensors", dataStart, tensors, metadata: [...metadata] };
}

/**
 * A cursor over a GGUF header; where the loaded bytes end, more are loaded and parsing restarts.
 */
function createCursor(view: DataView<ArrayBuffer>, size: number, little: boolean) {
	let position = 24;
	const skip = (n: number, limit = MAX_HEADER_BYTES) => {
		refuseIf(position + n > size, "inside", decimal(size));
		if (position + n > limit) throw NEEDS_MORE_BYTES;
		position += n;
		return position - n;
	};
	const advance = (n: number) => skip(n, view.byteLength);
	const u64 = () => view.getBigUint64(advance(8), little);
	const readCount = (what: string, limit: number) => {
		const n = u64();
		refuseIf(n > BigInt(limit), "most", n, what, decimal(limit));
		return Number(n);
	};
	const bytes = (n: number) => new Uint8Array(view.buffer, advance(n), n);
	const readName = (limit: number): string => {
		const data = bytes(readCount("bytes of a name", limit));
		refuseIf(data.includes(0), "nul");
		try {
			return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
		} catch {
			return refuse("utf");
		}
	};
	return {
		u32: () => view.getUint32(advance(4), little),
		u64,
		readCount,
		bytes,
		skip,
		readName,
		advance,
		position: () => position,
	};
}

function readMetadata(
	cursor: ReturnType<typeof createCursor>,
	view: DataView<ArrayBuffer>,
	count: number,
	little: boolean,
	formats: Formats,
	size: number,
) {
	const values = new Map<string, unknown>();
	let strings = formats.limits.listed!;
	const readType = (): Kind => {
		const index = cursor.u32();
		refuseIf(index >= formats.kinds.length, "value", index);
		return formats.kinds[index]!;
	};
	const readNumber = ([name, width, getter]: Kind) => {
		const n = (
			view as unknown as Record<string, (at: number, little: boolean) => number | bigint>
		)[getter]!(cursor.advance(width), little);
		refuseIf(name === "BOOL" && n > 1, "boolean", n);
		return name === "BOOL" ? Boolean(n) : n;
	};
	const readArray = () => {
		const elementType = readType();
		refuseIf(elementType[0] === "ARRAY", "arrays");
		const n = cursor.readCount("elements of an array", formats.limits.array!);
		refuseIf(cursor.position() + n * (elementType[1] || 8) > size, "array", decimal(n));
		if (elementType[0] === "STRING") {
			refuseIf((strings -= n) < 0, "strings", decimal(formats.limits.listed!));
			for (let i = 0; i < n; i += 1) cursor.skip(cursor.readCount("bytes of a string", size));
		} else {
			const numChecked = elementType[0] === "BOOL" ? Math.min(n, 512) : 0;
			for (let i = 0; i < numChecked; i += 1) readNumber(elementType);
			cursor.skip((n - numChecked) * elementType[1]);
		}
		return null;
	};
	for (let i = 0; i < count; i += 1) {
		const key = cursor.readName(formats.limits.key!);
		refuseIf(!key, "empty key");
		refuseIf(values.has(key), "key", key.slice(0, 60));
		const type = readType();
		refuseIf(
			(formats.typed.get(key) ?? type[0]) !== type[0],
			"typed",
			key,
			formats.typed.get(key),
			type[0],
		);
		if (type[0] === "ARRAY") values.set(key, readArray());
		else if (type[0] === "STRING") {
			const n = cursor.readCount("bytes of a string", size);
			if (n > 65_536) cursor.skip(n);
			values.set(key, n > 65_536 ? null : new TextDecoder().decode(cursor.bytes(n)));
		} else values.set(key, readNumber(type));
	}
	return values;
}

function readTensors(
	cursor: ReturnType<typeof createCursor>,
	count: number,
	alignment: bigint,
	formats: Formats,
) {
	const names = new Set<string>();
	const tensors: FileTensor[] = [];
	let [end, last] = [0n, 0n];
	for (let i = 0; i < count; i += 1) {
		const name = cursor.readName(formats.limits.tensor!);
		refuseIf(names.has(name), "twice", name);
		names.add(name);
		const n = cursor.u32();
		refuseIf(n > formats.limits.dims!, "dimensions", name, n);
		const shape = Array.from({ length: n }, () => cursor.u64()).reverse();
		refuseIf(shape.includes(0n) || numElements(shape) >> 62n, "shape", name);
		const number = cursor.u32();
		const dtype = formats.ggml.get(number);
		if (!dtype) return refuse("type", name, number);
		const [block, size] = formats.types.get(dtype)!.map(BigInt) as [bigint, bigint];
		refuseIf((shape.at(-1) ?? 1n) % block, "rows", name, block, dtype);
		const offset = cursor.u64();
		refuseIf(offset !== end, "begin", name, end, offset);
		const bytes = (roundUp(numElements(shape), block) / block) * size;
		tensors.push({ name, dtype, shape, elements: numElements(shape), bytes });
		last = end + bytes;
		end = roundUp(last, alignment);
	}
	return { tensors, last };
}

function parseGguf(view: DataView<ArrayBuffer>, size: number, formats: Formats): Header {
	const little = view.getUint16(4, true) !== 0;
	const version = view.getUint32(4, little);
	refuseIf(version !== 2 && version !== 3, "version", version);
	const [numTensors, numKeys] = [view.getBigUint64(8, little), view.getBigUint64(16, little)];
	refuseIf(24n + numKeys * 14n + numTensors * 24n > BigInt(size), "fit", numTensors, numKeys);
	refuseIf(
		numKeys > formats.limits.keys! || numTensors > formats.limits.many!,
		"many",
		numTensors,
		numKeys,
	);
	const cursor = createCursor(view, size, little);
	const values = readMetadata(cursor, view, Number(numKeys), little, formats, size);
	const alignment = BigInt((values.get("general.alignment") as number | undefined) ?? 32);
	refuseIf(!alignment || alignment & (alignment - 1n), "alignment", alignment);
	const { tensors: list, last } = readTensors(cursor, Number(numTensors), alignment, formats);
	const end = list.length ? roundUp(BigInt(cursor.position()), alignment) + last : 0n;
	refuseIf(end > BigInt(size), "short", end - BigInt(size));
	return { format: "GGUF", tensors: list, metadata: [...values].filter((x) => x[1] !== null) };
}

async function gguf(file: Blob, formats: Formats): Promise<Header> {
	refuseIf(file.size < 24, "cut");
	for (let numBytes = 2 ** 20; ; numBytes *= 4) {
		const data = await bytesAt(file, 0, numBytes);
		try {
			return parseGguf(new DataView(data.buffer), file.size, formats);
		} catch (error) {
			if (error !== NEEDS_MORE_BYTES) throw error;
			refuseIf(numBytes >= MAX_HEADER_BYTES, "longer", decimal(MAX_HEADER_BYTES));
		}
	}
}

export const indexFormats = (files: FormatData): Formats => ({
	...files,
	types: new Map(files.types.map(([name, ...x]) => [name, x] as const)),
	plain: new Set(files.plain),
	ggml: new Map(files.ggml),
	typed: new Map(files.typed),
});

/**
 * Refuses a Git LFS pointer, a web page and other files that stand in the place of the expected
 * one, by their first bytes.
 */
export async function refuseOther(
	file: Blob,
	formats: Pick<Formats, "others">,
	expected: string,
): Promise<void> {
	const head = String.fromCharCode(...(await bytesAt(file, 0, 1024)));
	const found = formats.others.find(
		([what, pattern]) =>
			(expected === "a checkpoint" || !/^a (JSON|text) file$/.test(what)) &&
			new RegExp(pattern, "is").test(head),
	);
	if (found)
		refuse("instead", found[0], /pointer$/.test(found[0]) ? "the file itself" : expected);
}

/** Reads a header; the first bytes decide between GGUF and safetensors. */
export const readHeader = async (file: Blob, formats: Formats): Promise<Header> => {
	const start = String.fromCharCode(...(await bytesAt(file, 0, 9)));
	if (start.startsWith("GGUF")) return gguf(file, formats);
	const other = formats.elsewhere.find(([, pattern]) => new RegExp(pattern, "s").test(start));
	if (other) refuse("elsewhere", other[0], shellWord(file instanceof File ? file.name : ""));
	if (start.slice(5) !== "\0\0\0{") await refuseOther(file, formats, "a checkpoint");
	return safetensors(file, formats);
};

/** Reads the headers of the files of one checkpoint as one. */
export async function readHeaders(
	files: readonly File[],
	read: (file: File) => Promise<Header>,
): Promise<Header> {
	const headers: Header[] = [];
	for (const file of files) {
		try {
			headers.push(await read(file));
		} catch (error) {
			// the server names the file itself
			throw error instanceof FileError && !error.message.startsWith(`the file ${file.name}`)
				? new FileError(`${file.name}: ${error.message}`)
				: error;
		}
	}
	const names = new Set<string>();
	for (const x of headers.flatMap((header) => header.tensors)) {
		refuseIf(names.has(x.name), "twice", x.name);
		names.add(x.name);
	}
	return {
		format: headers[0]!.format,
		tensors: headers.flatMap((x) => x.tensors),
		metadata: headers[0]!.metadata,
	};
}
