// Random numbers as Python's random.random() gives them for a seed, by the Mersenne twister MT19937:
// the same seed gives the same story in the page and in `llamath run --seed`.

const SIZE = 624;
const SHIFT = 397;
/** The largest number that the engines draw with. */
const MAX_UNIFORM = 1 - 2 ** -50;

export function uniformNumbers(seed: number): () => number {
	const state = new Uint32Array(SIZE);
	const mix = (i: number, factor: number): number =>
		state[i]! ^ Math.imul(state[i - 1]! ^ (state[i - 1]! >>> 30), factor);
	state[0] = 19_650_218;
	for (let i = 1; i < SIZE; i++)
		state[i] = Math.imul(state[i - 1]! ^ (state[i - 1]! >>> 30), 1_812_433_253) + i;
	const key = seed < 2 ** 32 ? [seed] : [seed >>> 0, Math.floor(seed / 2 ** 32)];
	let i = 1;
	const next = () => {
		if (++i < SIZE) return;
		state[0] = state[SIZE - 1]!;
		i = 1;
	};
	for (let k = 0; k < SIZE; k++) {
		state[i] = mix(i, 1_664_525) + key[k % key.length]! + (k % key.length);
		next();
	}
	for (let k = 1; k < SIZE; k++) {
		state[i] = mix(i, 1_566_083_941) - i;
		next();
	}
	state[0] = 0x8000_0000;
	let at = SIZE;
	const draw = (): number => {
		if (at === SIZE) {
			for (let k = 0; k < SIZE; k++) {
				const y = (state[k]! & 0x8000_0000) | (state[(k + 1) % SIZE]! & 0x7fff_ffff);
				state[k] = state[(k + SHIFT) % SIZE]! ^ (y >>> 1) ^ (y & 1 ? 0x9908_b0df : 0);
			}
			at = 0;
		}
		let y = state[at++]!;
		y ^= y >>> 11;
		y ^= (y << 7) & 0x9d2c_5680;
		y ^= (y << 15) & 0xefc6_0000;
		return (y ^ (y >>> 18)) >>> 0;
	};
	return () => Math.min(((draw() >>> 5) * 2 ** 26 + (draw() >>> 6)) / 2 ** 53, MAX_UNIFORM);
}
