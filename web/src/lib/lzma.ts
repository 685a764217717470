// Decompresses LZMA with lc = 3, lp = 0 and pb = 0, as packed_json.py writes it, after https://7-zip.org/sdk.html (lzma-specification.txt).

const STATES = 12;
const probabilities = (n: number) => new Uint16Array(n).fill(1024);

type Table = Uint16Array;

/** Bits by the range coder; each is decoded by its probability, which adapts. */
function bitsOf(bytes: Uint8Array) {
	let [range, code, at] = [2 ** 32 - 1, 0, 1];
	const normalize = () => {
		range = (range << 8) >>> 0;
		code = ((code << 8) | bytes[at++]!) >>> 0;
	};
	for (let i = 0; i < 4; i++) code = ((code << 8) | bytes[at++]!) >>> 0;
	const bit = (table: Table, i: number): number => {
		const probability = table[i]!;
		const bound = (range >>> 11) * probability;
		const isOne = code >= bound;
		if (isOne) {
			range -= bound;
			code -= bound;
			table[i] = probability - (probability >> 5);
		} else {
			range = bound;
			table[i] = probability + ((2048 - probability) >> 5);
		}
		if (range < 2 ** 24) normalize();
		return isOne ? 1 : 0;
	};
	return {
		bit,
		/** Bits of equal probability, the highest first. */
		plain(count: number): number {
			let found = 0;
			for (let i = 0; i < count; i++) {
				range >>>= 1;
				const isOne = code >= range;
				if (isOne) code -= range;
				found = 2 * found + (isOne ? 1 : 0);
				if (range < 2 ** 24) normalize();
			}
			return found;
		},
		/** A number of this many bits, the highest first; each bit has a probability for every beginning. */
		tree(table: Table, from: number, count: number): number {
			let found = 1;
			for (let i = 0; i < count; i++) found = (found << 1) | bit(table, from + found);
			return found - (1 << count);
		},
		/** The same, the lowest bit first. */
		reverseTree(table: Table, from: number, count: number): number {
			let [place, found] = [1, 0];
			for (let i = 0; i < count; i++) {
				const one = bit(table, from + place);
				place = (place << 1) | one;
				found |= one << i;
			}
			return found;
		},
	};
}

type Bits = ReturnType<typeof bitsOf>;

/** The length of a match, less 2. */
function lengthOf(bits: Bits, table: Table): number {
	if (!bits.bit(table, 0)) return bits.tree(table, 2, 3);
	return bits.bit(table, 1) ? 16 + bits.tree(table, 18, 8) : 8 + bits.tree(table, 10, 3);
}

export function decompress(bytes: Uint8Array, length: number): Uint8Array {
	const bits = bitsOf(bytes);
	const { bit } = bits;
	const out = new Uint8Array(length);
	const [isMatch, isRepeated, isOther, isThird, isFourth, isLong] = Array.from({ length: 6 }, () => probabilities(STATES)) as [Table, Table, Table, Table, Table, Table];
	const [literals, slots, special, align, lengths, repeatedLengths] = [0x300 * 8, 4 * 64, 128, 16, 274, 274].map(probabilities) as [Table, Table, Table, Table, Table, Table];
	const distanceOf = (size: number): number => {
		const slot = bits.tree(slots, Math.min(size, 3) * 64, 6);
		if (slot < 4) return slot;
		const count = (slot >> 1) - 1;
		const from = (2 | (slot & 1)) * 2 ** count;
		return slot < 14 ? from + bits.reverseTree(special, from - slot, count) : from + 16 * bits.plain(count - 4) + bits.reverseTree(align, 0, 4);
	};
	const recent = [0, 0, 0, 0];
	let [n, state] = [0, 0];
	while (n < length) {
		if (!bit(isMatch, state)) {
			const from = 0x300 * ((out[n - 1] ?? 0) >> 5);
			let symbol = 1;
			if (state > 6) {
				// after a match, the byte that would have continued it tells most about the next
				for (let expected = out[n - recent[0]! - 1]!; symbol < 256; expected <<= 1) {
					const wanted = (expected >> 7) & 1;
					const found = bit(literals, from + ((1 + wanted) << 8) + symbol);
					symbol = (symbol << 1) | found;
					if (found !== wanted) break;
				}
			}
			while (symbol < 256) symbol = (symbol << 1) | bit(literals, from + symbol);
			out[n++] = symbol;
			state = state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
			continue;
		}
		let size = 1;
		if (!bit(isRepeated, state)) {
			size = 2 + lengthOf(bits, lengths);
			state = state < 7 ? 7 : 10;
			recent.pop();
			recent.unshift(distanceOf(size - 2));
		} else {
			const place = !bit(isOther, state) ? 0 : !bit(isThird, state) ? 1 : !bit(isFourth, state) ? 2 : 3;
			if (!place && !bit(isLong, state)) state = state < 7 ? 9 : 11;
			else {
				recent.unshift(...recent.splice(place, 1));
				size = 2 + lengthOf(bits, repeatedLengths);
				state = state < 7 ? 8 : 11;
			}
		}
		for (; size > 0 && n < length; size--, n++) out[n] = out[n - recent[0]! - 1]!;
	}
	return out;
}
