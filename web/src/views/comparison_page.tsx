// Two models side by side.
import { Legacy } from "../components/legacy";
import { Section } from "../components/section";
import { data } from "../lib/data";
import { change, state } from "../lib/state";
// @ts-ignore: not typed
import { comparison } from "../legacy/comparison.js";
// @ts-ignore: not typed
import { memoryView } from "../legacy/memory_view.js";

export function ComparisonPage() {
	return (
		<>
			<div class="wrap hero"><h1>{data.models.map((x) => x.name).join(" → ")}</h1></div>
			<Section id="causes" topic="What differs" title="Causes of the difference"><Legacy make={() => ({ element: comparison(data.difference, data.models) })} /></Section>
			<Section id="memory" topic="Memory" title="Memory of both"><Legacy make={() => memoryView(data.models, data.cards, state, change)} /></Section>
		</>
	);
}
