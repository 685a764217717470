// From the recorded steps to the nodes of the picture: the residual stream, the branches that leave
// it and return, and in each branch the matrices, the heads with their cache, the router; steps
// without matrices join the step whose output they read.
import type { Stage, Step, WeightUse } from "./plate_model";

export interface Matrix {
	step: Step;
	use: WeightUse;
}

export type NodeKind =
	"matrix" | "norm" | "heads" | "cache" | "experts" | "sum" | "product" | "operation" | "input";

export interface PlateNode {
	id: string;
	kind: NodeKind;
	steps: Step[];
	matrices: Matrix[];
	/** The nodes that it reads, and for each the step that reads it. */
	inputs: [from: string, by: Step][];
}

export interface Branch {
	nodes: PlateNode[];
	/** [node or step of the stream, node or step of the stream]. */
	edges: [from: string, to: string][];
	/** The point of the stream that it reads, and the points to which it is added. */
	entry: number;
	exits: number[];
}

export interface Contracted {
	/** Steps of the stream, the input first; null if the layer has no single residual stream. */
	stream: string[] | null;
	branches: Branch[];
}

const INPUT = "x";
const ON_STREAM = new Set(["add", "norm", "multiply"]);

/** The steps on the residual stream, from the input to the output. */
function residualStream(stage: Stage): string[] | null {
	const steps = new Map(stage.steps.map((x) => [x.name, x]));
	let at = stage.steps.at(-1)?.name;
	const found: string[] = [];
	let adds = 0;
	while (at !== undefined) {
		found.unshift(at);
		if (at === INPUT) return adds ? found : null;
		const step = steps.get(at);
		if (!step || !ON_STREAM.has(step.kind)) return null;
		if (step.kind === "add") adds++;
		else if (step.takes.length !== 1) return null;
		at = step.takes[0];
	}
	return null;
}

class Groups {
	#parent = new Map<string, string>();
	find(x: string): string {
		const parent = this.#parent.get(x);
		return parent === undefined ? x : this.find(parent);
	}
	join(x: string, into: string): void {
		const [a, b] = [this.find(x), this.find(into)];
		if (a !== b) this.#parent.set(a, b);
	}
}

export const isMatrix = (use: WeightUse): boolean =>
	use.shape.length >= 2 && use.shape.filter((n) => BigInt(n) > 1n).length >= 2;
const matrixUses = (step: Step): WeightUse[] =>
	step.kind === "linear" || step.kind === "lookup"
		? step.uses.filter((x) => x.shape.length >= 2)
		: [];
const KEPT = new Set([
	"linear",
	"lookup",
	"cache",
	"scores",
	"state",
	"choice",
	"sum",
	"conv",
	"ids",
	"probabilities",
	"add",
]);

export function contract(stage: Stage): Contracted {
	const stream = residualStream(stage);
	const onStream = new Set(stream ?? []);
	const inside = stage.steps.filter((x) => !onStream.has(x.name));
	const groups = joinSteps(inside, onStream, stage);
	const branches = branchesOf(stage, inside, groups, stream);
	if (stream && branches.every((x) => x.entry >= 0)) return { stream, branches };
	const all = joinSteps(stage.steps, new Set(), stage);
	return { stream: null, branches: [branchOf(stage.steps, all, null)] };
}

function joinSteps(steps: Step[], onStream: Set<string>, stage: Stage): Groups {
	const groups = new Groups();
	const names = new Set(steps.map((x) => x.name));
	const readers = (name: string) => steps.filter((x) => x.takes.includes(name));
	const addedToStream = (name: string) =>
		stage.steps.some((x) => x.kind === "add" && x.takes.includes(name));
	for (const step of steps) {
		if (KEPT.has(step.kind)) continue;
		const inputs = step.takes.filter((x) => names.has(x));
		if (
			step.kind === "norm" &&
			(step.takes.some((x) => onStream.has(x) || x === INPUT) || addedToStream(step.name))
		)
			continue;
		if (step.kind === "softmax" || step.kind === "mix") groups.join(step.name, inputs[0]!);
		else if (step.kind === "view" && inputs.length > 1) groups.join(step.name, inputs.at(-1)!);
		else if (inputs.length === 1 && step.takes.length === 1) groups.join(step.name, inputs[0]!);
	}
	for (const step of steps) {
		if (step.kind !== "cache") continue;
		const heads = new Set(readers(step.name).map((x) => groups.find(x.name)));
		const [only] = heads;
		if (
			heads.size === 1 &&
			steps.some((x) => x.kind === "scores" && groups.find(x.name) === only)
		)
			groups.join(step.name, only!);
	}
	return groups;
}

function branchesOf(
	stage: Stage,
	inside: Step[],
	groups: Groups,
	stream: string[] | null,
): Branch[] {
	if (!stream) return [];
	const connected = new Groups();
	const names = new Set(inside.map((x) => x.name));
	for (const step of inside)
		for (const name of step.takes) if (names.has(name)) connected.join(step.name, name);
	const parts = new Map<string, Step[]>();
	for (const step of inside) {
		const key = connected.find(step.name);
		parts.set(key, [...(parts.get(key) ?? []), step]);
	}
	const branches = [...parts.values()].map((steps) => branchOf(steps, groups, stream, stage));
	return branches.sort((a, b) => Math.min(...a.exits) - Math.min(...b.exits));
}

function branchOf(steps: Step[], groups: Groups, stream: string[] | null, stage?: Stage): Branch {
	const nodes = new Map<string, PlateNode>();
	for (const step of steps) {
		const id = groups.find(step.name);
		const node = nodes.get(id) ?? {
			id,
			kind: "operation" as NodeKind,
			steps: [],
			matrices: [],
			inputs: [],
		};
		node.steps.push(step);
		node.matrices.push(...matrixUses(step).map((use) => ({ step, use })));
		nodes.set(id, node);
	}
	const names = new Set(steps.map((x) => x.name));
	const edges = new Map<string, [string, string]>();
	const entries = new Set<number>();
	for (const step of steps)
		for (const name of step.takes) {
			const from = names.has(name) ? groups.find(name) : name;
			const to = groups.find(step.name);
			if (from === to) continue;
			if (stream?.includes(name)) entries.add(stream.indexOf(name));
			else if (!names.has(name) && !nodes.has(name))
				nodes.set(name, { id: name, kind: "input", steps: [], matrices: [], inputs: [] });
			edges.set(`${from} ${to}`, [from, to]);
			nodes.get(to)!.inputs.push([from, step]);
		}
	const exits: number[] = [];
	for (const [i, name] of (stream ?? []).entries()) {
		const reads = stage!.steps.find((x) => x.name === name)?.takes ?? [];
		for (const from of reads)
			if (names.has(from)) {
				edges.set(`${from} ${name}`, [groups.find(from), name]);
				exits.push(i);
			}
	}
	for (const node of nodes.values()) node.kind = kindOf(node);
	return {
		nodes: [...nodes.values()],
		edges: [...edges.values()],
		entry: entries.size === 1 && exits.length ? [...entries][0]! : -1,
		exits,
	};
}

function kindOf(node: PlateNode): NodeKind {
	const kinds = new Set(node.steps.map((x) => x.kind));
	if (!node.steps.length) return "input";
	if (kinds.has("scores") || kinds.has("state")) return "heads";
	if (kinds.has("choice")) return "experts";
	if (node.matrices.length) return "matrix";
	if (kinds.has("cache")) return "cache";
	if (kinds.has("sum") || kinds.has("add")) return "sum";
	const first = node.steps[0]!;
	if (first.kind === "norm") return "norm";
	if ((first.kind === "multiply" || first.kind === "act") && first.takes.length > 1)
		return "product";
	return "operation";
}
