// A strict JSON parser for untrusted files: no duplicate keys, exact integers, bounded size and depth.
import { texts } from "./forms.js";

export const FileError = class extends Error {};

// Throw the error message `why` of web/page_data/ui_strings.py with its values filled in.
export function refuseIf(condition, why, ...values) {
	if (condition) throw new FileError(texts.refused[why].replace(/\{(\d)\}/g, (_, i) => values[i]));
}

const SPACE = /[ \t\n\r]*/y;
const STRING = /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORDS = { true: true, false: false, null: null };
const DEPTH = 200;

function parser(text, most) {
	let at = 0;
	let left = most;
	const fail = (expected) => {
		refuseIf(true, "expected", expected, at.toLocaleString("en"), at < text.length ? JSON.stringify(text.slice(at, at + 16)) : "its end");
	};
	const take = (pattern) => {
		pattern.lastIndex = at;
		const found = pattern.exec(text)?.[0] ?? "";
		at += found.length;
		return found;
	};
	const next = (mark) => {
		take(SPACE);
		if (text[at] !== mark) return false;
		at += 1;
		return true;
	};
	const string = () => {
		take(SPACE);
		const found = take(STRING);
		return found ? JSON.parse(found) : fail("a whole string");
	};
	// The items of an object or array, up to the closing bracket.
	const list = (end, part) => {
		if (next(end)) return;
		do part(); while (next(","));
		if (!next(end)) fail(`, or ${end}`);
	};
	const number = () => {
		const found = take(NUMBER);
		if (!found) fail("a value");
		refuseIf(found.length > 400, "digits");
		if (/^-?\d+$/.test(found) && found !== "-0") return BigInt(found);
		return Number.isFinite(Number(found)) ? Number(found) : fail("a number that a float holds");
	};
	const value = (depth) => {
		refuseIf((left -= 1) < 0, "values", most.toLocaleString("en"));
		refuseIf(depth > DEPTH, "deep");
		if (next("{")) {
			const found = new Map();
			list("}", () => {
				const key = string();
				refuseIf(found.has(key), "key", JSON.stringify(key.slice(0, 60)));
				if (!next(":")) fail(":");
				found.set(key, value(depth + 1));
			});
			return found;
		}
		if (next("[")) {
			const found = [];
			list("]", () => found.push(value(depth + 1)));
			return found;
		}
		if (text[at] === '"') return string();
		for (const [word, meant] of Object.entries(WORDS)) if (text.startsWith(word, at)) return (at += word.length), meant;
		return number();
	};
	return () => {
		const found = value(0);
		take(SPACE);
		return at === text.length ? found : fail("its end");
	};
}

// Parse one value; objects become Maps, integers become BigInts.
export function parseStrictJson(bytes, most) {
	let text = "";
	try {
		text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
	} catch {
		refuseIf(true, "text");
	}
	try {
		return parser(text, most)();
	} catch (error) {
		refuseIf(error instanceof RangeError, "deep");
		throw error;
	}
}
