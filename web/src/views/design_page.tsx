// Change the dimensions of the model and see what follows.
import { Legacy } from "../components/legacy";
import { data } from "../lib/data";
import { change, state } from "../lib/state";
// @ts-ignore: not typed
import { designer } from "../legacy/design.js";

export function DesignPage() {
	return (
		<div class="wrap hero">
			<h1>Design</h1>
			<Legacy make={() => designer(data, state, change)} />
		</div>
	);
}
