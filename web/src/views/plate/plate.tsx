// The picture of the model, the heart of the page: the whole model, and below it the opened layer, block, matrix or head.
import "./plate.css";
import { useCallback, useMemo } from "preact/hooks";
import { Segmented } from "../../components/controls";
import type { ModelData } from "../../lib/data";
import { grouped, shortCount } from "../../lib/format";
import { change, useAppState } from "../../lib/state";
import { useWidth } from "../../lib/use_width";
import { LayerPicture } from "./layer_picture";
import { asNumber, COMPONENT_NAMES, firstOfKind, fill, fullName, kindAt, layersOfKind, middleLayer, numLayers, plateOf, schemeNames, shortName, stagesOf, type PlateData, type Stage } from "./plate_model";
import { openX, Skyline } from "./skyline";

const NARROW = 760;

export function PlateSkyline({ model, barHeight, hasLens = false }: { model: ModelData; barHeight: number; hasLens?: boolean }) {
	const state = useAppState();
	const plate = plateOf(model);
	const [ref, width] = useWidth<HTMLDivElement>(900);
	const open = openPlace(plate, state.layer!);
	return (
		<div ref={ref} class="plate plate-whole">
			{plate.kinds.length > 1 && <Kinds plate={plate} open={open} />}
			{width > 99 && <Skyline plate={plate} width={width} barHeight={barHeight} open={open} choose={(layer) => change({ layer: String(layer) })} />}
			{hasLens && width > 99 && <Lens at={openX(plate, width, open)} width={width} />}
		</div>
	);
}

/** From the open bar down to the panel in which it is shown large. */
function Lens({ at: [left, right], width }: { at: [number, number]; width: number }) {
	return <svg class="lens" width={width} height={22} viewBox={`0 0 ${width} 22`} aria-hidden="true"><path d={`M${left} 0H${right}L${width - 14} 22H14Z`} /></svg>;
}

/** The open layer, or the part "embedding" or "head". */
export function openPlace(plate: PlateData, chosen: string): number | string {
	if (chosen === "embedding" || chosen === "head") return chosen;
	const layer = Number(chosen);
	return chosen !== "" && layer < numLayers(plate) ? layer : middleLayer(plate);
}

function Kinds({ plate, open }: { plate: PlateData; open: number | string }) {
	const ramp = ["var(--ramp-2)", "var(--ramp-5)", "var(--ramp-3)", "var(--panel)"];
	return (
		<div class="plate-kinds" role="group" aria-label="Kinds of layers">
			{plate.kinds.map((x, i) => (
				<button type="button" key={i} aria-pressed={typeof open === "number" && kindAt(plate, open) === i} onClick={() => change({ layer: String(firstOfKind(plate, i)) })}>
					<i style={{ background: ramp[i % ramp.length] }} class="data" />
					{grouped(layersOfKind(plate, i))} × {x.label}
				</button>
			))}
		</div>
	);
}

export function Plate({ model }: { model: ModelData }) {
	const state = useAppState();
	const plate = plateOf(model);
	const [ref, width] = useWidth<HTMLDivElement>(900);
	const open = openPlace(plate, state.layer!);
	const stages = stagesOf(model, state.pass!);
	const kind = typeof open === "number" ? plate.kinds[kindAt(plate, open)]! : null;
	const stage = kind ? (kind.stage === null ? null : stages[kind.stage]!) : stages.find((x) => x.name === open)!;
	const names = useMemo(() => schemeNames(model), [model]);
	const scheme = state.names!;
	const nameOf = useCallback((path: string) => shortName(fullName(names, path, scheme, typeof open === "number") || path), [names, scheme, typeof open]);
	const inner = width - 34;
	return (
		<div ref={ref} class="plate">
			<div class="plate-panel">
				<div class="plate-head">
					<h2>{kind ? `Layer ${grouped(open as number)}` : open === "embedding" ? "Embedding" : "Head"}</h2>
					<span>{kind && <>{kind.label} · {grouped(kind.sizes.parameters)} parameters{kind.sizes.active !== kind.sizes.parameters && `, ${shortCount(kind.sizes.active)} active`}</>}</span>
					<span>matrices to one scale; norms and cached tokens are symbols</span>
				</div>
				<div class="plate-controls">
					<Segmented id="choice-names" label="Names" options={[["path", "llamath"], ["hf", "HF"], ["gguf", "GGUF"]]} chosen={scheme} choose={(names) => change({ names })} />
					<Segmented id="choice-shapes" label="Shapes" options={[["numbers", "numbers"], ["letters", "letters"]]} chosen={state.shapes!} choose={(shapes) => change({ shapes })} />
				</div>
				<div class="plate-scene">
					{stage?.steps.length ? (
						<LayerPicture stage={stage} modelWidth={asNumber(stage.stream[2]!)} width={inner} isPhone={inner < NARROW} letters={state.shapes === "letters"} scheme={scheme} nameOf={nameOf} walked={null} cachedCells={7} open={() => {}} />
					) : null}
				</div>
				<Key stage={stage} />
			</div>
		</div>
	);
}

function Key({ stage }: { stage: Stage | null }) {
	const found = new Set(stage?.steps.map((x) => (x.kind === "cache" ? "cache" : x.color)));
	return <div class="key" aria-label="Colours">{COMPONENT_NAMES.filter(([x]) => found.has(x)).map(([group, name]) => <span key={group}><i class="swatch data" style={{ background: fill(group) }} />{name}</span>)}</div>;
}
