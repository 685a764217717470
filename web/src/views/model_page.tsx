// The page of one model: the first screen, then a section per question.
import type { SectionLink } from "../components/header";
import { Legacy } from "../components/legacy";
import { Section } from "../components/section";
import type { ModelData } from "../lib/data";
import { change, state } from "../lib/state";
// @ts-ignore: not typed
import { blockView } from "../legacy/block_view.js";
import { AttentionSection } from "./attention/attention";
import { ExpertsSection } from "./experts/experts";
import { Hero } from "./facts/hero";
import { HardwareSection } from "./hardware/hardware";
import { MemorySection } from "./memory/memory";
import { Parameters } from "./parameters/parameters";
import { Plate, PlateSkyline } from "./plate/plate";
import { PositionsSection } from "./positions/positions";
import { SpeedSection } from "./speed/speed";
import { Tensors } from "./tensors/tensors";

export const MODEL_SECTIONS: readonly SectionLink[] = [
	{ id: "parameters", name: "Parameters" },
	{ id: "block", name: "Block" },
	{ id: "hardware", name: "Hardware" },
	{ id: "memory", name: "Memory" },
	{ id: "speed", name: "Speed" },
	{ id: "attention", name: "Attention", isShown: (model) => (model.attention as { kinds: unknown[] }).kinds.length > 0 },
	{ id: "positions", name: "RoPE", isShown: (model) => (model.attention as { ropes: unknown[] }).ropes.length > 0 },
	{ id: "experts", name: "Experts", isShown: (model) => model.experts !== null },
	{ id: "tensors", name: "Tensors" },
];

export function ModelPage({ model }: { model: ModelData }) {
	return (
		<>
			<Hero model={model} skyline={<PlateSkyline model={model} barHeight={96} />} plate={<><div class="plate-whole-wide"><PlateSkyline model={model} barHeight={120} hasLens /></div><Plate model={model} /></>} />
			<Parameters model={model} />
			<Section id="block" topic="One block" title="Block diagram"><Legacy make={() => blockView(model, state, change)} /></Section>
			<HardwareSection model={model} />
			<MemorySection models={[model]} />
			<SpeedSection model={model} />
			<AttentionSection model={model} />
			<PositionsSection model={model} />
			<ExpertsSection model={model} />
			<Tensors model={model} />
		</>
	);
}
