// The variables of the chosen type of KV cache, by which the expressions of the cache are
// evaluated.
import type { ModelData } from "./data";
import type { State } from "./state";

export type KvVariables = Record<string, bigint>;

interface Sizes {
	kv: string;
	kvs: { name: string; variables: Record<string, string> }[];
}

export function kvVariables(model: ModelData, state: Pick<State, "kv">): KvVariables {
	const { kv, kvs } = model.sizes as Sizes;
	const chosen =
		kvs.find((x) => x.name === state.kv) ?? kvs.find((x) => x.name === kv) ?? kvs[0]!;
	return Object.fromEntries(
		Object.entries(chosen.variables).map(([name, n]) => [name, BigInt(n)]),
	);
}
