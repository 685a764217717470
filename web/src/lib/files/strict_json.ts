// A strict JSON parser for untrusted files: no duplicate keys, exact integers, bounded size and
// depth.
import { data } from "../data";
import { groupedNumber } from "../format";

/** A text with escapes for characters that are not seen, such as those that turn what follows around. */
export const visible = (text: string): string =>
	text.replace(/[\p{Cf}\p{Zl}\p{Zp}]/gu, (x) =>
		[...Array(x.length).keys()]
			.map((i) => `\\u${x.charCodeAt(i).toString(16).padStart(4, "0")}`)
			.join(""),
	);

/** What a file should have been; its message is shown to the reader. */
export class FileError extends Error {
	constructor(message: string) {
		super(visible(message));
	}

	/** The place in the text, or the key, that it is about. */
	place: number | string | null = null;
	/** The message beside the number of its line. */
	inLine = "";
	/** What else is wrong. */
	others: FileError[] = [];
	/** What opens the file instead. */
	offer: { text: string; act: () => void } | null = null;
}

/** An error with the message `why` of web/page_data/ui_strings.py, its values filled in. */
export function fileError(why: string, ...values: unknown[]): FileError {
	const messages = data.words.refused as Record<string, string>;
	return new FileError(
		messages[why]!.replace(/\{(\d)\}/g, (_, i: string) => String(values[Number(i)])),
	);
}

export function refuse(why: string, ...values: unknown[]): never {
	throw fileError(why, ...values);
}

export function refuseIf(condition: unknown, why: string, ...values: unknown[]): void {
	if (condition) refuse(why, ...values);
}

/** A JSON value: objects are Maps, whole numbers are BigInts. */
export type Json = null | boolean | number | bigint | string | Json[] | Map<string, Json>;

const SPACE = /[ \t\n\r]*/y;
const STRING = /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const LITERALS: Record<string, boolean | null> = { true: true, false: false, null: null };
/** What Python's JSON of a configuration may have beside it, as in `time_step_limit` of Mamba 2. */
const WORDS: Record<string, number> = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };
const MAX_DEPTH = 200;

function parser(text: string, maxValues: number, isConfig: boolean): () => Json {
	const literals = isConfig ? { ...LITERALS, ...WORDS } : LITERALS;
	let at = 0;
	let remaining = maxValues;
	const fail = (expected: string): never => {
		const before = text.slice(0, at).split("\n");
		const [line, column] = [before.length, before.at(-1)!.length + 1].map(groupedNumber);
		const [rest] = text.slice(at, at + 16).split("\n", 1);
		const end = at < text.length ? "the end of the line" : "the end of the file";
		const found = rest ? JSON.stringify(rest) : end;
		const why = rest || at < text.length ? "expected" : "cut short";
		const error = fileError(why, expected, `line ${line} column ${column}`, found);
		error.place = at;
		error.inLine = fileError("expected", expected, `column ${column}`, found).message;
		throw error;
	};
	const take = (pattern: RegExp) => {
		pattern.lastIndex = at;
		const found = pattern.exec(text)?.[0] ?? "";
		at += found.length;
		return found;
	};
	const skipIf = (mark: string) => {
		take(SPACE);
		if (text[at] !== mark) return false;
		at += 1;
		return true;
	};
	const parseString = (what: string): string => {
		take(SPACE);
		const found = take(STRING);
		return found ? (JSON.parse(found) as string) : fail(`${what} in double quotes`);
	};
	/** The items of an object or array, up to the closing bracket. */
	const parseList = (end: string, part: () => void) => {
		if (skipIf(end)) return;
		do part();
		while (skipIf(","));
		if (!skipIf(end)) fail(`a comma or ${end}`);
	};
	const parseNumber = (): Json => {
		const found = take(NUMBER);
		if (!found) fail("a value");
		refuseIf(found.length > 400, "digits");
		if (/^-?\d+$/.test(found) && found !== "-0") return BigInt(found);
		if (Number.isFinite(Number(found))) return Number(found);
		at -= found.length;
		return fail("a number within the range of a float");
	};
	const parseValue = (depth: number): Json => {
		refuseIf((remaining -= 1) < 0, "values", maxValues.toLocaleString("en"));
		refuseIf(depth > MAX_DEPTH, "deep");
		if (skipIf("{")) {
			const found = new Map<string, Json>();
			parseList("}", () => {
				const key = parseString("a key");
				refuseIf(found.has(key), "key", JSON.stringify(key.slice(0, 60)));
				if (!skipIf(":")) fail("a colon");
				found.set(key, parseValue(depth + 1));
			});
			return found;
		}
		if (skipIf("[")) {
			const found: Json[] = [];
			parseList("]", () => found.push(parseValue(depth + 1)));
			return found;
		}
		if (text[at] === '"') return parseString("text");
		for (const [word, meant] of Object.entries(literals))
			if (text.startsWith(word, at)) return ((at += word.length), meant);
		return parseNumber();
	};
	return () => {
		const found = parseValue(0);
		take(SPACE);
		return at === text.length ? found : fail("the end of the file");
	};
}

/** Parses one value; in that of a config, the words NaN, Infinity and -Infinity are numbers. */
export function parseStrictJson(bytes: Uint8Array, maxValues: number, isConfig = false): Json {
	let text = "";
	refuseIf(bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf, "mark");
	try {
		text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
	} catch {
		refuseIf(true, "text");
	}
	try {
		return parser(text, maxValues, isConfig)();
	} catch (error) {
		refuseIf(error instanceof RangeError, "deep");
		throw error;
	}
}

/** JSON whose equality is that of the values. */
export function canonicalJson(x: Json): string {
	if (x instanceof Map)
		return `{${[...x]
			.sort(([a], [b]) => (a < b ? -1 : 1))
			.map(([key, y]) => `${JSON.stringify(key)}:${canonicalJson(y)}`)
			.join(",")}}`;
	if (Array.isArray(x)) return `[${x.map(canonicalJson).join(",")}]`;
	return typeof x === "string"
		? JSON.stringify(x)
		: String(typeof x === "bigint" ? Number(x) : x);
}

const MAX_SMALL = 10_000;

/** Whether two texts are of the same value; long ones are compared as texts. */
export const isSameJson = (a: string, b: string): boolean =>
	a === b ||
	(Math.max(a.length, b.length) <= MAX_SMALL &&
		canonicalJson(parser(a, MAX_SMALL, true)()) ===
			canonicalJson(parser(b, MAX_SMALL, true)()));
