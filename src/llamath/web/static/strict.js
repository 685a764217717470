// JSON from strangers, read strictly: each key once, whole numbers of any size, no more and no deeper than is sensible.
import { texts } from "./forms.js";

export const Refused = class extends Error {};

// In the words of web/words.py, with values in their places.
export function refuse(condition, why, ...values) {
	if (condition) throw new Refused(texts.refused[why].replace(/\{(\d)\}/g, (_, i) => values[i]));
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
		refuse(true, "expected", expected, at.toLocaleString("en"), at < text.length ? JSON.stringify(text.slice(at, at + 16)) : "its end");
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
	// The parts of an object or array, and what ends it.
	const list = (end, part) => {
		if (next(end)) return;
		do part(); while (next(","));
		if (!next(end)) fail(`, or ${end}`);
	};
	const number = () => {
		const found = take(NUMBER);
		if (!found) fail("a value");
		refuse(found.length > 400, "digits");
		if (/^-?\d+$/.test(found) && found !== "-0") return BigInt(found);
		return Number.isFinite(Number(found)) ? Number(found) : fail("a number that a float holds");
	};
	const value = (depth) => {
		refuse((left -= 1) < 0, "values", most.toLocaleString("en"));
		refuse(depth > DEPTH, "deep");
		if (next("{")) {
			const found = new Map();
			list("}", () => {
				const key = string();
				refuse(found.has(key), "key", JSON.stringify(key.slice(0, 60)));
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

// One value; objects are Maps, whole numbers BigInts.
export function parsed(bytes, most) {
	let text = "";
	try {
		text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
	} catch {
		refuse(true, "text");
	}
	try {
		return parser(text, most)();
	} catch (error) {
		refuse(error instanceof RangeError, "deep");
		throw error;
	}
}
