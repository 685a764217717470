// Where the parameters, bytes, FLOPs and cache of a model are.
import { useMemo } from "preact/hooks";
import "./parameters.css";
import { Segmented } from "../../components/controls";
import { NumberButton } from "../../components/number";
import { Section } from "../../components/section";
import type { ModelData } from "../../lib/data";
import { formula, inBytes, inShort, sumFormula } from "../../lib/derivation";
import { gibibytes, grouped, share } from "../../lib/format";
import { kvVariables } from "../../lib/kv_variables";
import { change, useAppState } from "../../lib/state";
import type { ModelSection } from "../../lib/weights";
import { sizesOf } from "../../lib/sizing/data";
import { chosenDtypes } from "../../lib/sizing/gpu_memory";
import { chosenExperts, finding, largest } from "./finding";
import { IciclePicture } from "./icicle";
import { measuredCells, UNITS, type Cell, type MeasureSettings } from "./measures";

const MEASURES = [
	["parameters", "Parameters"],
	["bytes", "Bytes"],
	["flops", "FLOPs"],
	["cache", "Cache"],
] as const;
const GROUPINGS = [
	["part", "Component"],
	["kind", "Kind of layer"],
] as const;
const SUBJECTS: Record<string, string> = {
	parameters: "parameters",
	bytes: "bytes of weights",
	flops: "FLOPs of one token",
	cache: "bytes of cache",
};

/** The finding; where it has numbers, it opens their derivation. */
function Finding({
	model,
	measure,
	cells,
	whole,
}: {
	model: ModelData;
	measure: string;
	cells: Cell[];
	whole: bigint;
}) {
	const most = largest(cells);
	const experts = chosenExperts(model);
	const text = finding(measure, cells, whole, experts);
	if (!most || !/\d/.test(text)) return <>{text}</>;
	const usedLine =
		most.active < most.size &&
		formula(
			"in use / all",
			`${grouped(most.active)} / ${grouped(most.size)}` +
				(experts && text.includes("experts (")
					? ` = ${grouped(experts[0])} / ${grouped(experts[1])}`
					: ""),
			share(most.active, most.size),
		);
	const derive = () => ({ title: most.name, lines: [...most.derive().lines, usedLine] });
	return (
		<NumberButton derive={derive} label="finding">
			{text}
		</NumberButton>
	);
}

export function Parameters({ model }: { model: ModelData }) {
	const state = useAppState("map", "by", "context", "batch", "dtype", "kv");
	const measure = state.map;
	const { dtype, kv } = chosenDtypes(sizesOf(model), state);
	const load =
		measure === "flops"
			? `${state.context}`
			: measure === "cache"
				? `${state.context} ${state.batch} ${kv.name}`
				: dtype.name;
	const { whole, cells, byComponent } = useMemo(() => {
		// of the whole model, however many GPUs share it
		const set: MeasureSettings = {
			dtype,
			variables: { ...kvVariables(model, state), T: state.context, B: state.batch },
		};
		const found = measuredCells(model, state, set);
		return {
			...found,
			byComponent:
				state.by === "part"
					? found.cells
					: measuredCells(model, { ...state, by: "part" }, set).cells,
		};
	}, [model, measure, state.by, load]);
	const hasKinds = (model.sections as ModelSection[]).filter((x) => x.layers).length > 1;
	const unit = UNITS[measure]!;
	const derive = () => ({
		title: `all ${SUBJECTS[measure]}`,
		lines: [
			sumFormula(
				cells.map((x) => [x.name, x.size]),
				unit,
			),
			unit === "bytes" ? inBytes(whole) : inShort(unit, whole),
		],
	});
	const tokens = `${grouped(state.context)} tokens`;
	const scope = {
		parameters: "",
		bytes: `, ${dtype.title}`,
		flops: `, the last of ${tokens}`,
		cache: `, ${tokens} × batch ${grouped(state.batch)}`,
	}[measure];
	const isPartlyActive = cells.some((x) => x.active < x.size);
	const picture = useMemo(
		() =>
			whole > 0n && (
				<IciclePicture
					name={`${model.name}, ${SUBJECTS[measure]}${scope}`}
					cells={cells}
					whole={whole}
					measure={measure}
				/>
			),
		[cells, scope],
	);
	return (
		<Section
			id="parameters"
			topic="Where the parameters are"
			title={<Finding model={model} measure={measure} cells={byComponent} whole={whole} />}
			lead={
				<>
					Areas are shares of{" "}
					<NumberButton derive={derive} label={SUBJECTS[measure]!} data-part="area">
						{grouped(whole)}
					</NumberButton>{" "}
					{SUBJECTS[measure]}
					{unit === "bytes" && (
						<>
							{" "}
							(
							<NumberButton derive={derive} label={SUBJECTS[measure]!}>
								{gibibytes(whole)}
							</NumberButton>
							)
						</>
					)}
					<span class="set">{scope}</span>.
					{isPartlyActive && " Solid: used for one token. Pale: resident, idle."}
				</>
			}
			controls={
				<>
					<Segmented
						id="map"
						label="Measure"
						labelHidden
						options={MEASURES}
						chosen={measure}
						choose={(map) => change({ map })}
					/>
					{hasKinds && (
						<Segmented
							id="by"
							label="Grouped by"
							labelHidden
							options={GROUPINGS}
							chosen={state.by}
							choose={(by) => change({ by })}
						/>
					)}
				</>
			}
		>
			{picture || (
				<p>{measure === "cache" ? "No layer writes to a cache." : "Nothing to show."}</p>
			)}
		</Section>
	);
}
