// The levels of the picture: model › layer › block › matrix › head. The setting `zoom` holds the
// path below the layer.
import { change, state } from "../../lib/state";
import { contract, type Branch } from "./contract";
import type { LayerKind, LayerWeight, Stage, Step } from "./plate_model";

export interface Block {
	name: string;
	title: string;
	branch: Branch | null;
	steps: Step[];
}

/** What a block is called: by what its steps compute, else by its name. */
function titleOf(name: string, steps: Step[]): string {
	const has = (...kinds: string[]) => steps.some((x) => kinds.includes(x.kind));
	const isFfn = steps.some(
		(x) => /^(mlp|ffn|moe|experts)\w*\./.test(x.name) && x.kind === "linear",
	);
	const parts = [
		has("scores") && "attention",
		has("state", "conv") && !has("scores") && "sequence mixer",
		isFfn && "FFN",
		!isFfn && has("choice") && "experts",
	].filter(Boolean);
	return parts.join(" and ") || name.replaceAll("_", " ");
}

/** The blocks of a layer: each branch with the sums that end it, named by most of its steps. */
export function blocksOf(stage: Stage): Block[] {
	const { stream, branches } = contract(stage);
	const byName = new Map(stage.steps.map((x) => [x.name, x]));
	if (!stream) return [{ name: "steps", title: "all steps", branch: null, steps: stage.steps }];
	const used = new Set<string>();
	const blocks = branches.map((branch) => {
		const own = branch.nodes.flatMap((x) => x.steps);
		const counts = new Map<string, number>();
		for (const x of own)
			counts.set(x.name.split(".")[0]!, (counts.get(x.name.split(".")[0]!) ?? 0) + 1);
		let name = [...counts].sort((a, b) => b[1] - a[1])[0]![0];
		while (used.has(name)) name += "_2";
		used.add(name);
		const ends = branch.exits
			.map((i) => byName.get(stream[i]!)!)
			.filter((x) => !used.has(`step ${x.name}`));
		for (const x of ends) used.add(`step ${x.name}`);
		return {
			name,
			title: titleOf(name, own),
			branch,
			steps: [...own, ...ends].sort(
				(a, b) => stage.steps.indexOf(a) - stage.steps.indexOf(b),
			),
		};
	});
	// what stands on the stream between the blocks, such as a norm after the sum, belongs to the
	// block before it
	for (const name of stream.slice(1)) {
		const step = byName.get(name)!;
		if (blocks.some((x) => x.steps.includes(step))) continue;
		const at = stage.steps.indexOf(step);
		const block =
			blocks.findLast((x) => x.steps.some((y) => stage.steps.indexOf(y) < at)) ?? blocks[0];
		block?.steps.push(step);
	}
	return blocks;
}

export const splitZoom = (zoom: string): string[] =>
	zoom === "" || zoom === "model" ? [] : zoom.split("/");
export const parentOf = (zoom: string): string =>
	zoom === "" || zoom === "model" ? "model" : splitZoom(zoom).slice(0, -1).join("/");

/** Where the next level opens in the picture: the element that was chosen. */
let origin: DOMRect | null = null;
export const takeOrigin = (): DOMRect | null => {
	const found = origin;
	origin = null;
	return found;
};

export function zoomTo(zoom: string, from?: Element | null): void {
	// the levels show what is counted
	if (zoom === state.zoom || state.quiz) return;
	origin = from?.getBoundingClientRect() ?? null;
	change({ zoom });
}

export const zoomOut = (): void => {
	if (state.zoom !== "model") zoomTo(parentOf(state.zoom));
};

/** The weights that are divided by heads: those of attention and of recurrent mixers. */
export const headSplit = (weight: LayerWeight | undefined): LayerWeight["split"] => {
	const split = weight?.split;
	return split && /head|group/.test(split[2]) && split[1] > 0 ? split : null;
};

export const weightAt = (kind: LayerKind | null, path: string): LayerWeight | undefined =>
	kind?.weights.find((x) => x.path === path);
