// What safetensors and GGUF headers say of their tensors, refused as the library's readers refuse.
import { parsed, refuse } from "./strict.js";

const MOST = 64 * 2 ** 20;
const SHORT = Symbol("more bytes are needed");
const U64 = 2n ** 64n;
const said = (n) => n.toLocaleString("en");

const counted = (shape) => shape.reduce((a, b) => a * b, 1n);
const padded = (n, to) => ((n + to - 1n) / to) * to;
const bytesAt = async (file, start, end) => new Uint8Array(await file.slice(start, end).arrayBuffer());

// A tensor from its header's entry, with where it begins and ends.
function entry(name, found, known) {
	const [dtype, shape, place] = ["dtype", "shape", "data_offsets"].map((x) => found instanceof Map && found.get(x));
	const whole = (list, most) => Array.isArray(list) && list.length <= most && list.every((n) => typeof n === "bigint" && n >= 0n && n < U64);
	refuse(typeof dtype !== "string" || !whole(shape, known.limits.dimensions) || !whole(place, 2) || place.length !== 2 || found.size !== 3, "entry", name);
	refuse(!known.plain.has(dtype), "dtype", name, dtype.slice(0, 40));
	const [block, size] = known.types.get(dtype);
	let bits = 1n;
	for (const n of [...shape, (BigInt(size) * 8n) / BigInt(block)]) refuse((bits *= n) >= U64, "bits", name);
	refuse(bits % 8n, "bytes", name);
	refuse(place[1] - place[0] !== bits / 8n, "offsets", name, bits / 8n, place[1] - place[0]);
	return { name, dtype, shape, elements: counted(shape), bytes: bits / 8n, start: place[0], end: place[1] };
}

async function safetensors(file, known) {
	const head = await bytesAt(file, 0, 8);
	refuse(head.length < 8, "empty");
	const length = new DataView(head.buffer).getBigUint64(0, true);
	refuse(length > BigInt(file.size - 8), "header", length, said(file.size - 8));
	refuse(length > known.limits.safetensors, "long", length);
	const data = await bytesAt(file, 8, 8 + Number(length));
	refuse(data[0] !== 0x7b, "brace");
	const found = parsed(data, known.limits.tensors * 8);
	const metadata = found.get("__metadata__") ?? new Map();
	found.delete("__metadata__");
	refuse(!(metadata instanceof Map) || metadata.size > known.limits.strings || [...metadata].some((x) => x.some((y) => typeof y !== "string")), "metadata");
	refuse(found.size > known.limits.tensors, "tensors", said(found.size));
	for (const x of [...found.keys(), ...[...metadata].flat()]) refuse(!x.isWellFormed() || (found.has(x) && x.length > known.limits.name), "string");
	const tensors = [...found].map(([name, x]) => entry(name, x, known));
	let at = 0n;
	for (const x of tensors.toSorted((a, b) => Number(a.start - b.start || a.end - b.end))) {
		refuse(x.start !== at, "hole", x.start > at ? "a hole" : "an overlap", x.name, at);
		at = x.end;
	}
	const room = BigInt(file.size) - 8n - length;
	refuse(at > room, "short", at - room);
	refuse(at < room, "rest", room - at);
	return { format: "safetensors", tensors, metadata: [...metadata] };
}

// A walk through a GGUF header; where bytes are not there yet, more are read and it is walked again.
function walker(view, size, little) {
	let at = 24;
	const skip = (n, most = MOST) => {
		refuse(at + n > size, "inside", said(size));
		if (at + n > most) throw SHORT;
		at += n;
		return at - n;
	};
	const ahead = (n) => skip(n, view.byteLength);
	const u64 = () => view.getBigUint64(ahead(8), little);
	const long = (what, most) => {
		const n = u64();
		refuse(n > BigInt(most), "most", n, what, said(most));
		return Number(n);
	};
	const bytes = (n) => new Uint8Array(view.buffer, ahead(n), n);
	const name = (most) => {
		const data = bytes(long("bytes of a name", most));
		refuse(data.includes(0), "nul");
		try {
			return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
		} catch {
			return refuse(true, "utf");
		}
	};
	return { u32: () => view.getUint32(ahead(4), little), u64, long, bytes, skip, name, ahead, here: () => at };
}

function metadata(walk, view, count, little, known, size) {
	const found = new Map();
	let strings = known.limits.listed;
	const kind = () => {
		const number = walk.u32();
		refuse(number >= known.kinds.length, "value", number);
		return known.kinds[number];
	};
	const number = ([name, width, getter]) => {
		const n = view[getter](walk.ahead(width), little);
		refuse(name === "BOOL" && n > 1, "boolean", n);
		return name === "BOOL" ? Boolean(n) : n;
	};
	const array = () => {
		const each = kind();
		refuse(each[0] === "ARRAY", "arrays");
		const n = walk.long("elements of an array", known.limits.array);
		refuse(walk.here() + n * (each[1] || 8) > size, "array", said(n));
		if (each[0] === "STRING") {
			refuse((strings -= n) < 0, "strings", said(known.limits.listed));
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
		refuse(!key, "empty key");
		refuse(found.has(key), "key", key.slice(0, 60));
		const which = kind();
		refuse((known.typed.get(key) ?? which[0]) !== which[0], "typed", key, known.typed.get(key), which[0]);
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
		refuse(names.has(name), "twice", name);
		names.add(name);
		const n = walk.u32();
		refuse(n > known.limits.dims, "dimensions", name, n);
		const shape = Array.from({ length: n }, () => walk.u64()).reverse();
		refuse(shape.includes(0n) || counted(shape) >> 62n, "shape", name);
		const number = walk.u32();
		const dtype = known.ggml.get(number);
		refuse(!dtype, "type", name, number);
		const [block, size] = known.types.get(dtype).map(BigInt);
		refuse((shape.at(-1) ?? 1n) % block, "rows", name, block, dtype);
		const offset = walk.u64();
		refuse(offset !== end, "begin", name, end, offset);
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
	refuse(version !== 2 && version !== 3, "version", version);
	const [tensors, keys] = [view.getBigUint64(8, little), view.getBigUint64(16, little)];
	refuse(24n + keys * 14n + tensors * 24n > BigInt(size), "fit", tensors, keys);
	refuse(keys > known.limits.keys || tensors > known.limits.many, "many", tensors, keys);
	const walk = walker(view, size, little);
	const found = metadata(walk, view, Number(keys), little, known, size);
	const alignment = BigInt(found.get("general.alignment") ?? 32);
	refuse(!alignment || alignment & (alignment - 1n), "alignment", alignment);
	const { tensors: list, last } = listed(walk, Number(tensors), alignment, known);
	const end = list.length ? padded(BigInt(walk.here()), alignment) + last : 0n;
	refuse(end > BigInt(size), "short", end - BigInt(size));
	return { format: "GGUF", tensors: list, metadata: [...found].filter((x) => x[1] !== null) };
}

async function gguf(file, known) {
	refuse(file.size < 24, "cut");
	for (let most = 2 ** 20; ; most *= 4) {
		const data = await bytesAt(file, 0, most);
		try {
			return walked(new DataView(data.buffer), file.size, known);
		} catch (error) {
			if (error !== SHORT) throw error;
			refuse(most >= MOST, "longer", said(MOST));
		}
	}
}

export const knowing = (files) => ({ ...files, types: new Map(files.types.map(([name, ...x]) => [name, x])), plain: new Set(files.plain), ggml: new Map(files.ggml), typed: new Map(files.typed) });

// What a file holds, by its first bytes and, for safetensors, its name.
export const headerOf = async (file, known) => {
	const start = new TextDecoder("latin1").decode(await bytesAt(file, 0, 4));
	return (start === "GGUF" ? gguf : safetensors)(file, known);
};
