// The designed model as bars, a bar for each layer, its height the layer's parameters, with the outline
// of the model that it began as, in one scale.
import { Fragment } from "preact";
import { Measured } from "../../components/measured";
import type { evaluateDesign } from "../../lib/design";
import { grouped, sum } from "../../lib/format";
import { fill } from "../plate/plate_model";
import { modelPart, STACK_ORDER } from "../../lib/model_parts";

type Bars = ReturnType<typeof evaluateDesign>["bars"];

interface Props {
	name: string;
	now: Bars;
	/** The bars at the model's own dimensions. */
	own: Bars;
}

const HEIGHT = 170;
const BASE = HEIGHT + 12;
/** The place of a part that is no layer, and of one too small to be seen. */
const [PART, SMALL] = [42, 8];
const NAMES = 24;

const parametersOf = (x: Bars[number]) => sum(x.groups.map((y) => y.n));
const layersOf = (bars: Bars) => Number(sum(bars.filter((x) => x.isLayers).map((x) => x.times)));
const isChanged = ({ now, own }: Props) =>
	now.length !== own.length || now.some((x, i) => !isEqual(x, own[i]!));

export const DesignPicture = (props: Props) => (
	<figure class="design-picture">
		<Measured>{(width) => <Picture {...props} width={width} />}</Measured>
		<figcaption class="caption">
			A bar for each layer, its height the layer's parameters
			{isChanged(props) && `; dashed: ${props.name}`}.
		</figcaption>
	</figure>
);

function Picture(props: Props & { width: number }) {
	const { name, now, own, width } = props;
	const layers = Math.max(layersOf(now), layersOf(own));
	const most = [...now, ...own].map(parametersOf).reduce((a, b) => (a > b ? a : b), 1n);
	const heightOf = (n: bigint) => Number((n * 1_000_000n) / most) * (HEIGHT / 1_000_000);
	const roomOf = (x: Bars[number]) => (heightOf(parametersOf(x)) < 1 ? SMALL : PART);
	const partsWidth = (bars: Bars) =>
		bars.filter((x) => !x.isLayers).reduce((n, x) => n + roomOf(x), 0);
	const parts = Math.max(partsWidth(now), partsWidth(own));
	const pitch = (width - parts - 4) / Math.max(1, layers);
	/** The bars from left to right: of many layers, those of a kind as one. */
	const placed = (bars: Bars) => {
		let x = 2;
		return bars.flatMap((bar) => {
			const times = Number(bar.times);
			const extent = bar.isLayers ? pitch * times : roomOf(bar);
			const start = x;
			x += extent;
			if (!bar.isLayers || pitch < 3) return [{ bar, x: start, width: extent }];
			return Array.from({ length: times }, (_, i) => ({
				bar,
				x: start + i * pitch,
				width: pitch,
			}));
		});
	};
	const outline = placed(own)
		.map((x) => {
			const top = (BASE - heightOf(parametersOf(x.bar))).toFixed(1);
			return `V${top}H${(x.x + x.width).toFixed(1)}`;
		})
		.join("");
	const bars = placed(now);
	const inLayers = bars.filter((x) => x.bar.isLayers);
	const end = inLayers.at(-1);
	return (
		<svg
			width={width}
			height={BASE + NAMES}
			role="img"
			aria-label={`${grouped(layersOf(now))} layers, ${name} has ${grouped(layersOf(own))}; ${now.map(describe).join("; ")}`}
		>
			{bars.map(({ bar, x, width: room }, i) => (
				<Fragment key={i}>
					<Stack bar={bar} x={x} room={room} heightOf={heightOf} />
					{!bar.isLayers && room === PART && (
						<text
							class="muted"
							x={end && x > end.x ? x + room - 6 : x}
							y={BASE + NAMES - 4}
							text-anchor={end && x > end.x ? "end" : "start"}
						>
							{modelPart(bar.groups[0]!.name).name.toLowerCase()}
						</text>
					)}
				</Fragment>
			))}
			{end && (
				<text
					class="bold"
					x={(inLayers[0]!.x + end.x + end.width) / 2}
					y={BASE + NAMES - 4}
					text-anchor="middle"
				>
					{grouped(layersOf(now))} {layersOf(now) === 1 ? "layer" : "layers"}
				</text>
			)}
			{isChanged(props) && <path class="design-own" d={`M2 ${BASE}${outline}V${BASE}`} />}
			<path class="stream" d={`M0 ${BASE + 3}H${width}`} />
		</svg>
	);
}

function Stack({
	bar,
	x,
	room,
	heightOf,
}: {
	bar: Bars[number];
	x: number;
	room: number;
	heightOf: (n: bigint) => number;
}) {
	const order = (name: string) => STACK_ORDER.indexOf(modelPart(name).color);
	let y = BASE;
	const width = Math.max(0.5, room - (room > 20 ? 6 : room > 3 ? 1 : 0));
	return (
		<>
			{bar.groups
				.toSorted((a, b) => order(a.name) - order(b.name))
				.map(({ name, n }) => {
					const height = heightOf(n);
					y -= height;
					return (
						<rect
							key={name}
							class="data"
							x={x}
							y={y}
							width={width}
							height={Math.max(0, height - (height > 4 ? 0.8 : 0))}
							fill={fill(name)}
						/>
					);
				})}
		</>
	);
}

const isEqual = (a: Bars[number], b: Bars[number]): boolean =>
	a.times === b.times && a.groups.every((x, i) => x.n === b.groups[i]?.n);

const describe = (x: Bars[number]): string =>
	`${x.isLayers ? `${grouped(x.times)} × ` : ""}${x.groups.map((y) => modelPart(y.name).name).join(", ")} ${grouped(parametersOf(x))}`;
