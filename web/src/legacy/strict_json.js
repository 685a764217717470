// A strict JSON parser for untrusted files: no duplicate keys, exact integers, bounded size and depth.
import { texts } from "./expressions.js";

export const FileError = class extends Error {};

// Throw the error message `why` of web/page_data/ui_strings.py with its values filled in.
export function refuseIf(condition, why, ...values) {
	if (condition) throw new FileError(texts.refused[why].replace(/\{(\d)\}/g, (_, i) => values[i]));
}

const SPACE = /[ \t\n\r]*/y;
const STRING = /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const LITERALS = { true: true, false: false, null: null };
const MAX_DEPTH = 200;

function parser(text, maxValues) {
	let at = 0;
	let remaining = maxValues;
	const fail = (expected) => {
		refuseIf(true, "expected", expected, at.toLocaleString("en"), at < text.length ? JSON.stringify(text.slice(at, at + 16)) : "its end");
	};
	const take = (pattern) => {
		pattern.lastIndex = at;
		const found = pattern.exec(text)?.[0] ?? "";
		at += found.length;
		return found;
	};
	const skipIf = (mark) => {
		take(SPACE);
		if (text[at] !== mark) return false;
		at += 1;
		return true;
	};
	const parseString = () => {
		take(SPACE);
		const found = take(STRING);
		return found ? JSON.parse(found) : fail("a whole string");
	};
	// The items of an object or array, up to the closing bracket.
	const parseList = (end, part) => {
		if (skipIf(end)) return;
		do part(); while (skipIf(","));
		if (!skipIf(end)) fail(`, or ${end}`);
	};
	const parseNumber = () => {
		const found = take(NUMBER);
		if (!found) fail("a value");
		refuseIf(found.length > 400, "digits");
		if (/^-?\d+$/.test(found) && found !== "-0") return BigInt(found);
		return Number.isFinite(Number(found)) ? Number(found) : fail("a number that a float holds");
	};
	const parseValue = (depth) => {
		refuseIf((remaining -= 1) < 0, "values", maxValues.toLocaleString("en"));
		refuseIf(depth > MAX_DEPTH, "deep");
		if (skipIf("{")) {
			const found = new Map();
			parseList("}", () => {
				const key = parseString();
				refuseIf(found.has(key), "key", JSON.stringify(key.slice(0, 60)));
				if (!skipIf(":")) fail(":");
				found.set(key, parseValue(depth + 1));
			});
			return found;
		}
		if (skipIf("[")) {
			const found = [];
			parseList("]", () => found.push(parseValue(depth + 1)));
			return found;
		}
		if (text[at] === '"') return parseString();
		for (const [word, meant] of Object.entries(LITERALS)) if (text.startsWith(word, at)) return (at += word.length), meant;
		return parseNumber();
	};
	return () => {
		const found = parseValue(0);
		take(SPACE);
		return at === text.length ? found : fail("its end");
	};
}

// Parse one value; objects become Maps, integers become BigInts.
export function parseStrictJson(bytes, maxValues) {
	let text = "";
	try {
		text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
	} catch {
		refuseIf(true, "text");
	}
	try {
		return parser(text, maxValues)();
	} catch (error) {
		refuseIf(error instanceof RangeError, "deep");
		throw error;
	}
}
