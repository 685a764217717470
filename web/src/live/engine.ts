// The engine in WebAssembly: a program, its weights and one sequence. `live.cpp` checks all that
// it is given; here are the types.

/** The functions of `live.cpp`; addresses and sizes are numbers. */
interface Exports {
	memory: WebAssembly.Memory;
	_initialize(): void;
	live_alloc(bytes: number): number;
	live_free(data: number): void;
	live_message(): number;
	live_open(program: number, bytes: number): number;
	live_names(live: number): number;
	live_names_bytes(live: number): number;
	live_num_weights(live: number): number;
	live_num_results(live: number): number;
	live_max_length(live: number): number;
	live_num_logits(live: number): number;
	live_vocab(live: number): number;
	live_weight(live: number, number: number, type: number): number;
	live_weight_bytes(live: number, number: number): number;
	live_start(live: number): number;
	live_length(live: number): number;
	live_truncate(live: number, length: number): number;
	live_forward(live: number, ids: number, count: number, all: number): number;
	live_logits(live: number, row: number): number;
	live_values(live: number, result: number): number;
	live_attention(live: number, result: number): number;
	live_shape(live: number): number;
	live_sample(
		live: number,
		row: number,
		temperature: number,
		topK: number,
		topP: number,
		u: number,
	): number;
}

/** Types of stored weights by the names of safetensors, and their numbers in the module. */
const TYPES = { F32: 0, F16: 1, BF16: 30 } as const;
const BYTES = { F32: 4, F16: 2, BF16: 2 } as const;

export type WeightType = keyof typeof TYPES;
export const isWeightType = (name: string): name is WeightType => name in TYPES;

/** The values of a weight as they are stored, row by row. */
export interface StoredWeight {
	readonly type: WeightType;
	readonly bytes: Uint8Array;
}

/** The stored weight of a path in the tree of the model, such as `layers.0.attn.q`. */
export type WeightSource = (path: string) => StoredWeight | undefined;

/** Numbers of the last pass: [tokens, heads, numbers], or [tokens, heads, keys] of attention. */
export interface Values {
	readonly shape: readonly [tokens: number, heads: number, numbers: number];
	readonly data: Float32Array<ArrayBuffer>;
}

export interface Sampling {
	/** 0 is greedy. */
	readonly temperature?: number;
	/** 0: all tokens. */
	readonly topK?: number;
	readonly topP?: number;
}

export interface ForwardOptions {
	/** Tokens to keep of those that were read before, if not all. */
	readonly position?: number;
	/** Return the logits of each token, one row after the other, and not only of the last. */
	readonly all?: boolean;
}

/** The engine refused what it was given; it goes on. */
export class EngineError extends Error {
	override name = "EngineError";
}

/** The module has stopped; `Engine.restart` makes another instance with an empty sequence. */
export class EngineTrap extends EngineError {
	override name = "EngineTrap";
}

interface Names {
	readonly results: readonly (readonly [name: string, attention: string])[];
	readonly weights: readonly (readonly string[])[];
}

type Place = readonly [result: number, isAttention: boolean];

export class Engine {
	#exports: Exports | null = null;
	#live = 0;
	#places = new Map<string, Place>();
	readonly #module: WebAssembly.Module;
	readonly #program: Uint8Array;
	readonly #weights: WeightSource;

	private constructor(module: WebAssembly.Module, program: Uint8Array, weights: WeightSource) {
		this.#module = module;
		this.#program = program;
		this.#weights = weights;
	}

	/** Compile the module, read a program (`program_bytes` in Python) and copy its weights. */
	static async load(
		code: WebAssembly.Module | BufferSource,
		program: Uint8Array,
		weights: WeightSource,
	): Promise<Engine> {
		const module = code instanceof WebAssembly.Module ? code : await WebAssembly.compile(code);
		const engine = new Engine(module, program, weights);
		await engine.restart();
		return engine;
	}

	/** Make a new instance of the module, whose sequence is empty. */
	async restart(): Promise<void> {
		this.#exports = null;
		const instance = await WebAssembly.instantiate(this.#module, {});
		const e = (this.#exports = instance.exports as unknown as Exports);
		this.#try(() => {
			e._initialize();
			this.#live = this.#open(e);
			const names = this.#readNames(e);
			names.weights.forEach((paths, i) => this.#copyWeight(e, i, paths));
			if (e.live_start(this.#live)) throw this.#refusal(e);
			this.#places = new Map(
				names.results.flatMap(([name, attention], i): [string, Place][] => [
					...(attention ? [[attention, [i, true]] as [string, Place]] : []),
					[name, [i, false]],
				]),
			);
		});
	}

	/** The names of all results, in the order of the pass. */
	get names(): string[] {
		return [...this.#places.keys()];
	}
	/** Tokens of the sequence. */
	get length(): number {
		return this.#call((e) => e.live_length(this.#live));
	}
	/** The most tokens that a sequence has in this program. */
	get maxLength(): number {
		return this.#call((e) => e.live_max_length(this.#live));
	}
	/** Numbers of a row of logits, and tokens among them that the model can read. */
	get numLogits(): number {
		return this.#call((e) => e.live_num_logits(this.#live));
	}
	get vocab(): number {
		return this.#call((e) => e.live_vocab(this.#live));
	}
	/** Bytes of the module's memory. */
	get memoryBytes(): number {
		return this.#call((e) => e.memory.buffer.byteLength);
	}

	/** Read tokens after those of the sequence, and return logits. */
	forward(ids: readonly number[], options: ForwardOptions = {}): Float32Array<ArrayBuffer> {
		const { position, all = false } = options;
		if (position !== undefined) this.truncate(position);
		return this.#call((e) => {
			const at = e.live_alloc(4 * ids.length);
			if (!at) throw new EngineError("there is not enough memory for the tokens");
			new Int32Array(e.memory.buffer, at, ids.length).set(ids);
			const refused = e.live_forward(this.#live, at, ids.length, Number(all));
			e.live_free(at);
			if (refused) throw this.#refusal(e);
			const rows = all ? ids.length : 1;
			const logits = e.live_logits(this.#live, 0);
			return new Float32Array(
				e.memory.buffer,
				logits,
				rows * e.live_num_logits(this.#live),
			).slice();
		});
	}

	/** Forget all tokens but the first `length`. A model with a recurrent state forgets all. */
	truncate(length: number): void {
		this.#call((e) => {
			if (length !== e.live_length(this.#live) && e.live_truncate(this.#live, length))
				throw this.#refusal(e);
		});
	}

	/** A copy of a result of the last pass, by the name of its step, or of its attention weights. */
	values(name: string): Values {
		return this.#call((e) => {
			const place = this.#places.get(name);
			if (!place) throw new EngineError(`the pass has no step ${name}`);
			const [result, isAttention] = place;
			const at = (isAttention ? e.live_attention : e.live_values)(this.#live, result);
			if (!at) throw this.#refusal(e);
			const shape = new Int32Array(e.memory.buffer, e.live_shape(this.#live), 3);
			const [tokens = 0, heads = 0, numbers = 0] = shape;
			const data = new Float32Array(e.memory.buffer, at, tokens * heads * numbers).slice();
			return { shape: [tokens, heads, numbers], data };
		});
	}

	/** A next token by a row of logits of the last pass, the last if none is given; `u` is in
	 * [0, 1). */
	sample(u: number, { temperature = 0, topK = 0, topP = 1 }: Sampling = {}, row = -1): number {
		return this.#call((e) => {
			const token = e.live_sample(this.#live, row, temperature, topK, topP, u);
			if (token < 0) throw this.#refusal(e);
			return token;
		});
	}

	#call<T>(use: (e: Exports) => T): T {
		const e = this.#exports;
		if (!e) throw new EngineTrap("the engine has stopped");
		return this.#try(() => use(e));
	}

	#try<T>(use: () => T): T {
		try {
			return use();
		} catch (error) {
			if (!(error instanceof WebAssembly.RuntimeError)) throw error;
			this.#exports = null;
			throw new EngineTrap(`the engine has stopped: ${error.message}`, { cause: error });
		}
	}

	#open(e: Exports): number {
		const at = e.live_alloc(this.#program.length);
		if (!at) throw new EngineError("there is not enough memory for the program");
		new Uint8Array(e.memory.buffer).set(this.#program, at);
		const live = e.live_open(at, this.#program.length);
		e.live_free(at);
		if (!live) throw this.#refusal(e);
		return live;
	}

	#readNames(e: Exports): Names {
		const [at, size] = [e.live_names(this.#live), e.live_names_bytes(this.#live)];
		const text = new TextDecoder().decode(new Uint8Array(e.memory.buffer, at, size));
		const names = JSON.parse(text) as Names;
		if (
			names.weights.length !== e.live_num_weights(this.#live) ||
			names.results.length !== e.live_num_results(this.#live)
		)
			throw new EngineError("the names of the program are not those of its parts");
		return names;
	}

	#copyWeight(e: Exports, number: number, paths: readonly string[]): void {
		const parts = paths.map((path) => {
			const stored = this.#weights(path);
			if (!stored) throw new EngineError(`the weight ${path} is missing`);
			return stored;
		});
		const type = parts[0]?.type ?? "F32";
		const size = parts.reduce((sum, x) => sum + x.bytes.length, 0);
		if (!(type in TYPES) || parts.some((x) => x.type !== type))
			throw new EngineError(
				`the weight ${paths[0]} is in ${type}, expected ${Object.keys(TYPES).join(", ")}`,
			);
		const at = e.live_weight(this.#live, number, TYPES[type]);
		if (!at) throw this.#refusal(e);
		const expected = e.live_weight_bytes(this.#live, number);
		if (size !== expected)
			throw new EngineError(
				`the weight ${paths[0]} has ${size} bytes in ${type}, expected ${expected}, ` +
					`${expected / BYTES[type]} numbers`,
			);
		let to = at;
		for (const { bytes } of parts) {
			new Uint8Array(e.memory.buffer).set(bytes, to);
			to += bytes.length;
		}
	}

	#refusal(e: Exports): EngineError {
		const bytes = new Uint8Array(e.memory.buffer, e.live_message());
		return new EngineError(new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0))));
	}
}
