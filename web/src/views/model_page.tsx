// The page of one model: the first screen, then a section per question.
import type { SectionLink } from "../components/header";
import type { ModelData } from "../lib/data";
import { AttentionSection } from "./attention/attention";
import { ExpertsSection } from "./experts/experts";
import { Hero } from "./facts/hero";
import { HardwareSection } from "./hardware/hardware";
import { LayoutsSection } from "./layouts/layouts";
import { MemorySection } from "./memory/memory";
import { Parameters } from "./parameters/parameters";
import { Plate, PlateSkyline } from "./plate/plate";
import { PositionsSection } from "./positions/positions";
import { SpeedSection } from "./speed/speed";
import { Tensors } from "./tensors/tensors";

export const MODEL_SECTIONS: readonly SectionLink[] = [
	{ id: "parameters", name: "Parameters" },
	{ id: "hardware", name: "Hardware" },
	{ id: "memory", name: "Memory" },
	{ id: "speed", name: "Speed" },
	{ id: "layouts", name: "Layouts" },
	{ id: "attention", name: "Attention", isShown: (model) => (model.attention as { kinds: unknown[] }).kinds.length > 0 },
	{ id: "positions", name: "RoPE", isShown: (model) => (model.attention as { ropes: unknown[] }).ropes.length > 0 },
	{ id: "experts", name: "Experts", isShown: (model) => model.experts !== null },
	{ id: "tensors", name: "Tensors" },
];

export function ModelPage({ model }: { model: ModelData }) {
	return (
		<>
			<Hero model={model} skyline={<PlateSkyline model={model} barHeight={96} />} plate={<Plate model={model} whole={<div class="plate-whole-wide"><PlateSkyline model={model} barHeight={120} hasLens /></div>} />} />
			<Parameters model={model} />
			<HardwareSection model={model} />
			<MemorySection models={[model]} />
			<SpeedSection model={model} />
			<LayoutsSection model={model} />
			<AttentionSection model={model} />
			<PositionsSection model={model} />
			<ExpertsSection model={model} />
			<Tensors model={model} />
		</>
	);
}
