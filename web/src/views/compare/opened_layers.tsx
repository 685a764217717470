// One layer of each model, opened in one scale: what is the same is pale, what differs is marked ≠,
// what only one has is marked +.
import { useMemo } from "preact/hooks";
import { Select } from "../../components/controls";
import { Measured } from "../../components/measured";
import { NumberButton, openDerivation } from "../../components/number";
import { Section, SubHeading } from "../../components/section";
import { data, type ModelData } from "../../lib/data";
import { formula, inShort, sumFormula, type Derivation } from "../../lib/derivation";
import { grouped, shortCount, signed } from "../../lib/format";
import { change, useAppState } from "../../lib/state";
import { BlockList } from "../plate/block_list";
import { contract, isMatrix, type Matrix, type PlateNode } from "../plate/contract";
import { layoutLayers, type LayerLayout, type LayerOptions } from "../plate/layout";
import { LayerPicture, type Mark } from "../plate/layer_picture";
import { stepDerivation } from "../plate/step_derivation";
import {
	asNumber,
	firstOfKind,
	kindAt,
	layersOfKind,
	middleLayer,
	plateOf,
	shortName,
	stagesOf,
	type PlateData,
	type Stage,
} from "../plate/plate_model";
import {
	compareStages,
	correspondingKind,
	sizeElsewhere,
	useText,
	type StepPair,
} from "./layer_difference";

const SIDE_BY_SIDE = 1000;
const PHONE = 760;
const GAP = 40;
const PADDING = 34;

type Both<T> = [T, T];
const both = <T,>(make: (i: 0 | 1) => T): Both<T> => [make(0), make(1)];

function stageOf(model: ModelData, kind: number): Stage | null {
	const plate = plateOf(model);
	const found = plate.kinds[kind]!.stage;
	return found === null ? null : (stagesOf(model, "prompt")[found] ?? null);
}

/**
 * The kinds of layers that are shown: the chosen ones, else the most frequent of the first model
 * and what corresponds to it.
 */
function shownKinds(plates: Both<PlateData>, chosen: Both<number | null>): Both<number> {
	const valid = (i: 0 | 1) =>
		chosen[i] !== null && plates[i].kinds[chosen[i]] ? chosen[i] : null;
	const [a, b] = [valid(0), valid(1)];
	const first =
		a ??
		(b === null
			? kindAt(plates[0], middleLayer(plates[0]))
			: correspondingKind(plates[1], b, plates[0]));
	return [first, b ?? correspondingKind(plates[0], first, plates[1])];
}

export function OpenedLayers() {
	const state = useAppState("kind_a", "kind_b");
	const models = data.models as Both<ModelData>;
	const plates = both((i) => plateOf(models[i]));
	const kinds = shownKinds(plates, [state.kind_a, state.kind_b]);
	const stages = both((i) => stageOf(models[i], kinds[i]));
	const pairs = useMemo(
		() => (stages[0] && stages[1] ? compareStages(stages[0], stages[1]) : []),
		[...stages],
	);
	const nameOf = (i: 0 | 1, kind: number) =>
		`${grouped(layersOfKind(plates[i], kind))} × ${plates[i].kinds[kind]!.label}`;
	return (
		<Section
			id="opened"
			topic="One layer of each"
			title={finding(pairs, models)}
			lead={
				"The matrices of both layers in one scale. Pale: the same in both. ≠: different; " +
				"dashed and in brackets: the size in the other model. +: only here."
			}
			controls={both(
				(i) =>
					plates[i].kinds.length > 1 && (
						<Select
							key={i}
							id={`kind-${i}`}
							label={`Layer of ${models[i].name}`}
							options={plates[i].kinds.map((_, k): [number, string] => [
								k,
								nameOf(i, k),
							])}
							chosen={kinds[i]}
							choose={(x) =>
								change(
									i
										? { kind_b: x, kind_a: kinds[0] }
										: { kind_a: x, kind_b: null },
								)
							}
						/>
					),
			)}
		>
			{stages[0] && stages[1] ? (
				<Measured isSlow>
					{(width) => (
						<Pictures
							models={models}
							plates={plates}
							kinds={kinds}
							stages={stages as Both<Stage>}
							pairs={pairs}
							width={width}
						/>
					)}
				</Measured>
			) : (
				<p class="callout">
					{models[stages[0] ? 1 : 0].name}: what this kind of layer computes is not in the
					recorded pass.
				</p>
			)}
			{pairs.length > 0 && (
				<DifferenceTable pairs={pairs} models={models} plates={plates} kinds={kinds} />
			)}
		</Section>
	);
}

const matricesOf = (pairs: StepPair[], mark: Mark, side?: 0 | 1): number =>
	pairs.filter(
		(x) =>
			x.mark === mark &&
			(side === undefined || x.steps[side]) &&
			x.steps.some((y) => y?.uses.some(isMatrix)),
	).length;

/** How many matrices are the same, differ, or are only in one. */
function finding(pairs: StepPair[], models: Both<ModelData>): string {
	if (!pairs.length) return "One layer of each model";
	const [same, differs] = [matricesOf(pairs, "same"), matricesOf(pairs, "differs")];
	const only = both((i) => matricesOf(pairs, "only", i));
	const parts = [
		differs && `${differs} differ in size`,
		...only.map((n, i) => n && `${n} ${n === 1 ? "is" : "are"} only in ${models[i]!.name}`),
	].filter(Boolean);
	const all = same + differs + only[0] + only[1];
	if (!parts.length)
		return pairs.every((x) => x.mark === "same")
			? "Both layers are the same"
			: `All ${all} matrices are the same, but not what is done with them`;
	return `Of ${all} matrices, ${[same ? `${same} ${same === 1 ? "is" : "are"} the same` : "none is the same", ...parts].join(", ")}`;
}

interface Props {
	models: Both<ModelData>;
	plates: Both<PlateData>;
	kinds: Both<number>;
	stages: Both<Stage>;
	pairs: StepPair[];
}

function Pictures({ models, plates, kinds, stages, pairs, width }: Props & { width: number }) {
	const sides = useMemo(() => both((i) => comparisonOf(pairs, i)), [pairs]);
	const [layouts, room, isBeside] = useMemo((): [Both<LayerLayout>, number, boolean] => {
		const options = (i: 0 | 1): LayerOptions => ({
			width: asNumber(stages[i].stream[2]!),
			stage: stages[i],
			letters: false,
			nameOf: (path) => shortName(path),
			other: sides[i].lines,
		});
		const layers = both((i): [ReturnType<typeof contract>, LayerOptions] => [
			contract(stages[i]),
			options(i),
		]);
		const half = Math.floor((width - GAP) / 2) - PADDING;
		const beside = width >= SIDE_BY_SIDE ? layoutLayers(layers, half, false, true) : [];
		if (beside.length) return [beside as Both<LayerLayout>, half, true];
		const below = layoutLayers(layers, width - PADDING, width < PHONE);
		return [below as Both<LayerLayout>, width - PADDING, false];
	}, [stages[0], stages[1], sides, width]);
	const fits = layouts.every((x) => x.width <= room + 1);
	return (
		<div class={`opened-layers${isBeside ? " beside" : ""}`}>
			{both((i) => {
				const { sizes, label } = plates[i].kinds[kinds[i]]!;
				const derive = () => ({
					title: `${models[i].name}: one layer`,
					lines: [
						sumFormula(sizes.groups.map((x) => [x.group, x.parameters])),
						...inShort("parameters", sizes.parameters),
					],
				});
				return (
					<figure
						key={i}
						class="plate-panel opened-layer"
						aria-label={`${models[i].name}: ${label}`}
					>
						<div class="plate-head">
							<SubHeading>{models[i].name}</SubHeading>
							<span>
								{label}, layer {grouped(firstOfKind(plates[i], kinds[i]))} ·{" "}
								<NumberButton
									derive={derive}
									label={`parameters of a layer of ${models[i].name}`}
									data-opened={String(i)}
								>
									{grouped(sizes.parameters)}
								</NumberButton>{" "}
								parameters
							</span>
						</div>
						{fits ? (
							<div class="plate">
								<LayerPicture
									stage={stages[i]}
									modelWidth={asNumber(stages[i].stream[2]!)}
									width={room}
									isPhone={width < PHONE}
									letters={false}
									scheme="path"
									nameOf={shortName}
									walked={null}
									cachedCells={7}
									layout={layouts[i]}
									markOf={sides[i].markOf}
									sayMark={sides[i].sayMark}
									open={(node) =>
										openDerivation(
											nodeDerivation(node, i, sides[i], models, stages),
										)
									}
								/>
							</div>
						) : (
							<BlockList
								stage={stages[i]}
								steps={stages[i].steps}
								width={room}
								letters={false}
								variables={ONE}
								nameOf={shortName}
								walked={null}
								openMatrix={(step) =>
									openDerivation(
										pairDerivation(sides[i].pairOf(step.name)!, models, stages),
									)
								}
								markOf={(name) => sides[i].pairOf(name)?.mark ?? "same"}
							/>
						)}
						<Missing pairs={pairs} side={i} models={models} />
					</figure>
				);
			})}
			{fits && (
				<p class="caption">
					Both in one scale, 1,000 = {(1000 * layouts[0].scale).toFixed(1)} px, the width
					of the residual stream across. Norms, heads and cached tokens are symbols. A
					part opens its numbers in both models.
				</p>
			)}
		</div>
	);
}

const ONE = { T: 1n, B: 1n };

/** What the other model has and this one has not. */
function Missing({
	pairs,
	side,
	models,
}: {
	pairs: StepPair[];
	side: 0 | 1;
	models: Both<ModelData>;
}) {
	const missing = pairs.filter((x) => !x.steps[side] && x.steps[1 - side]!.uses.some(isMatrix));
	if (!missing.length) return null;
	return (
		<p class="missing">
			<strong>Not here, but in {models[side ? 0 : 1].name}:</strong>{" "}
			{missing
				.map((x) => `${shortName(x.name.replace(".{e}", ""))} ${x.texts[1 - side]}`)
				.join("; ")}
			.
		</p>
	);
}

interface Side {
	pairOf: (name: string) => StepPair | undefined;
	markOf: (node: PlateNode, path?: string) => Mark;
	sayMark: (node: PlateNode) => string;
	lines: NonNullable<LayerOptions["other"]>;
}

/** What a picture says of the other layer. */
function comparisonOf(pairs: StepPair[], side: 0 | 1): Side {
	const byName = new Map(pairs.map((x) => [x.name, x]));
	const pairOf = (name: string) => byName.get(name);
	const elsewhere = ({ step, use }: Matrix) =>
		pairOf(step.name)?.steps[1 - side]?.uses.find((x) => x.path === use.path) ?? null;
	const matrixMark = (matrix: Matrix): Mark => {
		const found = elsewhere(matrix);
		return !found ? "only" : useText(found) === useText(matrix.use) ? "same" : "differs";
	};
	// of a node of several steps, what stands beside its matrices: heads, RoPE, norms of heads
	const beside = (node: PlateNode) =>
		node.steps
			.filter((x) => !node.matrices.some((y) => y.step === x))
			.map((x) => pairOf(x.name)!);
	const markOf = (node: PlateNode, path?: string): Mark => {
		const matrix = node.matrices.find((x) => x.use.path === path);
		if (matrix) return matrixMark(matrix);
		const marks = [...node.matrices.map(matrixMark), ...beside(node).map((x) => x.mark)];
		return marks.length && marks.every((x) => x === "only")
			? "only"
			: marks.some((x) => x !== "same")
				? "differs"
				: "same";
	};
	const notesOf = (node: PlateNode): string[] => {
		const all = beside(node).filter((x) => x.mark !== "same");
		if (!node.matrices.length && markOf(node) === "only") return ["+ only here"];
		const [others, own] = [
			all
				.filter((x) => x.mark === "differs")
				.map(
					(x) => `${x.texts[side ? 0 : 1].replace(`${x.steps[side]!.does}, `, "")} there`,
				),
			all
				.filter((x) => x.mark === "only" && x.steps[side]!.kind !== "view")
				.map((x) => `+ ${x.steps[side]!.does}`),
		];
		return node.matrices.length && node.matrices.every((x) => matrixMark(x) === "only")
			? others
			: [...new Set([...others, ...own])];
	};
	return {
		pairOf,
		markOf,
		sayMark: (node) =>
			({
				same: "; the same in the other model",
				differs: `; differs: ${[
					...node.matrices
						.map(elsewhere)
						.filter((x) => x !== null)
						.map(useText),
					...notesOf(node),
				].join(", ")} in the other model`,
				only: "; only in this model",
			})[markOf(node)],
		lines: {
			matrixOf: (matrix) => (matrixMark(matrix) === "differs" ? elsewhere(matrix) : null),
			linesOf: (matrix) =>
				({
					same: [],
					differs: [`(≠ ${sizeElsewhere(matrix.use, elsewhere(matrix) ?? matrix.use)})`],
					only: [],
				})[matrixMark(matrix)],
			notesOf,
		},
	};
}

function pairDerivation(pair: StepPair, models: Both<ModelData>, stages: Both<Stage>): Derivation {
	const lines = both((i) => {
		const step = pair.steps[i];
		return [
			<p>
				<strong>{models[i].name}</strong>
				{step ? "" : ": no such step"}
			</p>,
			...(step ? stepDerivation(step, stages[i], ONE).lines : []),
		];
	});
	return { title: pair.name, lines: [...lines.flat(), deltaFormula(pair, models)] };
}

const parametersOf = (pair: StepPair): Both<bigint> =>
	both((i) => BigInt(pair.steps[i]?.parameters ?? "0"));

function deltaFormula(pair: StepPair, models: Both<ModelData>) {
	const [a, b] = parametersOf(pair);
	return formula(
		`${models[1].name} − ${models[0].name}`,
		`${grouped(b)} − ${grouped(a)}`,
		`${signed(b - a)} parameters`,
	);
}

function nodeDerivation(
	node: PlateNode,
	side: 0 | 1,
	{ pairOf }: Side,
	models: Both<ModelData>,
	stages: Both<Stage>,
): Derivation {
	const pairs = node.steps.map((x) => pairOf(x.name)!);
	const main = pairs.find((x) => x.steps[side]!.uses.some(isMatrix)) ?? pairs[0]!;
	if (pairs.length === 1) return pairDerivation(main, models, stages);
	return {
		title: main.name,
		lines: pairs.flatMap((x) => [
			<h4>{x.name}</h4>,
			...pairDerivation(x, models, stages).lines,
		]),
	};
}

function DifferenceTable({ pairs, models, plates, kinds }: Omit<Props, "stages">) {
	const rows = pairs.filter((x) => x.mark !== "same");
	const same = pairs.filter((x) => x.mark === "same");
	const totals = both((i) => BigInt(plates[i].kinds[kinds[i]]!.sizes.parameters));
	const total = () => ({
		title: "difference of one layer",
		lines: [
			sumFormula(
				rows
					.filter((x) => parametersOf(x)[0] !== parametersOf(x)[1])
					.map((x) => [x.name, parametersOf(x)[1] - parametersOf(x)[0]]),
			),
			formula(
				`${models[1].name} − ${models[0].name}`,
				`${grouped(totals[1])} − ${grouped(totals[0])}`,
				signed(totals[1] - totals[0]),
			),
		],
	});
	return (
		<details class="layer-differences folded">
			<summary>
				{rows.length} steps differ
				{same.length > 0 &&
					`, ${same.length} are the same: ${same.map((x) => x.name.replace(".{e}", "")).join(", ")}`}
			</summary>
			<table class="pairs" role="table">
				<caption class="hidden">Steps of the layers that differ</caption>
				<thead role="rowgroup">
					<tr role="row">
						<th scope="col" role="columnheader">
							step
						</th>
						{models.map((x, i) => (
							<th key={i} scope="col" role="columnheader">
								{x.name}
							</th>
						))}
						<th scope="col" role="columnheader" class="n">
							parameters
						</th>
					</tr>
				</thead>
				<tbody role="rowgroup">
					{rows.map((x) => {
						const [a, b] = parametersOf(x);
						return (
							<tr key={x.name} role="row" data-step-pair={x.name}>
								<th scope="row" role="rowheader" class="path">
									<span class="mark-text" aria-hidden="true">
										{x.mark === "only" ? "+" : "≠"}
									</span>{" "}
									{x.name.replace(".{e}", "")}
								</th>
								{x.texts.map((text, i) => (
									<td key={i} role="cell" data-label={models[i]!.name}>
										{x.steps[i] ? text : "–"}
									</td>
								))}
								<td class="n" role="cell" data-label="parameters">
									{a === b ? (
										"same"
									) : (
										<NumberButton
											derive={() => ({
												title: `${x.name}: parameters`,
												lines: [
													deltaFormula(x, models),
													...inShort("difference", a > b ? a - b : b - a),
												],
											})}
											label={`${x.name}, difference`}
										>
											{signed(b - a)}
										</NumberButton>
									)}
								</td>
							</tr>
						);
					})}
					<tr role="row" class="total">
						<th scope="row" role="rowheader">
							One layer
						</th>
						{totals.map((n, i) => (
							<td key={i} role="cell" data-label={models[i]!.name}>
								{shortCount(n)}
							</td>
						))}
						<td class="n" role="cell" data-label="parameters">
							<NumberButton
								derive={total}
								label="difference of one layer"
								data-opened="delta"
							>
								{signed(totals[1] - totals[0])}
							</NumberButton>
						</td>
					</tr>
				</tbody>
			</table>
		</details>
	);
}
