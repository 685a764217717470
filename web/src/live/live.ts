// The script of pages with a live model: opens it from the page's own data. It stands before the
// page's script, in the same hash, and holds the module of the engine.
import { decompressBytes, bytesOfBase64 } from "../lib/read_data";
import { Engine, EngineError, EngineTrap, type Sampling, type StoredWeight } from "./engine";
import type { LiveData, LiveModel, LiveScript } from "./live_model";
import { uniformNumbers } from "./random";
import { Tokenizer } from "./tokenizer";

/** The module, compressed, in base64: written before this script where the page is made. */
declare const LLAMATH_ENGINE: string;

const textOf = (id: string): string => {
	const text = document.getElementById(id)?.textContent;
	if (!text) throw new Error("the page holds no model");
	return text;
};

/** Weights as they are stored: the low bytes of 16-bit halves as they are, the high ones compressed. */
async function readBytes(): Promise<Uint8Array> {
	const low = bytesOfBase64(textOf("live-low"));
	const high = await decompressBytes(textOf("live-high"));
	if (low.length !== high.length) throw new Error("the weights in the page are cut off");
	const all = new Uint8Array(2 * low.length);
	for (let i = 0; i < low.length; i++) {
		all[2 * i] = low[i]!;
		all[2 * i + 1] = high[i]!;
	}
	return all;
}

/** Stored values as float32. */
function toFloats({ type, bytes }: StoredWeight): Float32Array {
	const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	if (type === "F32")
		return Float32Array.from({ length: bytes.length / 4 }, (_, i) =>
			view.getFloat32(4 * i, true),
		);
	const halves = Uint16Array.from({ length: bytes.length / 2 }, (_, i) =>
		view.getUint16(2 * i, true),
	);
	if (type === "BF16") return new Float32Array(Uint32Array.from(halves, (x) => x << 16).buffer);
	return Float32Array.from(halves, (x) => {
		const [exponent, fraction] = [(x >> 10) & 31, x & 1023];
		const size =
			exponent === 31
				? fraction
					? Number.NaN
					: Infinity
				: exponent
					? (1 + fraction / 1024) * 2 ** (exponent - 15)
					: (fraction / 1024) * 2 ** -14;
		return x & 0x8000 ? -size : size;
	});
}

class PageModel implements LiveModel {
	readonly tokenizer: Tokenizer;
	#logits = new Float32Array();
	readonly #floats = new Map<string, Float32Array>();

	constructor(
		readonly data: LiveData,
		readonly engine: Engine,
		readonly weights: ReadonlyMap<string, StoredWeight>,
	) {
		this.tokenizer = new Tokenizer(data.tokenizer);
	}

	run(ids: readonly number[]): void {
		this.#logits = this.engine.forward(ids, { all: true });
	}

	values(step: string): Float32Array {
		return this.engine.values(step).data;
	}

	attention(step: string): Float32Array {
		return this.engine.values(step).data;
	}

	logits(): Float32Array {
		const { numLogits, vocab } = this.engine;
		if (numLogits === vocab) return this.#logits;
		const rows = this.#logits.length / numLogits;
		const kept = new Float32Array(rows * vocab);
		for (let i = 0; i < rows; i++)
			kept.set(this.#logits.subarray(i * numLogits, i * numLogits + vocab), i * vocab);
		return kept;
	}

	truncate(length: number): number {
		try {
			this.engine.truncate(length);
			return length;
		} catch (error) {
			if (error instanceof EngineTrap || !(error instanceof EngineError)) throw error;
			this.engine.truncate(0);
			return 0;
		}
	}

	choose(sampling: Sampling, uniform: number): number {
		return this.engine.sample(
			uniform,
			sampling,
			this.#logits.length / this.engine.numLogits - 1,
		);
	}

	#weight(path: string): Float32Array {
		let found = this.#floats.get(path);
		if (!found) {
			const stored = this.weights.get(path);
			if (!stored) throw new Error(`the page has no weight ${path}`);
			this.#floats.set(path, (found = toFloats(stored)));
		}
		return found;
	}

	weight(path: string): Float32Array | null {
		return this.weights.has(path) ? this.#weight(path) : null;
	}

	lens(stream: Float32Array): Float32Array {
		const { lens } = this.data;
		if (!lens) throw new Error("the model ends in other steps");
		const [norm, head] = [this.#weight(lens.norm), this.#weight(lens.head)];
		const width = stream.length;
		const square = stream.reduce((n, x) => n + x * x, 0) / width;
		const scale = 1 / Math.sqrt(square + lens.eps);
		const x = stream.map((value, i) => value * scale * (norm[i]! + lens.offset));
		return Float32Array.from({ length: this.engine.vocab }, (_, row) => {
			let sum = 0;
			for (let i = 0; i < width; i++) sum += head[row * width + i]! * x[i]!;
			return sum;
		});
	}
}

/** The weights that the page holds. */
async function ownWeights(data: LiveData): Promise<Map<string, StoredWeight>> {
	const all = await readBytes();
	return new Map(
		data.weights.map(([path, type, start, size]) => {
			if (start + size > all.length) throw new Error("the weights in the page are cut off");
			return [path, { type, bytes: all.subarray(start, start + size) }];
		}),
	);
}

async function open(data: LiveData, given?: ReadonlyMap<string, StoredWeight>): Promise<LiveModel> {
	const [code, program, weights] = await Promise.all([
		decompressBytes(LLAMATH_ENGINE),
		decompressBytes(textOf("live-program")),
		given ?? ownWeights(data),
	]);
	const engine = await Engine.load(code, program, (path) => weights.get(path));
	return new PageModel(data, engine, weights);
}

globalThis.llamathLive = { open, uniformNumbers, Tokenizer } satisfies LiveScript;
