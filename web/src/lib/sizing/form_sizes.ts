// The memory of a model by the form of its family alone: in 16 bits, split by tensor
// parallelism alone, by the same rules as that of a model of the page.
import type { ModelData } from "../data";
import { cacheOf, groupForms, totalForm, type Design, type Dimensions } from "../design";
import { value, type Expression } from "../expressions";
import { grouped } from "../format";
import { FIT, type LayoutData, type Sizes } from "./data";

const DTYPE = "bf16";
const BYTES = 2n;

/**
 * An expression with numbers in the place of names that have a value; parts with a name of their own,
 * such as the size of a head, have that of the whole model.
 */
function bound(
	x: Expression,
	values: Record<string, bigint>,
	whole: Record<string, bigint> = values,
): Expression {
	if (Array.isArray(x)) {
		const [name, ...rest] = x as [string, ...Expression[]];
		if (name === "let") return bound(rest[1]!, values, whole);
		if (name === "as") return bound(rest[1]!, whole);
		return [name, ...rest.map((y) => bound(y, values, whole))];
	}
	return typeof x === "string" && Object.hasOwn(values, x) ? String(values[x]) : x;
}

/** The context that a config states; null where it states none that a page can show. */
export function statedContext(
	design: Design,
	entries?: ReadonlyMap<string, string>,
): bigint | null {
	const text = entries?.get(design.context) ?? "";
	return /^[1-9]\d{0,9}$/.test(text) ? BigInt(text) : null;
}

/** The model, or null where the form does not tell what else than its weights it needs. */
export function sizedModel(
	name: string,
	design: Design,
	{ values, tied }: Dimensions,
	entries?: ReadonlyMap<string, string>,
): ModelData | null {
	const { sizing } = design;
	const cache = cacheOf(design, values, entries);
	const { d, V } = values;
	if (!sizing || !cache.form || d === undefined || V === undefined) return null;
	const counts = design.totals.find((x) => x.tied === tied)!;
	const whole = totalForm(counts);
	const total = value(whole, values);
	const peak = value(sizing.peak.form, values);
	const context = statedContext(design, entries);
	const forms: Expression[] = [];
	const placeOf = (x: Expression) => forms.push(x) - 1;
	const degrees = FIT.counts.filter(
		(tp) =>
			tp === 1 ||
			(!sizing.whole &&
				sizing.divided.every((x) => value(x.form, values) % BigInt(tp) === 0n)),
	);
	const layouts = degrees.map((tp): LayoutData => {
		const n = BigInt(tp);
		const shares = Object.fromEntries(
			Object.entries(values).map(([letter, x]) => [
				letter,
				sizing.split.includes(letter) ? (x + n - 1n) / n : x,
			]),
		);
		const known = { ...shares, ...cache.windows };
		const own = { width: String(peak), stream: String(d), vocab: String(V), TP: String(tp) };
		const form = (x: Expression) =>
			placeOf(
				bound(x, Object.fromEntries(Object.entries(own).map(([k, y]) => [k, BigInt(y)]))),
			);
		return {
			tp: String(tp),
			pp: "1",
			name: tp === 1 ? "one GPU" : `TP ${tp}`,
			stages: [
				{
					where: "",
					weights: [
						"round",
						["+", ["*", String(value(bound(whole, shares, values), {})), "e0"]],
						"e",
					] as unknown as Expression,
					cache: [
						{
							what: "keys, values and states",
							form: placeOf([
								"*",
								"B",
								bound(cache.form!, known, { ...values, ...cache.windows }),
							]),
						},
					],
					activations: form(FIT.activations),
					logits: form(FIT.logits),
					overhead: form(FIT.overhead),
				},
			],
			read: {},
		};
	});
	const splitsOf = (count: number) =>
		degrees
			.map((tp, i): [number, number] => [i, count / tp])
			.filter((x) => Number.isInteger(x[1]))
			.toReversed();
	const bytes = String(BYTES * total);
	const sizes: Sizes = {
		context: context && context < BigInt(FIT.context) ? String(context) : FIT.context,
		own: context === null ? FIT.context : String(context),
		stated: context !== null,
		dtype: DTYPE,
		kv: DTYPE,
		dtypes: [
			{
				name: DTYPE,
				title: DTYPE,
				bytes,
				of: ["weights, BF16", `${grouped(total)}·${BYTES}`],
				codecs: { BF16: "2·n" },
				bits: { mean: 16, suggested: null },
				each: { e0: "2" },
				variables: { act_bytes: "2", e0: "2", e: "1" },
				rates: [DTYPE],
				unsupported: [],
				dequantized: [],
			},
		],
		kvs: [{ name: DTYPE, title: DTYPE, variables: {}, wide: false }],
		layouts,
		gpus: FIT.counts.map((x) => ({ count: String(x), splits: splitsOf(x) })),
		forms,
		notes: {},
		spine: Object.fromEntries(
			groupForms(counts).map((x) => [
				x.name,
				{ [DTYPE]: String(BYTES * value(x.form, values)) },
			]),
		),
	};
	return { name, sizes } as unknown as ModelData;
}
