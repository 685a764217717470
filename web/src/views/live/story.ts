// The text that the model reads and writes in the page, and what every step of its passes left for
// every token.
import { useContext, useLayoutEffect, useState } from "preact/hooks";
import type { ModelData } from "../../lib/data";
import { liveOf } from "../../lib/live_views";
import { PlaceOfSection } from "../../lib/place";
import { MAX_TEXT } from "../../lib/settings";
import { change, state, type State } from "../../lib/state";
import { markBusy } from "../../lib/turns";
import type { Sampling, StoredWeight } from "../../live/engine";
import type { LiveData, LiveModel } from "../../live/live_model";

/** What the passes left for one token. */
export interface TokenPass {
	values: Map<string, Float32Array>;
	/** Weights of attention by step: [heads, keys up to this token]. */
	attention: Map<string, Float32Array>;
	logits: Float32Array;
}

/** A text, whether it is a question in the chat template, and the ids of tokens after it. */
type Told = Pick<State, "text" | "chat" | "written">;

type Status = "waiting" | "loading" | "ready" | "failed";

/** Time between two tokens while the model writes on. */
const PAUSE_MS = 220;
/** Prompts are read in parts of this many tokens: the results of a part are copied at once. */
const PART = 64;

export class Story {
	status: Status = "waiting";
	problem = "";
	text = "";
	ids: number[] = [];
	passes: TokenPass[] = [];
	lastPass = { tokens: 0, ms: 0 };
	isWriting = false;
	/** Whether the text is a question, which the model's chat template is written around. */
	isChat = false;
	/** The text before the model wrote, and the tokens that it wrote. */
	#given = "";
	#added: number[] = [];
	/** Tokens of the text that are not read. */
	left = 0;
	#model: LiveModel | null = null;
	/** Of a file that was dropped on the page. */
	#weights: ReadonlyMap<string, StoredWeight> | undefined;
	#timer: ReturnType<typeof setTimeout> | undefined;
	#uniform: (() => number) | null = null;
	readonly listeners = new Set<() => void>();

	constructor(readonly data: LiveData) {
		this.#take(state);
		// Back and Forward, and an address that is typed, change the text as well
		addEventListener("popstate", () => {
			const { text, chat, written } = this.#address();
			if (state.text !== text || state.chat !== chat || state.written !== written)
				this.#show(state);
		});
	}

	#take({ text, chat, written }: Told): void {
		this.isChat = chat === "on" && this.data.chat !== null;
		this.#given = this.text = text.slice(0, MAX_TEXT);
		this.#added = written ? written.split(".").map(Number) : [];
	}

	/** The story in the address: its text, or where that would be read as others, its tokens. */
	#address(): Told {
		const { text, ids } = this;
		if (this.isChat) return { text, chat: "on", written: this.#added.join(".") };
		const again =
			this.#model && text.length <= MAX_TEXT ? this.model.tokenizer.encode(text) : [];
		return !this.#added.length ||
			(again.length === ids.length && again.every((x, i) => x === ids[i]))
			? { text, chat: "", written: "" }
			: { text: this.#given, chat: "", written: this.#added.join(".") };
	}

	/** Reads the text, and after it the tokens that were written. */
	#readAll(): void {
		const { tokenizer } = this.model;
		const given = this.isChat
			? tokenizer.encodeChat(this.data.chat!, this.#given)
			: tokenizer.encode(this.#given);
		const room = Math.max(0, this.data.context - given.length);
		this.#added = this.#added.filter((x) => tokenizer.has(x)).slice(0, room);
		this.#read([...given, ...this.#added]);
		this.text = this.#shownText();
	}

	/** The text with what was written, which is no part of a question. */
	#shownText(): string {
		return this.isChat ? this.#given : this.#given + this.#writtenText();
	}

	/** The token that ends a text is none. */
	#writtenText(): string {
		return this.model.tokenizer.continue(this.#added.filter((x) => !this.isEnd(x)));
	}

	/** What the model has written after a question. */
	get answer(): string {
		return this.isChat && this.status === "ready" ? this.#writtenText() : "";
	}

	/** Whether a token ends the text. */
	isEnd(id: number): boolean {
		return (this.isChat ? this.data.chat! : this.data).stop.includes(id);
	}

	/** How many tokens, from the end, the model has written. */
	get written(): number {
		return this.#added.length;
	}

	get model(): LiveModel {
		return this.#model!;
	}

	get length(): number {
		return this.passes.length;
	}

	/** Why the model cannot write on; empty if it can. */
	get end(): string {
		if (this.status === "failed") return "The model does not run here.";
		if (this.status !== "ready") return "The model is being unpacked.";
		if (this.ids.length >= this.data.context)
			return `The text has the ${this.data.context} tokens of the model's context.`;
		const last = this.ids.at(-1);
		return last !== undefined && this.isEnd(last)
			? `The text has ended: its last token is ${this.model.tokenizer.show(last)}.`
			: "";
	}

	/** Whether the model has written to the end: the next step begins after the given text. */
	get beginsAgain(): boolean {
		return this.status === "ready" && this.end !== "" && this.written > 0;
	}

	notify(): void {
		for (const x of this.listeners) x();
	}

	/** Opens the model when it is first asked for, or anew with other weights. */
	async open(weights?: ReadonlyMap<string, StoredWeight>): Promise<void> {
		if (this.status === "loading" || (this.status === "ready" && !weights)) return;
		this.pause();
		this.#weights = weights ?? this.#weights;
		this.status = "loading";
		markBusy("live", true);
		try {
			const script = globalThis.llamathLive;
			if (!script || typeof WebAssembly === "undefined")
				throw new Error("this browser has no WebAssembly, or a policy forbids it");
			this.#model = await script.open(this.data, this.#weights);
			this.status = "ready";
			[this.ids, this.passes] = [[], []];
			this.#readAll();
			performance.mark("live");
		} catch (error) {
			this.#fail(error);
		}
		markBusy("live", false);
		this.notify();
	}

	#fail(error: unknown): void {
		this.pause();
		this.status = "failed";
		this.problem = error instanceof Error ? error.message : String(error);
		this.#model = null;
		this.ids = [];
		this.passes = [];
	}

	/** Reads a text; what it shares with the one before stays in the cache. */
	setText(text: string, chat: State["chat"] = this.isChat ? "on" : ""): void {
		change({ text: text.slice(0, MAX_TEXT), chat, written: "", token: null });
		this.#show({ text, chat, written: "" });
	}

	/** Reads the text without what was written, as a question or as it is. */
	setChat(chat: State["chat"]): void {
		this.setText(this.#given, chat);
	}

	#show(told: Told): void {
		this.pause();
		this.#take(told);
		this.#uniform = null;
		// after a trap a new module is made, which reads the text
		if (this.status === "failed") return void this.open();
		if (this.status !== "ready") return;
		this.#try(() => this.#readAll());
		this.notify();
	}

	#try(act: () => void): void {
		try {
			act();
		} catch (error) {
			// a module that has trapped is not used again: the next text opens a new one
			this.#fail(error);
		}
	}

	#read(ids: number[]): void {
		const wanted = ids.slice(0, this.data.context);
		this.left = ids.length - wanted.length;
		let same = 0;
		while (
			same < Math.min(wanted.length - 1, this.passes.length) &&
			wanted[same] === this.ids[same]
		)
			same++;
		if (same < this.passes.length) same = this.model.truncate(same);
		this.passes.length = same;
		this.ids = wanted;
		const start = performance.now();
		for (let at = same; at < wanted.length; at += PART) this.#pass(wanted.slice(at, at + PART));
		this.lastPass = { tokens: wanted.length - same, ms: performance.now() - start };
	}

	#pass(ids: number[]): void {
		const { model, data } = this;
		const first = this.passes.length;
		model.run(ids);
		const logits = model.logits();
		const vocabulary = logits.length / ids.length;
		const row = (list: Float32Array, width: number, i: number) =>
			list.slice(i * width, (i + 1) * width);
		const added = ids.map((_, i): TokenPass => ({
			values: new Map(),
			attention: new Map(),
			logits: row(logits, vocabulary, i),
		}));
		const weights = new Set(data.attention.map((x) => x.step));
		for (const step of data.results) {
			if (weights.has(step)) continue;
			const all = model.values(step);
			added.forEach((x, i) => x.values.set(step, row(all, all.length / ids.length, i)));
		}
		for (const { step, heads } of data.attention) {
			const all = model.attention(step);
			const keys = all.length / ids.length / heads;
			added.forEach((x, i) => {
				const seen = first + i + 1;
				const own = new Float32Array(heads * seen);
				for (let h = 0; h < heads; h++)
					own.set(
						all.subarray((i * heads + h) * keys, (i * heads + h) * keys + seen),
						h * seen,
					);
				x.attention.set(step, own);
			});
		}
		this.passes.push(...added);
	}

	/** Appends a token, which stays what it is even if its text would be read as another one. */
	append(id: number): void {
		if (this.end || this.status !== "ready") return;
		this.#try(() => {
			const start = performance.now();
			this.ids.push(id);
			this.#pass([id]);
			this.lastPass = { tokens: 1, ms: performance.now() - start };
			this.#added.push(id);
			this.text = this.#shownText();
			change({ ...this.#address(), token: null });
		});
		this.notify();
	}

	get sampling(): Sampling {
		return { temperature: state.temperature, topP: state.top_p };
	}

	/** Lets the model choose the next token. */
	step(): void {
		if (this.beginsAgain) this.setText(this.#given);
		if (!this.length || this.end) return this.pause();
		this.#uniform ??= globalThis.llamathLive!.uniformNumbers(state.seed);
		this.append(this.model.choose(this.sampling, this.#uniform()));
		if (this.end) this.pause();
	}

	writeOn(): void {
		if (this.isWriting) return this.pause();
		if (this.beginsAgain) this.setText(this.#given);
		this.isWriting = true;
		const go = () => {
			this.step();
			if (this.isWriting) this.#timer = setTimeout(go, PAUSE_MS);
		};
		go();
		this.notify();
	}

	/** Forgets what the model has written, and lets it write with the next seed. */
	tryAgain(): void {
		change({ seed: state.seed + 1 });
		this.setText(this.#given);
		this.writeOn();
	}

	pause(): void {
		clearTimeout(this.#timer);
		if (!this.isWriting) return;
		this.isWriting = false;
		this.notify();
	}
}

const stories = new WeakMap<ModelData, Story>();

/** The story of a page with a live model; null for all others. */
export function storyOf(model: ModelData): Story | null {
	const data = liveOf(model);
	if (!data) return null;
	let story = stories.get(model);
	if (!story) stories.set(model, (story = new Story(data)));
	return story;
}

/** Draws the component again when the story changes. */
export function useStory(model: ModelData): Story | null {
	const story = storyOf(model);
	const [, set] = useState({});
	const place = useContext(PlaceOfSection);
	useLayoutEffect(() => {
		if (!story) return undefined;
		const listener = () => place.draw(() => set({}));
		story.listeners.add(listener);
		return () => void story.listeners.delete(listener);
	}, [story]);
	return story;
}

/** The token whose numbers are shown: the chosen one, else the last. */
export function shownToken(story: Story, state: Pick<State, "token">): number {
	return Math.min(state.token ?? Infinity, story.length - 1);
}

/** The result that enters a layer: the embedding, or what the layer before has left. */
export function enteringStep(story: Story, layer: number): string {
	const { results } = story.data;
	const last = results.filter((x) => x.startsWith(`layers.${layer - 1}.`)).at(-1);
	return last ?? results[0]!;
}

export function softmax(logits: ArrayLike<number>, temperature = 1): Float64Array {
	const out = Float64Array.from(logits);
	let most = -Infinity;
	for (const x of out) most = Math.max(most, x);
	let total = 0;
	for (let i = 0; i < out.length; i++) {
		out[i] = Math.exp((out[i]! - most) / temperature);
		total += out[i]!;
	}
	return out.map((x) => x / total);
}

/** The places of the largest numbers, largest first. */
export function largest(list: ArrayLike<number>, count: number): number[] {
	if (count >= list.length)
		return Array.from({ length: list.length }, (_, i) => i).sort(
			(a, b) => list[b]! - list[a]! || a - b,
		);
	const found: number[] = [];
	for (let i = 0; i < list.length; i++) {
		if (found.length === count && list[i]! <= list[found.at(-1)!]!) continue;
		let at = found.length;
		while (at > 0 && list[found[at - 1]!]! < list[i]!) at--;
		found.splice(at, 0, i);
		found.length = Math.min(found.length, count);
	}
	return found;
}
