// A layer with experts in the place of its FFN beside the dense one.
import { encodeSizes } from "../../lib/design";
import type { Edited, Mixture } from "../../lib/editing";
import { grouped } from "../../lib/format";
import { modelPart } from "../../lib/model_parts";
import { change } from "../../lib/state";
import { Total } from "../design/design";

export function AsMixture({ edited, mixture }: { edited: Edited; mixture: Mixture }) {
	const { counts, unfollowed } = edited;
	const { dimensions, like, counts: result } = mixture;
	const layerOf = (x: typeof counts) => x.bars.find((y) => y.isLayers)?.groups ?? [];
	const sizesOf = (x: typeof counts) => new Map(layerOf(x).map((y) => [y.name, y.n]));
	const [dense, sparse] = [sizesOf(counts), sizesOf(result)];
	const names = [...new Set([...dense.keys(), ...sparse.keys()])].filter(
		(x) => dense.get(x) !== sparse.get(x),
	);
	const { E, k } = dimensions.values;
	const toDesign = () =>
		change({
			...({ view: "design", like, edit: "", keys: "", section: "", zoom: "" } as const),
			sizes: encodeSizes(dimensions),
		});
	return (
		<div data-part="mixture">
			<h3>
				{String(E)} experts in the place of each FFN, {String(k)} for a token
			</h3>
			<Total result={result} values={dimensions.values} />
			<table class="mixture-layer">
				<caption class="caption">
					Parameters of a layer; all experts are in memory, and a router chooses.
				</caption>
				<thead>
					<tr>
						<td />
						{["dense", "with experts"].map((x) => (
							<th key={x} scope="col" class="n">
								{x}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{names.map((name) => (
						<tr key={name}>
							<th scope="row">{modelPart(name).name}</th>
							{[dense, sparse].map((x, i) => (
								<td key={i} class="n">
									{x.has(name) ? grouped(x.get(name)!) : "—"}
								</td>
							))}
						</tr>
					))}
				</tbody>
			</table>
			{unfollowed && (
				<button type="button" class="button" onClick={toDesign}>
					Memory and hardware of the mixture
				</button>
			)}
		</div>
	);
}
