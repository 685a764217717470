// What safetensors and GGUF files say of their tensors, read from their first bytes alone; refused as the library's readers refuse.
import { parsed, Refused } from "./strict.js";

const MOST = 64 * 2 ** 20;
const SHORT = Symbol("more bytes are needed");
const U64 = 2n ** 64n;
const said = (n) => n.toLocaleString("en");

function refuse(condition, message) {
	if (condition) throw new Refused(message);
}

const counted = (shape) => shape.reduce((a, b) => a * b, 1n);
const padded = (n, to) => ((n + to - 1n) / to) * to;
const bytesAt = async (file, start, end) => new Uint8Array(await file.slice(start, end).arrayBuffer());

// A tensor from its header's entry, with where it begins and ends.
function entry(name, found, known) {
	const [dtype, shape, place] = ["dtype", "shape", "data_offsets"].map((x) => found instanceof Map && found.get(x));
	const whole = (list, most) => Array.isArray(list) && list.length <= most && list.every((n) => typeof n === "bigint" && n >= 0n && n < U64);
	refuse(typeof dtype !== "string" || !whole(shape, known.limits.dimensions) || !whole(place, 2) || place.length !== 2 || found.size !== 3, `${name} should have a dtype, a shape and two data_offsets`);
	refuse(!known.plain.has(dtype), `${name} has the unknown dtype ${dtype.slice(0, 40)}`);
	const [block, size] = known.types.get(dtype);
	let bits = 1n;
	for (const n of [...shape, (BigInt(size) * 8n) / BigInt(block)]) refuse((bits *= n) >= U64, `${name} has more bits than 64 bits count`);
	refuse(bits % 8n, `${name} is no whole number of bytes`);
	refuse(place[1] - place[0] !== bits / 8n, `${name}: ${bits / 8n} bytes, its offsets ${place[1] - place[0]} apart`);
	return { name, dtype, shape, elements: counted(shape), bytes: bits / 8n, start: place[0], end: place[1] };
}

async function safetensors(file, known) {
	const head = await bytesAt(file, 0, 8);
	refuse(head.length < 8, "it ends before its header begins");
	const length = new DataView(head.buffer).getBigUint64(0, true);
	refuse(length > BigInt(file.size - 8), `its header should have ${length} bytes; ${said(file.size - 8)} follow`);
	refuse(length > known.limits.safetensors, `its header has ${length} bytes, more than are read`);
	const data = await bytesAt(file, 8, 8 + Number(length));
	refuse(data[0] !== 0x7b, "its header should begin with {");
	const found = parsed(data, known.limits.tensors * 8);
	const metadata = found.get("__metadata__") ?? new Map();
	found.delete("__metadata__");
	refuse(!(metadata instanceof Map) || metadata.size > known.limits.strings || [...metadata].some((x) => x.some((y) => typeof y !== "string")), "__metadata__ should be an object of strings");
	refuse(found.size > known.limits.tensors, `${said(found.size)} tensors are more than are read`);
	for (const x of [...found.keys(), ...[...metadata].flat()]) refuse(!x.isWellFormed() || (found.has(x) && x.length > known.limits.name), "a string is too long, or has lone surrogates");
	const tensors = [...found].map(([name, x]) => entry(name, x, known));
	let at = 0n;
	for (const x of tensors.toSorted((a, b) => Number(a.start - b.start || a.end - b.end))) {
		refuse(x.start !== at, `${x.start > at ? "a hole" : "an overlap"} before ${x.name}, at byte ${at} of the tensors`);
		at = x.end;
	}
	const room = BigInt(file.size) - 8n - length;
	refuse(at > room, `it is ${at - room} bytes short`);
	refuse(at < room, `${room - at} bytes at its end belong to no tensor`);
	return { format: "safetensors", tensors, metadata: [...metadata] };
}

// A walk through a GGUF header; whoever asks for bytes that are not there yet gets more and walks again.
function walker(view, size, little) {
	let at = 24;
	const skip = (n, most = MOST) => {
		refuse(at + n > size, `it ends inside its header, at byte ${said(size)}`);
		if (at + n > most) throw SHORT;
		at += n;
		return at - n;
	};
	const ahead = (n) => skip(n, view.byteLength);
	const u64 = () => view.getBigUint64(ahead(8), little);
	const long = (what, most) => {
		const n = u64();
		refuse(n > BigInt(most), `${n} ${what}; at most ${said(most)}`);
		return Number(n);
	};
	const bytes = (n) => new Uint8Array(view.buffer, ahead(n), n);
	const name = (most) => {
		const data = bytes(long("bytes of a name", most));
		refuse(data.includes(0), "a name holds a NUL");
		try {
			return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
		} catch {
			throw new Refused("a name is not UTF-8");
		}
	};
	return { u32: () => view.getUint32(ahead(4), little), u64, long, bytes, skip, name, ahead, here: () => at };
}

function metadata(walk, view, count, little, known, size) {
	const found = new Map();
	let strings = known.limits.listed;
	const kind = () => {
		const number = walk.u32();
		refuse(number >= known.kinds.length, `a value of the unknown type ${number}`);
		return known.kinds[number];
	};
	const number = ([name, width, getter]) => {
		const n = view[getter](walk.ahead(width), little);
		refuse(name === "BOOL" && n > 1, `a boolean is ${n}`);
		return name === "BOOL" ? Boolean(n) : n;
	};
	const array = () => {
		const each = kind();
		refuse(each[0] === "ARRAY", "an array of arrays");
		const n = walk.long("elements of an array", known.limits.array);
		refuse(walk.here() + n * (each[1] || 8) > size, `an array of ${said(n)} elements does not fit the file`);
		if (each[0] === "STRING") {
			refuse((strings -= n) < 0, `more than ${said(known.limits.listed)} strings in arrays`);
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
		refuse(!key || found.has(key), key ? `the key ${key.slice(0, 60)} occurs twice` : "an empty key");
		const which = kind();
		refuse((known.typed.get(key) ?? which[0]) !== which[0], `${key} should be ${known.typed.get(key)}, not ${which[0]}`);
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
		refuse(names.has(name), `the tensor ${name} occurs twice`);
		names.add(name);
		const n = walk.u32();
		refuse(n > known.limits.dims, `${name} has ${n} dimensions`);
		const shape = Array.from({ length: n }, () => walk.u64()).reverse();
		refuse(shape.includes(0n) || counted(shape) >> 62n, `${name} has an empty dimension, or too many elements`);
		const number = walk.u32();
		const dtype = known.ggml.get(number);
		refuse(!dtype, `${name} has the unknown type ${number}`);
		const [block, size] = known.types.get(dtype).map(BigInt);
		refuse((shape.at(-1) ?? 1n) % block, `${name}: rows should be a multiple of ${block} elements for ${dtype}`);
		const offset = walk.u64();
		refuse(offset !== end, `${name} should begin at ${end} of the tensors, not at ${offset}`);
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
	refuse(version !== 2 && version !== 3, `GGUF's version should be 2 or 3, not ${version}`);
	const [tensors, keys] = [view.getBigUint64(8, little), view.getBigUint64(16, little)];
	refuse(24n + keys * 14n + tensors * 24n > BigInt(size), `${tensors} tensors and ${keys} keys do not fit the file`);
	refuse(keys > known.limits.keys || tensors > known.limits.many, `${tensors} tensors and ${keys} keys are more than are read`);
	const walk = walker(view, size, little);
	const found = metadata(walk, view, Number(keys), little, known, size);
	const alignment = BigInt(found.get("general.alignment") ?? 32);
	refuse(!alignment || alignment & (alignment - 1n), `the alignment should be a power of two, not ${alignment}`);
	const { tensors: list, last } = listed(walk, Number(tensors), alignment, known);
	const end = list.length ? padded(BigInt(walk.here()), alignment) + last : 0n;
	refuse(end > BigInt(size), `it is ${end - BigInt(size)} bytes short`);
	return { format: "GGUF", tensors: list, metadata: [...found].filter((x) => x[1] !== null) };
}

async function gguf(file, known) {
	refuse(file.size < 24, "it ends inside its header");
	for (let most = 2 ** 20; ; most *= 4) {
		const data = await bytesAt(file, 0, most);
		try {
			return walked(new DataView(data.buffer), file.size, known);
		} catch (error) {
			if (error !== SHORT) throw error;
			refuse(most >= MOST, `its header is longer than ${said(MOST)} bytes`);
		}
	}
}

export const knowing = (files) => ({ ...files, types: new Map(files.types.map(([name, ...x]) => [name, x])), plain: new Set(files.plain), ggml: new Map(files.ggml), typed: new Map(files.typed) });

// What a file holds, by its first bytes and, for safetensors, its name.
export const headerOf = async (file, known) => {
	const start = new TextDecoder("latin1").decode(await bytesAt(file, 0, 4));
	return (start === "GGUF" ? gguf : safetensors)(file, known);
};
