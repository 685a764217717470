// Byte-pair encoding in the page, of the two kinds that Llamas have: over bytes (GPT-2, Llama 3), and
// over characters with ▁ for spaces (Llama 2). What the kind is and how text is split is decided
// where the page is written.

export interface TokenizerData {
	kind: "bytes" | "characters";
	/** The texts of all tokens by id. */
	texts: string[];
	/** Pairs that are merged, the first ones first. */
	merges: [string, string][];
	/** Tokens that are found in a text before it is split. */
	added: [text: string, id: number][];
	/** Regular expressions by which text is split, one after the other. */
	splits: string[];
	/** Whether a word that is a token needs no merges. */
	ignoreMerges: boolean;
	/**
	 * What stands before a text, or before each part between added tokens; `once`: not before what
	 * begins with it.
	 */
	prefix: { text: string; each: boolean; once: boolean } | null;
	/** Ids before every text. */
	start: number[];
	/** Ids that are shown by name, and end no text. */
	special: number[];
}

/** What a chat template writes around a question; `strips`: without the spaces at its ends. */
export interface ChatFrame {
	before: string;
	after: string;
	strips: boolean;
}

/** GPT-2's letters for bytes: those that print stand for themselves. */
const LETTER_OF_BYTE = ((): string[] => {
	const prints = (b: number) =>
		(b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
	let next = 256;
	return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(prints(b) ? b : next++));
})();
const BYTE_OF_LETTER = new Map(LETTER_OF_BYTE.map((letter, b) => [letter, b]));
const SPACE = "▁";
const encoder = new TextEncoder();
/** Controls, and what turns the direction of a text. */
const UNSEEN = /[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

const escapeRegExp = (text: string): string => text.replaceAll(/[.*+?^${}()|[\]\\/]/g, "\\$&");

/** Tokens that are found in a text as they are. */
interface Added {
	ids: Map<string, number>;
	pattern: RegExp | null;
}

function addedTokens(tokens: [text: string, id: number][]): Added {
	// where one token begins with another, the longer one is found
	const texts = tokens.map((x) => x[0]).sort((a, b) => b.length - a.length);
	const pattern = texts.map(escapeRegExp).join("|");
	return { ids: new Map(tokens), pattern: pattern ? new RegExp(pattern, "gu") : null };
}

/** The parts of a text that a pattern matches, and what is between them. */
function split(text: string, pattern: RegExp | null): string[] {
	if (!pattern) return [text];
	const parts: string[] = [];
	let at = 0;
	for (const match of text.matchAll(pattern)) {
		if (match.index > at) parts.push(text.slice(at, match.index));
		if (match[0]) parts.push(match[0]);
		at = match.index + match[0].length;
	}
	if (at < text.length) parts.push(text.slice(at));
	return parts;
}

export class Tokenizer {
	readonly #data: TokenizerData;
	readonly #ids: Map<string, number>;
	readonly #ranks: Map<string, number>;
	readonly #added: Added;
	/** Of these, the ones that one sees, which a template writes, and the others. */
	readonly #control: Added;
	readonly #spaces: Added;
	readonly #special: Set<number>;
	readonly #splits: RegExp[];
	readonly #words = new Map<string, number[]>();

	constructor(data: TokenizerData) {
		this.#data = data;
		this.#special = new Set(data.special);
		this.#ids = new Map();
		for (const [id, text] of data.texts.entries())
			if (!this.#ids.has(text)) this.#ids.set(text, id);
		this.#ranks = new Map(data.merges.map(([a, b], i) => [`${a} ${b}`, i]));
		this.#splits = data.splits.map((x) => new RegExp(x, "gu"));
		const isControl = ([text, id]: [string, number]) =>
			this.#special.has(id) || text.trim() !== "";
		this.#added = addedTokens(data.added);
		this.#control = addedTokens(data.added.filter(isControl));
		this.#spaces = addedTokens(data.added.filter((x) => !isControl(x)));
	}

	has(id: number): boolean {
		return id < this.#data.texts.length;
	}

	encode(text: string): number[] {
		return [...this.#data.start, ...this.#encodeParts(text, this.#added)];
	}

	/** The names of control tokens are such where the template writes them, in the question text. */
	encodeChat({ before, after, strips }: ChatFrame, question: string): number[] {
		const [first, last] = [before, after].map((x) => split(x, this.#control.pattern));
		const isText = (x: string | undefined) => x !== undefined && !this.#control.ids.has(x);
		// what has no control token between it is encoded as one text
		const own = [
			isText(first!.at(-1)) ? first!.pop() : "",
			strips ? question.trim() : question,
			isText(last![0]) ? last!.shift() : "",
		];
		const idsOf = (x: string) => this.#encodeParts(x, this.#control);
		return [
			...first!.flatMap(idsOf),
			...this.#encodeParts(own.join(""), this.#spaces),
			...last!.flatMap(idsOf),
		];
	}

	#encodeParts(text: string, { ids, pattern }: Added): number[] {
		return split(text, pattern).flatMap((x, i) => ids.get(x) ?? this.#encodePart(x, i === 0));
	}

	#encodePart(text: string, isFirst: boolean): number[] {
		const { kind, prefix } = this.#data;
		const plain = kind === "characters" ? text.replaceAll(" ", SPACE) : text;
		const isPrefixed =
			prefix !== null &&
			plain !== "" &&
			(prefix.each || isFirst) &&
			!(prefix.once && plain.startsWith(prefix.text));
		let words = [isPrefixed ? prefix.text + plain : plain];
		for (const pattern of this.#splits) words = words.flatMap((x) => split(x, pattern));
		return words.flatMap((x) => this.#encodeWord(x));
	}

	#encodeWord(word: string): number[] {
		let found = this.#words.get(word);
		if (!found) {
			const letters =
				this.#data.kind === "bytes"
					? Array.from(encoder.encode(word), (b) => LETTER_OF_BYTE[b]!)
					: [...word];
			found = this.#merge(letters);
			if (this.#words.size > 10_000) this.#words.clear();
			this.#words.set(word, found);
		}
		return found;
	}

	#merge(letters: string[]): number[] {
		const whole = this.#data.ignoreMerges ? this.#ids.get(letters.join("")) : undefined;
		if (whole !== undefined) return [whole];
		const parts = letters;
		const rankAt = (i: number): number =>
			i < 0 || i + 1 >= parts.length
				? Infinity
				: (this.#ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity);
		const ranks = parts.map((_, i) => rankAt(i));
		for (;;) {
			let place = 0;
			for (let i = 1; i < ranks.length; i++) if (ranks[i]! < ranks[place]!) place = i;
			if (!ranks.length || ranks[place] === Infinity) break;
			parts.splice(place, 2, parts[place]! + parts[place + 1]!);
			ranks.splice(place, 1);
			ranks[place] = rankAt(place);
			if (place > 0) ranks[place - 1] = rankAt(place - 1);
		}
		return parts.flatMap((x) => this.#idsOf(x));
	}

	#idsOf(part: string): number[] {
		const id = this.#ids.get(part);
		if (id !== undefined) return [id];
		// a character that the vocabulary lacks
		return Array.from(encoder.encode(part), (b) => {
			const name = `<0x${b.toString(16).toUpperCase().padStart(2, "0")}>`;
			return this.#ids.get(name);
		}).filter((x) => x !== undefined);
	}

	#bytesOf(id: number): number[] {
		const text = this.#data.texts[id] ?? "";
		if (this.#special.has(id)) return [];
		if (this.#data.kind === "bytes" && !this.#added.ids.has(text))
			return [...text].flatMap((x) => {
				const b = BYTE_OF_LETTER.get(x);
				return b === undefined ? [...encoder.encode(x)] : [b];
			});
		const byte = /^<0x([0-9A-F]{2})>$/.exec(text);
		return byte ? [parseInt(byte[1]!, 16)] : [...encoder.encode(text.replaceAll(SPACE, " "))];
	}

	/** The text of tokens that follow others, special ones by their names. */
	continue(ids: readonly number[]): string {
		const bytes = ids.flatMap((x) =>
			this.#special.has(x) ? [...encoder.encode(this.#data.texts[x]!)] : this.#bytesOf(x),
		);
		return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
	}

	/** A token as it is shown alone: its text with visible spaces, or its name. */
	show(id: number): string {
		const text = this.#data.texts[id];
		if (text === undefined) return `token ${id}`;
		if (this.#special.has(id)) return text;
		const bytes = this.#bytesOf(id);
		const own = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
		// a part of a character has no text of its own
		if (own.includes("\ufffd"))
			return bytes.map((b) => `<${b.toString(16).padStart(2, "0")}>`).join("");
		return own
			.replaceAll(" ", "·")
			.replaceAll("\n", "↵")
			.replaceAll("\t", "⇥")
			.replaceAll(UNSEEN, (x) => `<${x.codePointAt(0)!.toString(16).padStart(2, "0")}>`);
	}
}
