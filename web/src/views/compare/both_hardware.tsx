// The hardware of two models: of each GPU, the number that runs each of them.
import { Section } from "../../components/section";
import { data } from "../../lib/data";
import { grouped } from "../../lib/format";
import { useAppState } from "../../lib/state";
import { sizesOf } from "../../lib/sizing/data";
import { chosenHardware, fitterOf, SIZING_SETTINGS } from "../../lib/sizing/fit";
import { hardwareName } from "../facts/runs_on";
import { shownGpus } from "../hardware/hardware";
import { HardwareMatrix } from "../hardware/matrix";

export function BothHardware() {
	const state = useAppState(...SIZING_SETTINGS);
	const fitters = data.models.map((x) => fitterOf(sizesOf(x), state));
	const smallest = fitters.map((x) => x.smallest);
	const chosen = chosenHardware(sizesOf(data.models[0]!), state);
	const rows = shownGpus(chosen.gpu, smallest).map((gpu) =>
		fitters.map((fitter) => fitter.cell(gpu, fitter.fewest(gpu))),
	);
	const found = data.models.map((x, i) => {
		const least = smallest[i];
		return `${x.name} ${i ? "" : "runs "}on ${least ? hardwareName(least) : "nothing in the catalog"}`;
	});
	return (
		<Section
			id="hardware"
			topic="What hardware do they need?"
			title={found.join(", ")}
			lead={`How many of each GPU run each model, at ${grouped(state.context)} tokens: the fewest with a tenth of the memory to spare, how many sequences fit there, and the upper bound of decode speed.`}
		>
			<HardwareMatrix
				rows={rows}
				heads={data.models.map((x) => x.name)}
				label="GPUs and two models: how many of the GPU run each"
				chosen={chosen}
				smallest={smallest}
				context={state.context}
				isCounted
			/>
		</Section>
	);
}
