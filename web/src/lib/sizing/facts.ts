// The published figures of a GPU, each as a formula from the vendor's unit to base units.
import type { ComponentChildren } from "preact";
import { formula, inBytes } from "../derivation";
import { grouped } from "../format";
import { FIT, GPUS, type DType, type Gpu } from "./data";

type Unit = [name: string, size: bigint];
const BINARY: Unit[] = [
	["2³⁰", 2n ** 30n],
	["2²⁰", 2n ** 20n],
];
const DECIMAL: Unit[] = [
	["10¹²", 10n ** 12n],
	["10⁹", 10n ** 9n],
	["10⁶", 10n ** 6n],
];

function fact(label: string, n: bigint, unit: string, units = DECIMAL) {
	const found = units.find(([, size]) => n >= size && (n * 1000n) % size === 0n);
	const whole = `${grouped(n)} ${unit}`;
	if (!found) return formula(label, whole);
	const [name, size] = found;
	const thousandths = (n * 1000n) / size;
	const rest = String(thousandths % 1000n)
		.padStart(3, "0")
		.replace(/0+$/, "");
	return formula(label, `${grouped(thousandths / 1000n)}${rest && `.${rest}`}·${name}`, whole);
}

export function memoryFacts(gpu: Gpu): ComponentChildren[] {
	const [memory, nominal] = [BigInt(gpu.memory), BigInt(gpu.nominal)];
	const units = nominal % 2n ** 30n === 0n ? BINARY : DECIMAL;
	return [
		fact("nominal memory", nominal, "bytes", units),
		memory !== nominal && fact("memory that the driver reports", memory, "bytes", BINARY),
		...inBytes(memory),
		gpu.source,
	];
}

export const bandwidthFacts = (gpu: Gpu, shown: string): ComponentChildren[] => [
	fact("memory bandwidth", BigInt(gpu.bandwidth), "bytes per second"),
	formula("rounded", `${grouped(gpu.bandwidth)} bytes per second`, shown),
	gpu.source,
];
export const peakFacts = (gpu: Gpu, dtype: string, shown: string): ComponentChildren[] => [
	fact(`dense peak in ${dtype}`, BigInt(gpu.flops[dtype]!), "FLOP/s"),
	formula("rounded", `${grouped(gpu.flops[dtype]!)} FLOP/s`, shown),
	gpu.source,
];

const PREFIXES: readonly [number, string][] = [
	[1e15, "P"],
	[1e12, "T"],
	[1e9, "G"],
	[1e6, "M"],
	[1e3, "k"],
];

/** A rate to four significant digits with a prefix. */
export function prefixed(n: bigint | number): string {
	const [size, letter] = PREFIXES.find((x) => Number(n) >= x[0]) ?? [1, ""];
	return `${Number((Number(n) / size).toPrecision(4))} ${letter}`;
}

/** How engines run weights in this format on the GPU, where it has no products in it. */
export function formatNote(gpu: Gpu, dtype: DType): string {
	const named: Record<string, string> = {
		gpu: gpu.title,
		format: dtype.title,
		rate: dtype.rates[0]!.toUpperCase(),
		to: dtype.rates.find((x) => gpu.flops[x]) ?? "",
	};
	const says = dtype.dequantized.includes(gpu.name)
		? FIT.dequantized
		: dtype.unsupported.includes(gpu.name)
			? FIT.no_kernels
			: "";
	const text = says.replaceAll(/{(\w+)}/g, (_, name: string) => named[name] ?? "");
	return text && `${text[0]!.toUpperCase()}${text.slice(1)}.`;
}

/** The title without the name of its series. */
export const plainTitle = (gpu: Gpu) => gpu.title.replace(/^(GeForce|Instinct|Radeon) /, "");
const withoutMemory = (gpu: Gpu) => plainTitle(gpu).replace(/,? \d+GB$/, "");
/** The title without the memory that stands beside it, either, where no other GPU has the same. */
export const shortTitle = (gpu: Gpu) =>
	GPUS.some((x) => x.name !== gpu.name && withoutMemory(x) === withoutMemory(gpu))
		? plainTitle(gpu)
		: withoutMemory(gpu);
