// The state of the page in the URL fragment. The URL is untrusted: only valid values are accepted.
const MOST = 2n ** 32n - 1n;

export function parseWhole(text, most = MOST) {
	if (!/^[1-9]\d{0,9}$/.test(text)) return null;
	const n = BigInt(text);
	return n <= most ? n : null;
}

const like = (pattern) => (text) => (pattern.test(text) ? text : null);
const TAKEN = {
	number: (text) => parseWhole(text)?.toString() ?? null,
	place: like(/^\d{1,3}$/),
	sizes: like(/^[A-Za-z]{1,8}\d{1,10}(\.[A-Za-z]{1,8}\d{1,10}){0,31}$/),
	target: like(/^[\dkmbgte+.,_ ]{1,24}$/i),
	words: (text) => text.slice(0, 80),
};

// From web/page_data/page_settings.py: name → [default, parser that returns null for an invalid value, parts that show it]
export const settingRules = (settings) => Object.fromEntries(settings.map(([name, first, takes, shows]) => [name, [first, TAKEN[takes] ?? ((text) => (takes.includes(text) ? text : null)), shows]]));

export function readState(hash, known) {
	const found = {};
	const given = new URLSearchParams(hash.replace(/^#/, "").slice(0, 2000));
	for (const [name, [first, take]] of Object.entries(known)) {
		const text = given.get(name);
		found[name] = (text === null ? null : take(text)) ?? first;
	}
	return found;
}

export function writeState(state, known) {
	const params = new URLSearchParams();
	for (const [name, [first]] of Object.entries(known)) if (state[name] !== first) params.set(name, state[name]);
	const text = params.toString();
	return text ? `#${text}` : "#";
}
