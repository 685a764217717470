// How each number of the memory section follows from others.
import type { ComponentChildren } from "preact";
import {
	derivation,
	formula,
	inBytes,
	shareFormula,
	sumFormula,
	type Derivation,
} from "../../lib/derivation";
import { sumOf, value, type Expression, type Operation } from "../../lib/expressions";
import { grouped } from "../../lib/format";
import type { Digits, MemoryLine } from "../../lib/data";
import type { DType, Gpu, Sizes } from "../../lib/sizing/data";
import {
	MAX_TOKENS,
	memoryPerGpu,
	type GpuMemory,
	type Part,
	type Plan,
	type Sized,
	type StageMemory,
} from "../../lib/sizing/gpu_memory";
import { shortTitle } from "../../lib/sizing/facts";

const ESTIMATES: Partial<Record<Part, string>> = {
	activations: "An estimate: a plain forward pass with FlashAttention.",
	overhead: "An estimate: device context, workspaces, fragmentation.",
};

export const PART_NAMES: Record<Part, string> = {
	weights: "Weights",
	cache: "KV cache",
	activations: "Activations",
	logits: "Logits",
	overhead: "Overhead",
	gradients: "Gradients",
	master: "Master weights",
	optimizer: "Optimizer states",
};

/** What a model that caches no token has instead. */
export const STATES = "Recurrent states";

/** Whether what a model caches is the same however many tokens there are. */
export function isFixedCache({ layouts, forms }: Sizes): boolean {
	const stages = layouts.flatMap((x) => x.stages);
	return stages.every((x) => x.cache.every((y) => !isOf(forms[y.form]!, "T")));
}

const isOf = (x: Expression, variable: string): boolean =>
	Array.isArray(x) ? x.slice(1).some((y) => isOf(y as Expression, variable)) : x === variable;

export const totalFormula = (plan: Plan, values: StageMemory) =>
	sumFormula(
		plan.parts.map((x) => [x, values[x]!]),
		"bytes",
	);

/** The elements of a GPU's weights times their bytes, those of the same bytes together. */
function shardsText(form: Expression, { each }: DType, values: StageMemory): string {
	const [, sum] = form as Operation;
	const terms = Array.isArray(sum) && sum[0] === "+" ? sum.slice(1) : [sum!];
	const elements = new Map<string, bigint>();
	for (const x of terms) {
		const [n, name] = Array.isArray(x) ? (x.slice(1) as [Digits, string]) : ["1", x as string];
		elements.set(each[name]!, (elements.get(each[name]!) ?? 0n) + BigInt(n));
	}
	const text = [...elements].map(([bytes, n]) => `${grouped(n)}·${bytes}`).join(" + ");
	return value(sum!, values) % values.e! ? `round(${text})` : text;
}

function weightLines({ dtype, split, count }: Sized, memory: GpuMemory): ComponentChildren[] {
	const whole = formula(...dtype.of, `${grouped(dtype.bytes)} bytes`);
	if (count === "1") return [whole];
	return [
		whole,
		`${split.layout.name}: one GPU holds its shards of the split matrices and full ` +
			"copies of the others.",
		formula(
			"elements of its shards · bytes per element",
			shardsText(memory.stage.lines.weights![0]!.form, dtype, memory.values),
			`${grouped(memory.values.weights!)} bytes`,
		),
	];
}

function lineByLine(lines: MemoryLine[], values: StageMemory): ComponentChildren[] {
	if (lines.length === 1) return [...derivation(lines[0]!.form, values, "bytes"), lines[0]!.says];
	const each = lines.flatMap((x) => [
		<h3>{x.what}</h3>,
		...derivation(x.form, values, "bytes"),
		x.says,
	]);
	return [
		...each,
		<h3>total</h3>,
		sumFormula(
			lines.map((x) => [x.what, value(x.form, values)]),
			"bytes",
		),
	];
}

export function partDerivation(part: Part | "total", memory: GpuMemory, sized: Sized): Derivation {
	const { values, stage } = memory;
	const { plan } = sized;
	if (part === "total")
		return { title: "Total", lines: [totalFormula(plan, values), ...inBytes(values.total)] };
	const isInference = plan.mode === "run";
	const title =
		part === "weights" && isInference ? `Weights, ${sized.dtype.title}` : PART_NAMES[part];
	const lines = stage.lines[part]!;
	const tail = [
		...inBytes(values[part]!),
		shareFormula(part, values[part]!, values.total),
		isInference ? (ESTIMATES[part] ?? "") : "",
	];
	if (part === "weights" && isInference)
		return { title, lines: [...weightLines(sized, memory), ...tail] };
	if (!lines.length)
		return { title, lines: ["Nothing is stored.", formula(title, "0 bytes"), ...tail] };
	return {
		title,
		lines: [
			...(isInference
				? derivation(sumOf(lines.map((x) => x.form)), values, "bytes")
				: lineByLine(lines, values)),
			...tail,
		],
	};
}

export const contextText = (at: bigint | null) =>
	at === null ? "any" : at ? `${grouped(at)} tokens` : "none";

/** The longest context on a GPU: the last at which the total is no more than its memory. */
export function contextDerivation(
	gpu: Gpu,
	at: bigint | null,
	sized: Sized,
	name: string,
): Derivation {
	const totalAt = (n: bigint) =>
		`all(${grouped(n)}) = ${grouped(memoryPerGpu(sized, n).mostLoaded.values.total)}`;
	const capacity = grouped(gpu.memory);
	const comparison =
		at === null
			? `${totalAt(MAX_TOKENS - 1n)} ≤ ${capacity}`
			: [at && `${totalAt(at)} ≤ ${capacity}`, `${totalAt(at + 1n)} > ${capacity}`]
					.filter(Boolean)
					.join("; ");
	const shown = at || 1n;
	return {
		title: `${name} on ${gpu.title}: the longest context`,
		lines: [
			formula("the largest T with all(T) ≤ memory of the GPU", comparison, contextText(at)),
			`all(${grouped(shown)}), in ${sized.plan.label}:`,
			totalFormula(sized.plan, memoryPerGpu(sized, shown).mostLoaded.values),
			"Memory never shrinks as the context grows.",
		],
	};
}

export function remainderDerivation(gpu: Gpu, total: bigint, name: string): Derivation {
	const left = BigInt(gpu.memory) - total;
	return {
		title: `${name} on ${gpu.title}`,
		lines: [
			formula(
				"memory of the GPU − all",
				`${grouped(gpu.memory)} − ${grouped(total)}`,
				`${grouped(left)} bytes`,
			),
			...inBytes(left < 0n ? -left : left),
		],
	};
}

export const crossingLabel = (gpu: Gpu, at: bigint) =>
	`${shortTitle(gpu)} is full at ${grouped(at)} tokens`;
