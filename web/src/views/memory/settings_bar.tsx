// One bar of settings for all of the page, with the answer that follows from them. It stays in sight;
// phones have it in a line that opens, paper in words.
import { followed } from "../../components/export/section_menu";
import { data, type ModelData } from "../../lib/data";
import { gibibytes, onEachGpu, threeDigits } from "../../lib/format";
import { state as appState, useAppState } from "../../lib/state";
import { orRunsHere } from "../../lib/live_views";
import { sizesOf } from "../../lib/sizing/data";
import { shortTitle } from "../../lib/sizing/facts";
import {
	chosenHardware,
	fitsBarely,
	isTiny,
	settings,
	SIZING_SETTINGS,
	verdict,
	type SizingSettings,
} from "../../lib/sizing/fit";
import { memoryPerGpu } from "../../lib/sizing/gpu_memory";
import { speedLimits } from "../../lib/sizing/speed_limits";
import { useMedia } from "../../lib/use_media";
import { beyondContext } from "./context_warning";
import { SettingsControls, saidSettings } from "./settings_controls";

followed.texts = () => {
	const shown = data.models[appState.view === "b" ? 1 : 0]!;
	const { gpu, count } = chosenHardware(sizesOf(shown), appState);
	return { card: gpu.name, gpus: count };
};

const IS_FOLDED = "(max-width: 767px)";

/** The bar of one model, or of two on the same hardware. */
export function SettingsBar({ models }: { models: readonly ModelData[] }) {
	const state = useAppState(...SIZING_SETTINGS);
	const isFolded = useMedia(IS_FOLDED);
	const said = answerTo(models, state);
	const isRun = state.mode !== "train" && models.length === 1;
	const answer = isRun ? orRunsHere(models[0]!, `Runs in this page; ${said}`, said) : said;
	const shownAnswer = (
		<b class="settings-answer" role="status">
			{answer}
		</b>
	);
	const controls = (
		<div class="settings-controls">
			<SettingsControls models={models} />
		</div>
	);
	return (
		<div class="settings-bar" role="region" aria-label="Settings of all of the page">
			<div class="wrap">
				{isFolded ? (
					<details class="no-print">
						<summary>{shownAnswer}</summary>
						{controls}
					</details>
				) : (
					<>
						{controls}
						{shownAnswer}
					</>
				)}
				<p class="settings-said">{saidSettings(models, state)}</p>
			</div>
		</div>
	);
}

/** The answer of the settings: where one model runs, or the memory of each of two. */
function answerTo(models: readonly ModelData[], state: SizingSettings) {
	if (state.mode === "train" || models.length > 1)
		return models
			.map((model) => {
				const sized = settings(model, state);
				const { total } = memoryPerGpu(sized).mostLoaded.values;
				const does = state.mode === "train" ? "trains in" : "takes";
				return `${models.length > 1 ? model.name : "It"} ${does} ${gibibytes(total)}${onEachGpu(sized.plan.gpus)}`;
			})
			.join(" · ");
	const [model] = models as [ModelData];
	const { gpu, count } = chosenHardware(sizesOf(model), state);
	const found = verdict(settings(model, state), gpu);
	const { sized, fits, total, memory } = found;
	const where = `${count} × ${shortTitle(gpu)}`;
	if (!fits)
		return `${where}: ${gibibytes(total - memory)} too little${count === "1" ? "" : " each"}`;
	const limits = sized.sizes.work && speedLimits(sized, gpu).passes[0]!.values;
	const beyond = beyondContext(model, state.context);
	return [
		`${where} ${fitsBarely(found) ? "just " : ""}${count === "1" ? "runs" : "run"} it`,
		...(beyond ? [beyond] : []),
		...(beyond || isTiny(model) || !limits
			? []
			: [`≤\u00a0${threeDigits(Number(limits.rate) / 1e9)}\u00a0tokens/s`]),
	].join(", ");
}
