// The first screen: what kind of model this is, how large, and its picture.
import { NumberButton } from "../../components/number";
import type { ModelData } from "../../lib/data";
import { formula, inShort } from "../../lib/derivation";
import { grouped } from "../../lib/format";

export function FactSheet({ model }: { model: ModelData }) {
	const total = model.counts[0]!;
	const derive = () => ({ title: `${total.name}: ${total.everyday}`, lines: [total.says, formula(total.symbols, total.numbers, grouped(total.value)), ...inShort(total.name, BigInt(total.value), total.everyday)] });
	return (
		<div class="wrap hero">
			<div class="sheet">
				<h1>{model.name}</h1>
				<p class="hero-number">
					<NumberButton derive={derive} label="parameters" data-part="parameters">{model.everyday}</NumberButton> parameters
				</p>
			</div>
		</div>
	);
}
