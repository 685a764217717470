// Readers of safetensors and GGUF headers; they reject the same files as the library's Python readers.
import { parseStrictJson, refuseIf } from "./strict_json.js";

const MOST = 64 * 2 ** 20;
const SHORT = Symbol("more bytes are needed");
const U64 = 2n ** 64n;
const decimal = (n) => n.toLocaleString("en");

const counted = (shape) => shape.reduce((a, b) => a * b, 1n);
const padded = (n, to) => ((n + to - 1n) / to) * to;
const bytesAt = async (file, start, end) => new Uint8Array(await file.slice(start, end).arrayBuffer());

// Read one tensor from its header entry, with its start and end offsets.
function entry(name, found, known) {
	const [dtype, shape, place] = ["dtype", "shape", "data_offsets"].map((x) => found instanceof Map && found.get(x));
	const whole = (list, most) => Array.isArray(list) && list.length <= most && list.every((n) => typeof n === "bigint" && n >= 0n && n < U64);
	refuseIf(typeof dtype !== "string" || !whole(shape, known.limits.dimensions) || !whole(place, 2) || place.length !== 2 || found.size !== 3, "entry", name);
	refuseIf(!known.plain.has(dtype), "dtype", name, dtype.slice(0, 40));
	const [block, size] = known.types.get(dtype);
	let bits = 1n;
	for (const n of [...shape, (BigInt(size) * 8n) / BigInt(block)]) refuseIf((bits *= n) >= U64, "bits", name);
	refuseIf(bits % 8n, "bytes", name);
	refuseIf(place[1] - place[0] !== bits / 8n, "offsets", name, bits / 8n, place[1] - place[0]);
	return { name, dtype, shape, elements: counted(shape), bytes: bits / 8n, start: place[0], end: place[1] };
}

async function safetensors(file, known) {
	const head = await bytesAt(file, 0, 8);
	refuseIf(head.length < 8, "empty");
	const length = new DataView(head.buffer).getBigUint64(0, true);
	refuseIf(length > BigInt(file.size - 8), "header", length, decimal(file.size - 8));
	refuseIf(length > known.limits.safetensors, "long", length);
	const data = await bytesAt(file, 8, 8 + Number(length));
	refuseIf(data[0] !== 0x7b, "brace");
	const found = parseStrictJson(data, known.limits.tensors * 8);
	const metadata = found.get("__metadata__") ?? new Map();
	found.delete("__metadata__");
	refuseIf(!(metadata instanceof Map) || metadata.size > known.limits.strings || [...metadata].some((x) => x.some((y) => typeof y !== "string")), "metadata");
	refuseIf(found.size > known.limits.tensors, "tensors", decimal(found.size));
	for (const x of [...found.keys(), ...[...metadata].flat()]) refuseIf(!x.isWellFormed() || (found.has(x) && x.length > known.limits.name), "string");
	const tensors = [...found].map(([name, x]) => entry(name, x, known));
	let at = 0n;
	for (const x of tensors.toSorted((a, b) => Number(a.start - b.start || a.end - b.end))) {
		refuseIf(x.start !== at, "hole", x.start > at ? "a hole" : "an overlap", x.name, at);
		at = x.end;
	}
	const room = BigInt(file.size) - 8n - length;
	refuseIf(at > room, "short", at - room);
	refuseIf(at < room, "rest", room - at);
	return { format: "safetensors", tensors, metadata: [...metadata] };
}

// A cursor over a GGUF header; where the loaded bytes end, more are loaded and parsing restarts.
function walker(view, size, little) {
	let at = 24;
	const skip = (n, most = MOST) => {
		refuseIf(at + n > size, "inside", decimal(size));
		if (at + n > most) throw SHORT;
		at += n;
		return at - n;
	};
	const ahead = (n) => skip(n, view.byteLength);
	const u64 = () => view.getBigUint64(ahead(8), little);
	const long = (what, most) => {
		const n = u64();
		refuseIf(n > BigInt(most), "most", n, what, decimal(most));
		return Number(n);
	};
	const bytes = (n) => new Uint8Array(view.buffer, ahead(n), n);
	const name = (most) => {
		const data = bytes(long("bytes of a name", most));
		refuseIf(data.includes(0), "nul");
		try {
			return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
		} catch {
			return refuseIf(true, "utf");
		}
	};
	return { u32: () => view.getUint32(ahead(4), little), u64, long, bytes, skip, name, ahead, here: () => at };
}

function metadata(walk, view, count, little, known, size) {
	const found = new Map();
	let strings = known.limits.listed;
	const kind = () => {
		const number = walk.u32();
		refuseIf(number >= known.kinds.length, "value", number);
		return known.kinds[number];
	};
	const number = ([name, width, getter]) => {
		const n = view[getter](walk.ahead(width), little);
		refuseIf(name === "BOOL" && n > 1, "boolean", n);
		return name === "BOOL" ? Boolean(n) : n;
	};
	const array = () => {
		const each = kind();
		refuseIf(each[0] === "ARRAY", "arrays");
		const n = walk.long("elements of an array", known.limits.array);
		refuseIf(walk.here() + n * (each[1] || 8) > size, "array", decimal(n));
		if (each[0] === "STRING") {
			refuseIf((strings -= n) < 0, "strings", decimal(known.limits.listed));
			for (let i = 0; i < n; i += 1) walk.skip(walk.long("bytes of a string", size));
		} else {
			const tested = each[0] === "BOOL" ? Math.min(n, 512) : 0;
			for (let i = 0; i < tested; i += 1) number(each);
			walk.skip((n - tested) * each[1]);
		}
		return null;
	};
	for (let i = 0; i < count; i += 1) {
		const key = walk.name(known.limits.key);
		refuseIf(!key, "empty key");
		refuseIf(found.has(key), "key", key.slice(0, 60));
		const which = kind();
		refuseIf((known.typed.get(key) ?? which[0]) !== which[0], "typed", key, known.typed.get(key), which[0]);
		if (which[0] === "ARRAY") found.set(key, array());
		else if (which[0] === "STRING") {
			const n = walk.long("bytes of a string", size);
			if (n > 65_536) walk.skip(n);
			found.set(key, n > 65_536 ? null : new TextDecoder().decode(walk.bytes(n)));
		} else found.set(key, number(which));
	}
	return found;
}

function listed(walk, count, alignment, known) {
	const names = new Set();
	const tensors = [];
	let [end, last] = [0n, 0n];
	for (let i = 0; i < count; i += 1) {
		const name = walk.name(known.limits.tensor);
		refuseIf(names.has(name), "twice", name);
		names.add(name);
		const n = walk.u32();
		refuseIf(n > known.limits.dims, "dimensions", name, n);
		const shape = Array.from({ length: n }, () => walk.u64()).reverse();
		refuseIf(shape.includes(0n) || counted(shape) >> 62n, "shape", name);
		const number = walk.u32();
		const dtype = known.ggml.get(number);
		refuseIf(!dtype, "type", name, number);
		const [block, size] = known.types.get(dtype).map(BigInt);
		refuseIf((shape.at(-1) ?? 1n) % block, "rows", name, block, dtype);
		const offset = walk.u64();
		refuseIf(offset !== end, "begin", name, end, offset);
		const bytes = (padded(counted(shape), block) / block) * size;
		tensors.push({ name, dtype, shape, elements: counted(shape), bytes });
		last = end + bytes;
		end = padded(last, alignment);
	}
	return { tensors, last };
}

function walked(view, size, known) {
	const little = view.getUint16(4, true) !== 0;
	const version = view.getUint32(4, little);
	refuseIf(version !== 2 && version !== 3, "version", version);
	const [tensors, keys] = [view.getBigUint64(8, little), view.getBigUint64(16, little)];
	refuseIf(24n + keys * 14n + tensors * 24n > BigInt(size), "fit", tensors, keys);
	refuseIf(keys > known.limits.keys || tensors > known.limits.many, "many", tensors, keys);
	const walk = walker(view, size, little);
	const found = metadata(walk, view, Number(keys), little, known, size);
	const alignment = BigInt(found.get("general.alignment") ?? 32);
	refuseIf(!alignment || alignment & (alignment - 1n), "alignment", alignment);
	const { tensors: list, last } = listed(walk, Number(tensors), alignment, known);
	const end = list.length ? padded(BigInt(walk.here()), alignment) + last : 0n;
	refuseIf(end > BigInt(size), "short", end - BigInt(size));
	return { format: "GGUF", tensors: list, metadata: [...found].filter((x) => x[1] !== null) };
}

async function gguf(file, known) {
	refuseIf(file.size < 24, "cut");
	for (let most = 2 ** 20; ; most *= 4) {
		const data = await bytesAt(file, 0, most);
		try {
			return walked(new DataView(data.buffer), file.size, known);
		} catch (error) {
			if (error !== SHORT) throw error;
			refuseIf(most >= MOST, "longer", decimal(MOST));
		}
	}
}

export const indexFormats = (files) => ({ ...files, types: new Map(files.types.map(([name, ...x]) => [name, x])), plain: new Set(files.plain), ggml: new Map(files.ggml), typed: new Map(files.typed) });

// Read a header; the first bytes decide between GGUF and safetensors.
export const readHeader = async (file, known) => {
	const start = new TextDecoder("latin1").decode(await bytesAt(file, 0, 4));
	return (start === "GGUF" ? gguf : safetensors)(file, known);
};
