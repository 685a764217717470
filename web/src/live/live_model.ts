// What the page knows of a model that it can run: the script with the engine, which stands before the
// page's own and only in pages with a live model, sets `llamathLive`.
import type { Sampling, StoredWeight, WeightType } from "./engine";
import type { ChatFrame, TokenizerData } from "./tokenizer";

export interface PageTokenizer {
	encode(text: string): number[];
	/** A question with what the model's template writes around it. */
	encodeChat(frame: ChatFrame, question: string): number[];
	has(id: number): boolean;
	/** The text of tokens that follow others, special ones by their names. */
	continue(ids: readonly number[]): string;
	/** A token as it is shown alone. */
	show(id: number): string;
}

/** A rotation by position: the step, the one that it rotates, and how its numbers form pairs. */
export interface Rotation {
	step: string;
	from: string;
	heads: number;
	/** Angle of each pair per position, in radians. */
	frequencies: number[];
	/** Whether pairs stand beside each other; else the second half holds the second numbers. */
	interleaved: boolean;
}

/** Scores of attention that are nothing but scaled products. */
export interface HeadFacts {
	/** The step whose result are the weights of attention. */
	step: string;
	queries: string;
	keys: string;
	values: string;
	heads: number;
	kvHeads: number;
	scale: number;
	/** Sinks, caps, biases, windows: the products alone are not the scores. */
	isPlain: boolean;
}

/** What a page says about its live model, beside the numbers. */
export interface LiveData {
	/** Texts to try, what they show, and the head that shows it; `chat`: asked as questions. */
	prompts: { text: string; says: string; layer: number; head: number; chat?: boolean }[];
	/** What the bundled model is, in a few words and in a sentence; of others empty. */
	origin: string;
	about: string;
	/** The words of the texts that it was trained on; empty if that is not known. */
	knows: string;
	/** How the model is asked a question, and the ids that end the answer; null: it is not. */
	chat: (ChatFrame & { stop: number[] }) | null;
	/** Tokens that the model reads at most in the page. */
	context: number;
	/** Ids after which the model has ended its text. */
	stop: number[];
	results: string[];
	rotations: Rotation[];
	attention: HeadFacts[];
	/** The final norm and head by their weights, where they are an RMSNorm and a matrix. */
	lens: { norm: string; head: string; isTied: boolean; eps: number; offset: number } | null;
	tokenizer: TokenizerData;
	/** Where the weights are among the stored bytes. */
	weights: [path: string, type: WeightType, start: number, bytes: number][];
}

/** One sequence of a model in the page. */
export interface LiveModel {
	readonly tokenizer: PageTokenizer;
	/** Reads tokens after those in the cache. */
	run(ids: readonly number[]): void;
	/** The rows of a step's result in the last pass, one for each token. */
	values(step: string): Float32Array;
	/** Weights of attention in the last pass: [tokens, heads, keys]. */
	attention(step: string): Float32Array;
	/** Logits of all tokens of the last pass: [tokens, vocabulary]. */
	logits(): Float32Array;
	/**
	 * Forgets all tokens but the first `length`, or all where a state or a window cannot go back;
	 * returns how many are kept.
	 */
	truncate(length: number): number;
	/** A next token by the logits of the last token. */
	choose(sampling: Sampling, uniform: number): number;
	/** The logits that the final norm and head give for a row of the residual stream. */
	lens(stream: Float32Array): Float32Array;
	/** The values of a weight, row by row; null for one that the page does not hold. */
	weight(path: string): Float32Array | null;
}

export interface LiveScript {
	/** Opens the model with the weights of the page, or with these by their paths. */
	open(data: LiveData, weights?: ReadonlyMap<string, StoredWeight>): Promise<LiveModel>;
	uniformNumbers(seed: number): () => number;
	Tokenizer: new (data: TokenizerData) => PageTokenizer;
}

declare global {
	var llamathLive: LiveScript | undefined;
}
