// One bar of settings for the sections that read them: hardware, memory and speed. It stays in sight
// above them; phones and paper have it in words.
import { followed } from "../../components/export/section_menu";
import { data, type ModelData } from "../../lib/data";
import { state as appState, useAppState } from "../../lib/state";
import { sizesOf } from "../../lib/sizing/data";
import { chosenHardware, settings, SIZING_SETTINGS } from "../../lib/sizing/fit";
import { chosenDtypes } from "../../lib/sizing/gpu_memory";
import { IS_PHONE, useMedia } from "../../lib/use_media";
import { CustomFigures, InferenceControls, LoadControls, saidLoad } from "./settings_controls";

followed.texts = () => {
	const shown = data.models[appState.view === "b" ? 1 : 0]!;
	const { gpu, count } = chosenHardware(sizesOf(shown), appState);
	return { card: gpu.name, gpus: count };
};

export function SettingsBar({ model }: { model: ModelData }) {
	const isPhone = useMedia(IS_PHONE);
	const controls = (
		<div class="sizing-controls">
			<LoadControls />
			<InferenceControls models={[model]} />
			<CustomFigures />
		</div>
	);
	return (
		<div class="settings-bar">
			<div class="wrap">
				{isPhone ? (
					<details>
						<summary>
							<SaidSettings model={model} />
						</summary>
						{controls}
					</details>
				) : (
					<>
						{controls}
						<p class="settings-said">
							<SaidSettings model={model} />
						</p>
					</>
				)}
			</div>
		</div>
	);
}

function SaidSettings({ model }: { model: ModelData }) {
	const state = useAppState(...SIZING_SETTINGS);
	const sizes = sizesOf(model);
	const { dtype, kv } = chosenDtypes(sizes, state);
	const { gpu, count } = chosenHardware(sizes, state);
	const { layout } = settings(model, { ...state, mode: "run" }).split;
	const said = [
		...saidLoad(state),
		`weights ${dtype.title}`,
		`KV cache ${kv.title}`,
		...(state.mode === "train"
			? []
			: [`${count} × ${gpu.title}`, ...(count === "1" ? [] : [layout.name])]),
	];
	return <>{said.join(" · ")}</>;
}
