// The state of the page in the URL fragment. The URL is untrusted: only valid values are accepted.
const MAX_UINT32 = 2n ** 32n - 1n;

export function parseWhole(text, max = MAX_UINT32) {
	if (!/^[1-9]\d{0,9}$/.test(text)) return null;
	const n = BigInt(text);
	return n <= max ? n : null;
}

const matching = (pattern) => (text) => (pattern.test(text) ? text : null);
const PARSERS = {
	number: (text) => parseWhole(text)?.toString() ?? null,
	place: matching(/^\d{1,3}$/),
	sizes: matching(/^[A-Za-z]{1,8}\d{1,10}(\.[A-Za-z]{1,8}\d{1,10}){0,31}$/),
	target: matching(/^[\dkmbgte+.,_ ]{1,24}$/i),
	words: (text) => text.slice(0, 80),
};

// From web/page_data/page_settings.py: name → [default, parser that returns null for an invalid value, parts that show it]
export const settingRules = (settings) => Object.fromEntries(settings.map(([name, initial, kind, parts]) => [name, [initial, PARSERS[kind] ?? ((text) => (kind.includes(text) ? text : null)), parts]]));

export function readState(hash, rules) {
	const state = {};
	const params = new URLSearchParams(hash.replace(/^#/, "").slice(0, 2000));
	for (const [name, [initial, parse]] of Object.entries(rules)) {
		const text = params.get(name);
		state[name] = (text === null ? null : parse(text)) ?? initial;
	}
	return state;
}

export function writeState(state, rules) {
	const params = new URLSearchParams();
	for (const [name, [initial]] of Object.entries(rules)) if (state[name] !== initial) params.set(name, state[name]);
	const text = params.toString();
	return text ? `#${text}` : "#";
}
