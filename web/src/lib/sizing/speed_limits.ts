// Upper bounds of decode and prefill: bytes over bandwidth or FLOPs over peak, whichever takes
// longer.
import { bindApproximately, value, type Expression, type Variables } from "../expressions";
import { ROOF, type Gpu } from "./data";
import type { Sized } from "./gpu_memory";

export const NANO = 10n ** 9n;
export type PassName = "decode" | "prefill";
type Quantity = "tokens" | "bytes" | "FLOPs" | "rate" | "bound" | "reached" | "intensity";

export interface PassLimit {
	name: PassName;
	forms: Record<"tokens" | "bytes" | "FLOPs", Expression>;
	values: Variables<bigint> & Record<Quantity, bigint>;
	bound: "memory" | "compute";
}

export interface SpeedLimits {
	passes: PassLimit[];
	/** The dtype of the matrix products. */
	dtype: string;
	bandwidth: bigint;
	peak: bigint;
}

/** The dtype at whose rate a GPU computes the products of the weights. */
export const rateDtype = (sized: Sized, gpu: Gpu): string =>
	sized.dtype.rates.find((x) => gpu.flops[x]) ?? Object.keys(gpu.flops)[0]!;

export function speedLimits(sized: Sized, gpu: Gpu): SpeedLimits {
	const dtype = rateDtype(sized, gpu);
	const rates = { bandwidth: BigInt(gpu.bandwidth), peak: BigInt(gpu.flops[dtype]!) };
	const passes = (["decode", "prefill"] as const).map((name): PassLimit => {
		const forms = sized.split.layout.speed![name];
		const values = {
			...sized.variables,
			...rates,
			work: value(sized.sizes.work![name], sized.variables),
		} as Variables<bigint> as PassLimit["values"];
		for (const key of ["tokens", "bytes", "FLOPs"] as const)
			values[key] = value(forms[key], values);
		for (const key of ["rate", "bound", "reached", "intensity"] as const)
			values[key] = value(ROOF[key], values);
		return { name, forms, values, bound: values.bound ? "memory" : "compute" };
	});
	return { passes, dtype, ...rates };
}

type Decode = (context: number, batch: number) => [bytes: number, flops: number];
const decodeOf = new WeakMap<Variables<bigint>, Record<"whole" | "weights", Decode>>();

/**
 * A step of decode as a function of context and batch; without the cache, it reads the weights
 * alone.
 */
function bindDecode({ sizes, split, constants }: Sized, hasCache: boolean): Decode {
	const known = Object.fromEntries(
		Object.entries(constants).map(([name, n]) => [name, Number(n)]),
	);
	if (!hasCache) known.kv_bytes = known.conv_bytes = 0;
	const bind = (x: Expression) => bindApproximately(x, known);
	const [work, bytes, flops] = [
		bind(sizes.work!.decode),
		bind(split.layout.speed!.decode.bytes),
		bind(split.layout.speed!.decode.FLOPs),
	];
	return (T, B) => {
		const values: Variables<number> = { T, B };
		values.work = work(values);
		return [bytes(values), flops(values)];
	};
}

/**
 * The bytes and FLOPs of one step of decode in floating point, for pictures; at any number of
 * sequences.
 */
export function decodeBytesAndFlops(
	sized: Sized,
	batch = Number(sized.variables.B),
	what: "whole" | "weights" = "whole",
): [bytes: number, flops: number] {
	let found = decodeOf.get(sized.constants);
	if (!found)
		decodeOf.set(
			sized.constants,
			(found = { whole: bindDecode(sized, true), weights: bindDecode(sized, false) }),
		);
	return found[what](Number(sized.variables.T), batch);
}

/** Tokens per second of decode at most, in floating point. */
export function decodeRate(
	sized: Sized,
	gpu: Gpu,
	[bytes, flops]: [number, number],
	batch = Number(sized.variables.B),
): number {
	return (
		batch /
		Math.max(bytes / Number(gpu.bandwidth), flops / Number(gpu.flops[rateDtype(sized, gpu)]))
	);
}
