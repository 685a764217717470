// Reads JSON in columns, which src/llamath/web/server/json_columns.py writes.

type Json = unknown;
/** The kinds of a column. */
const [SCALARS, ARRAYS, OBJECTS] = [0, 1, 2];
/** Items of arrays up to this length have a column each. */
const PAIR = 2;

interface Column {
	kind: number;
	/** After the kind; the last one is repeated. */
	tokens: readonly Json[];
	/** Which was read last. */
	at: number;
	/** Its arrays and objects. */
	made: Json[];
	ofItems: Column[];
}

function set(object: Record<string, Json>, key: string, value: Json): void {
	if (key !== "__proto__") object[key] = value;
	else
		Object.defineProperty(object, key, {
			value,
			configurable: true,
			enumerable: true,
			writable: true,
		});
}

function copied(value: Json): Json {
	if (Array.isArray(value)) return value.map(copied);
	if (typeof value !== "object" || value === null) return value;
	const found = {};
	for (const key of Object.keys(value))
		set(found, key, copied((value as Record<string, Json>)[key]));
	return found;
}

/** The value that is written in these columns; each array and object is one of its own. */
export function fromColumns([keys, columns]: [string[][], [number, ...Json[]][]]): Json {
	let next = 0;
	const fields = keys.map((): Column[] => []);
	const add = (): Column => {
		const tokens = columns[next++]!;
		return { kind: tokens[0], tokens, at: 0, made: [], ofItems: [] };
	};
	// loops, and one function for all: the first screen waits for it
	const read = (column: Column): Json => {
		const { kind, tokens, made, ofItems } = column;
		if (column.at < tokens.length - 1) column.at++;
		const token = tokens[column.at];
		if (kind === SCALARS) return token;
		let [number, isEarlier, isObject] = [token as number, false, kind === OBJECTS];
		if (isObject || kind === ARRAYS) {
			isEarlier = number < 0;
			if (isEarlier) number = -1 - number;
		} else {
			if (!Array.isArray(token)) return token;
			number = token[0] as number;
			isEarlier = token.length > 2;
			isObject = token.length > 1;
		}
		if (isEarlier) return copied(made[number]);
		if (isObject) {
			const found: Record<string, Json> = {};
			made.push(found);
			const [names, own] = [keys[number]!, fields[number]!];
			for (let i = 0; i < names.length; i++) set(found, names[i]!, read((own[i] ??= add())));
			return found;
		}
		const found: Json[] = [];
		made.push(found);
		for (let i = 0; i < number; i++)
			found.push(read((ofItems[number > PAIR ? PAIR : i] ??= add())));
		return found;
	};
	return read(add());
}
