// What the page shows, in its address, which is anybody's: only possible values are taken from it.
const MOST = 2n ** 32n - 1n;

export function whole(text, most = MOST) {
	if (!/^[1-9]\d{0,9}$/.test(text)) return null;
	const n = BigInt(text);
	return n <= most ? n : null;
}

const like = (pattern) => (text) => (pattern.test(text) ? text : null);
const TAKEN = {
	number: (text) => whole(text)?.toString() ?? null,
	place: like(/^\d{1,3}$/),
	sizes: like(/^[A-Za-z]{1,8}\d{1,10}(\.[A-Za-z]{1,8}\d{1,10}){0,31}$/),
	target: like(/^[\dkmbgte+.,_ ]{1,24}$/i),
	words: (text) => text.slice(0, 80),
};

// Of web/settings.py: name → [what it is at first, a function that takes a text from outside and gives a value or null, parts that show it]
export const possible = (settings) => Object.fromEntries(settings.map(([name, first, takes, shows]) => [name, [first, TAKEN[takes] ?? ((text) => (takes.includes(text) ? text : null)), shows]]));

export function read(hash, known) {
	const found = {};
	const given = new URLSearchParams(hash.replace(/^#/, "").slice(0, 2000));
	for (const [name, [first, take]] of Object.entries(known)) {
		const text = given.get(name);
		found[name] = (text === null ? null : take(text)) ?? first;
	}
	return found;
}

export function write(state, known) {
	const said = new URLSearchParams();
	for (const [name, [first]] of Object.entries(known)) if (state[name] !== first) said.set(name, state[name]);
	const text = said.toString();
	return text ? `#${text}` : "#";
}
