// Two models side by side: why one is larger, then three chapters under one bar of settings.
import "./compare/compare.css";
import type { ComponentChildren } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { InTurn } from "../components/in_turn";
import { Folded } from "../components/folded";
import { NumberButton } from "../components/number";
import { Chapter, Part, Section, SubHeading, type ChapterLink } from "../components/section";
import { data, type ModelData } from "../lib/data";
import { formula } from "../lib/derivation";
import { grouped, share, shortFileSize, signed } from "../lib/format";
import { sizesOf } from "../lib/sizing/data";
import { shortTitle } from "../lib/sizing/facts";
import { chosenHardware, settings, SIZING_SETTINGS, verdict } from "../lib/sizing/fit";
import { change, initialState, useAppState } from "../lib/state";
import { BothHardware } from "./compare/both_hardware";
import { difference, howInWords, isSameModel, whyInWords } from "./compare/difference";
import { Measures, MeasuresFinding, SpeedFinding } from "./compare/measures";
import { Shapes } from "./compare/shapes";
import { OpenedLayers } from "./compare/opened_layers";
import { ConfigTable, factsFinding, FactTable, WeightTable } from "./compare/tables";
import { Waterfall } from "./compare/waterfall";
import { factsOf } from "./facts/fact_sheet";
import { MemorySection } from "./memory/memory";
import { SettingsBar } from "./memory/settings_bar";
import { PlateSkyline } from "./plate/plate";
import { plateOf } from "./plate/plate_model";
import { tallestBar } from "./plate/skyline";

/** Parts that begin folded; paper has all but the shapes. */
const FOLDED: readonly string[] = ["configs", "shapes"];
const FOLDED_ON_PHONES: readonly string[] = ["facts", "opened", "memory"];

const CHAPTERS = [
	{
		id: "how-it-works",
		name: "How they work",
		parts: [
			{ id: "facts", name: "Facts" },
			{ id: "opened", name: "Layers" },
			{ id: "configs", name: "Configurations" },
		],
	},
	{
		id: "how-large",
		name: "How large",
		parts: [
			{ id: "pictures", name: "Pictures" },
			{ id: "shapes", name: "Shapes" },
		],
	},
	{
		id: "what-it-needs",
		name: "What they need",
		parts: [
			{ id: "sizes", name: "Sizes" },
			{ id: "hardware", name: "Hardware" },
			{ id: "memory", name: "Memory" },
		],
	},
] as const satisfies readonly ChapterLink[];

/** Without a comparison, and of equal models, there are no chapters. */
export const COMPARISON_CHAPTERS: readonly ChapterLink[] =
	(data.difference as object | null) === null || isSameModel(difference) ? [] : CHAPTERS;

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
		.map((x) => `${x.key} ${[x.a, x.b].map((y) => (y === "–" ? "absent" : y)).join(" → ")}`)
		.join(", ");
}

const bothOf = (text: (x: ModelData) => string): string => {
	const [first, second] = data.models.map(text);
	return first === second ? `${first} in both` : `${first} → ${second}`;
};

/** The finding of a chapter about both models. */
function Finding({ of }: { of: (typeof CHAPTERS)[number]["id"] }) {
	const state = useAppState(...SIZING_SETTINGS);
	const fact = (name: string) =>
		bothOf((x) => factsOf(x).rows.find((row) => row.name === name)?.value ?? "none");
	if (of === "how-it-works")
		return `Layers: ${fact("Layers")}; KV cache of a token: ${fact("KV cache")}`;
	if (of === "how-large")
		return data.models
			.map((x) => [x, factsOf(x).weights[0]!] as const)
			.map(
				([x, { bytes, name }]) =>
					`${x.name} is a file of ${shortFileSize(bytes)} in ${name}`,
			)
			.join(", ");
	const { gpu, count } = chosenHardware(sizesOf(a!), state);
	const room = data.models.map((x) => {
		const { maxBatch } = verdict(settings(x, { ...state, mode: "run" }), gpu);
		return `${maxBatch === null ? "any number of" : grouped(maxBatch)} sequences`;
	});
	return (
		`${count} × ${shortTitle(gpu)} ${count === "1" ? "holds" : "hold"} ${room[0]} ` +
		`of ${grouped(state.context)} tokens with ${a!.name}, ${room[1]} with ${b!.name}`
	);
}

const PARTS: Record<(typeof CHAPTERS)[number]["parts"][number]["id"], () => ComponentChildren> = {
	opened: () => <OpenedLayers />,
	facts: () => (
		<Section id="facts" topic="Fact sheets" title={factsFinding()}>
			<FactTable />
		</Section>
	),
	configs: () => (
		<Section
			id="configs"
			topic="Configurations"
			title={`${difference.config.length} keys differ`}
		>
			<ConfigTable difference={difference} />
		</Section>
	),
	pictures: () => (
		<Section
			id="pictures"
			topic="Whole models"
			title={kindsInWords()}
			lead="Every layer, both models in one scale: the height is its parameters."
		>
			<div class="both-pictures">
				{data.models.map((x, i) => (
					<figure key={i} aria-label={`${x.name}, layer by layer`}>
						<SubHeading>{x.name}</SubHeading>
						<PlateSkyline
							model={x}
							barHeight={72}
							most={Math.max(...data.models.map((y) => tallestBar(plateOf(y))))}
						/>
					</figure>
				))}
			</div>
		</Section>
	),
	shapes: () => (
		<Section
			id="shapes"
			topic="Shapes"
			title={
				difference.shared.weights.length
					? `${difference.shared.weights.length} weights have the same ` +
						`shape, ${difference.weights.length} differ`
					: "No weight has the same shape in both"
			}
			lead={`Weights are matched by their place in the model; those of equal shape are ${share(
				BigInt(difference.shared.parameters),
				BigInt(difference.totals[1]),
			)} of ${b!.name}.`}
		>
			<Shapes difference={difference} />
			<Folded id="aligned" says="Every weight that differs, in numbers">
				<WeightTable difference={difference} />
			</Folded>
		</Section>
	),
	sizes: () => (
		<Section id="sizes" topic="What each costs" title={<SpeedFinding />}>
			<Measures />
		</Section>
	),
	hardware: () => <BothHardware />,
	memory: () => <MemorySection models={data.models} />,
};

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
	const others = otherKeys();
	return (
		<>
			<div class="wrap hero compare-head">
				<h1>
					{a!.name} → {b!.name}
				</h1>
				<p>
					From {a!.name} to {b!.name}: <Delta /> parameters. <MeasuresFinding />.
				</p>
			</div>
			<Section id="causes" topic="Why the sizes differ" title={title()}>
				<Waterfall names={names} causes={difference} />
				<p class="caption method no-print">{howInWords(difference.method, names)}</p>
				{others && <p class="callout">Not in the count of parameters: {others}.</p>}
			</Section>
			<div class="sized">
				<SettingsBar models={data.models} />
				{CHAPTERS.map((chapter) => (
					<Chapter key={chapter.id} {...chapter} title={<Finding of={chapter.id} />}>
						{chapter.parts.map(({ id }) => (
							<InTurn key={id} id={id}>
								<Part
									fold={
										FOLDED.includes(id)
											? "always"
											: FOLDED_ON_PHONES.includes(id)
												? "on phones"
												: "never"
									}
									isPrinted={id !== "shapes"}
								>
									{PARTS[id]()}
								</Part>
							</InTurn>
						))}
					</Chapter>
				))}
			</div>
		</>
	);
}
