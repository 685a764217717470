// Two models side by side: why one is larger, their shapes, sizes, facts, weights and
// configurations.
import "./compare/compare.css";
import { useLayoutEffect } from "preact/hooks";
import { InTurn } from "../components/in_turn";
import { Folded } from "../components/folded";
import { NumberButton } from "../components/number";
import { Section } from "../components/section";
import type { SectionLink } from "../components/header";
import { data } from "../lib/data";
import { formula } from "../lib/derivation";
import { grouped, share, signed } from "../lib/format";
import { change, initialState, useAppState } from "../lib/state";
import { difference, howInWords, isSameModel, whyInWords } from "./compare/difference";
import { Measures, MeasuresFinding } from "./compare/measures";
import { Shapes } from "./compare/shapes";
import { OpenedLayers } from "./compare/opened_layers";
import { ConfigTable, factsFinding, FactTable, WeightTable } from "./compare/tables";
import { Waterfall } from "./compare/waterfall";
import { factsOf } from "./facts/fact_sheet";
import { MemorySection } from "./memory/memory";
import { PlateSkyline } from "./plate/plate";
import { plateOf } from "./plate/plate_model";
import { tallestBar } from "./plate/skyline";

export const COMPARISON_SECTIONS: readonly SectionLink[] = [
	{ id: "causes", name: "Causes" },
	{ id: "pictures", name: "Pictures" },
	{ id: "opened", name: "Layers" },
	{ id: "shapes", name: "Shapes" },
	{ id: "sizes", name: "Sizes" },
	{ id: "facts", name: "Facts" },
	{ id: "memory", name: "Memory" },
	{ id: "configs", name: "Configurations" },
];

const [a, b] = data.models;
const names = [a?.name ?? "", b?.name ?? ""] as const;

function Delta() {
	const derive = () => ({
		title: "difference",
		lines: [
			formula(
				`${b!.name} − ${a!.name}`,
				`${grouped(difference.totals[1])} − ${grouped(difference.totals[0])}`,
				signed(difference.delta),
			),
		],
	});
	return (
		<NumberButton derive={derive} label="difference" data-part="delta">
			{signed(difference.delta)}
		</NumberButton>
	);
}

function title(): string {
	if (isSameModel(difference)) return "These are the same model";
	return whyInWords(difference, [a!.everyday, b!.everyday]);
}

function kindsInWords(): string {
	const [first, second] = [a!, b!].map((x) => factsOf(x).kinds.join(", "));
	return first === second
		? `Both models are ${first}`
		: `${a!.name} is ${first}; ${b!.name} is ${second}`;
}

/** What differs in size of the cache and in behaviour, but in no weight. */
function otherKeys(): string {
	const keys = difference.config.filter(
		(x) => x.moves && !x.moves.startsWith("weights") && !x.key.startsWith("_"),
	);
	return keys
		.slice(0, 4)
		.map((x) => `${x.key} ${x.a} → ${x.b}`)
		.join(", ");
}

export function ComparisonPage() {
	const { card, gpus } = useAppState("card", "gpus");
	useLayoutEffect(() => {
		// both on the same hardware
		if (!card || !gpus) change({ card: initialState.card, gpus: initialState.gpus }, true);
	}, [card, gpus]);
	if (isSameModel(difference)) {
		return (
			<>
				<div class="wrap hero compare-head">
					<h1>{a!.name}, twice</h1>
					<p>
						These are the same model: every weight and every key of the configuration is
						equal. Choose another model to compare with.
					</p>
				</div>
				<Section id="facts" topic="Fact sheet" title="One fact sheet for both">
					<FactTable />
				</Section>
			</>
		);
	}
	const sames = share(BigInt(difference.shared.parameters), BigInt(difference.totals[1]));
	const others = otherKeys();
	return (
		<>
			<div class="wrap hero compare-head">
				<h1>
					{a!.name} → {b!.name}
				</h1>
				<p>
					From {a!.name} to {b!.name}: <Delta /> parameters.{" "}
					{difference.shared.weights.length} weights have the same shape in both,{" "}
					{difference.config.length} keys of the configuration differ.
				</p>
			</div>
			<Section id="causes" topic="Why the sizes differ" title={title()}>
				<Waterfall names={names} causes={difference} />
				<p class="caption method">{howInWords(difference.method, names)}</p>
				{others && <p class="callout">Not in the count of parameters: {others}.</p>}
			</Section>
			<InTurn id="pictures">
				<Section
					id="pictures"
					topic="Whole models"
					title={kindsInWords()}
					lead="Every layer, both models in one scale: the height is its parameters."
				>
					<div class="both-pictures">
						{data.models.map((x, i) => (
							<figure key={i} aria-label={`${x.name}, layer by layer`}>
								<h3>{x.name}</h3>
								<PlateSkyline
									model={x}
									barHeight={110}
									most={Math.max(
										...data.models.map((y) => tallestBar(plateOf(y))),
									)}
								/>
							</figure>
						))}
					</div>
				</Section>
			</InTurn>
			<InTurn id="opened">
				<OpenedLayers />
			</InTurn>
			<InTurn id="shapes">
				<Section
					id="shapes"
					topic="Shapes"
					title={
						difference.shared.weights.length
							? `${difference.shared.weights.length} weights have the same ` +
								`shape, ${difference.weights.length} differ`
							: "No weight has the same shape in both"
					}
					lead={`The same place is the same weight; those of equal shape are ${sames} of ${b!.name}.`}
				>
					<Shapes difference={difference} />
					<Folded id="aligned" says="Every weight that differs, in numbers">
						<WeightTable difference={difference} />
					</Folded>
				</Section>
			</InTurn>
			<InTurn id="sizes">
				<Section id="sizes" topic="What each costs" title={<MeasuresFinding />}>
					<Measures />
				</Section>
			</InTurn>
			<InTurn id="facts">
				<Section id="facts" topic="Fact sheets" title={factsFinding()}>
					<FactTable />
				</Section>
			</InTurn>
			<InTurn id="memory">
				<MemorySection models={data.models} />
			</InTurn>
			<InTurn id="configs">
				<Section
					id="configs"
					topic="Configurations"
					title={`${difference.config.length} keys differ`}
				>
					<ConfigTable difference={difference} />
				</Section>
			</InTurn>
		</>
	);
}
