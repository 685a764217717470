// Meta's params.json with the keys of a config.json, by the rule of the library.
import { value, type Expression } from "../expressions";
import { parseStrictJson, refuse, refuseIf, type Json } from "./strict_json";

/** The conversion, as src/llamath/checkpoint/meta_args.py writes it. */
export interface ParamsRule {
	/** JSON: every key with its default. */
	defaults: string;
	/** A key of config.json → the key here. */
	names: Record<string, string>;
	/** JSON: the keys of config.json that have one value. */
	constant: string;
	/** JSON: the rope_scaling that use_scaled_rope means. */
	scaling: string;
	/** The width of the MLP before ffn_dim_multiplier, and after it. */
	width: Expression;
	rounded: Expression;
}

type Keys = Map<string, Json>;

const MAX_VALUES = 64;
const MAX_SIZE = 2n ** 32n - 1n;
const MAX_MULTIPLIER = 1e6;

const parsed = (text: string) => parseStrictJson(new TextEncoder().encode(text), MAX_VALUES);

export const isParams = (keys: Keys): boolean =>
	["dim", "n_layers", "n_heads"].every((key) => keys.has(key)) && !keys.has("model_type");

export function configOfParams(params: Keys, rule: ParamsRule): Keys {
	const defaults = parsed(rule.defaults) as Keys;
	const known = new Set([...defaults.keys(), ...Object.values(rule.names)]);
	for (const key of params.keys()) refuseIf(!known.has(key), "params", key.slice(0, 80));
	const of = (name: string) => params.get(name) ?? defaults.get(name) ?? null;
	const size = (name: string): bigint => {
		const n = of(name);
		return typeof n === "bigint" && n > 0n && n <= MAX_SIZE ? n : refuse("whole", name);
	};
	refuseIf(of("vocab_size") === -1n, "vocabulary");
	for (const name of ["n_layers", "n_heads", "vocab_size"]) size(name);
	const config = new Map([
		...(parsed(rule.constant) as Keys),
		...Object.entries(rule.names)
			.map(([key, name]) => [key, of(name)] as const)
			.filter(([, x]) => x !== null),
	]);
	if (of("use_scaled_rope") === true) config.set("rope_scaling", parsed(rule.scaling));
	if (!config.has("intermediate_size")) {
		const width = value(rule.width, { dim: size("dim") });
		const scaled = scale(width, of("ffn_dim_multiplier"));
		const multiple = { width: scaled, multiple_of: size("multiple_of") };
		config.set("intermediate_size", value(rule.rounded, multiple));
	}
	return config;
}

/** The width times the multiplier, in the double precision of the reference's code. */
function scale(width: bigint, multiplier: Json): bigint {
	if (multiplier === null) return width;
	const factor = typeof multiplier === "boolean" ? NaN : Number(multiplier);
	return factor > 0 && factor < MAX_MULTIPLIER
		? BigInt(Math.trunc(factor * Number(width)))
		: refuse("multiplier");
}
