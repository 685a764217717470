// The causes of a difference in size as a waterfall: from the total of the first model to that of
// the second, on a stated axis.
import "./waterfall.css";
import { scaleLinear } from "../../lib/scales";
import { Measured } from "../../components/measured";
import { NumberButton } from "../../components/number";
import { formula } from "../../lib/derivation";
import { countLabels, grouped, signed } from "../../lib/format";
import { textWidth } from "../../lib/measure_text";
import { modelPart } from "../../lib/model_parts";
import type { Cause, Causes } from "./difference";

interface Props {
	names: readonly [string, string];
	causes: Causes;
	/** Beside what changes it: lower bars. */
	isSmall?: boolean;
}

/** Heights of a bar, and of a link above it. */
const [BAR, LINK] = [30, 10];
const [SMALL_BAR, SMALL_LINK] = [18, 3];
/** Longer places of a cause are left to its derivation. */
const MAX_PLACE = 44;
/** Below this share of the largest level, the axis starts at 0. */
const MIN_BREAK = 0.3;

interface Axis {
	at: (n: bigint | number) => number;
	ticks: number[];
	/** Of the ticks, and of where the axis starts. */
	labels: string[];
	startLabel: string;
	isBroken: boolean;
	width: number;
	bar: number;
	top: number;
	row: number;
}

function axisOf(levels: bigint[], width: number, isSmall = false): Axis {
	const [bar, top] = isSmall ? [SMALL_BAR, SMALL_LINK] : [BAR, LINK];
	const values = levels.map(Number);
	const [low, high] = [Math.min(...values), Math.max(...values)];
	const isBroken = low > MIN_BREAK * high;
	const margin = (high - low || high) * 0.12;
	const start = isBroken ? Math.max(0, low - margin) : 0;
	const scale = scaleLinear(
		[start, high + (high - start) * 0.02],
		[isBroken ? 34 : 0, width - 1],
	);
	const usual = width > 420 ? 5 : 3;
	const shown = (count: number) =>
		scale.ticks(count).filter((x) => scale(x) > (isBroken ? 44 : -1));
	// where many digits tell them apart, each needs its room
	const ticks = shown(usual).length > width / 75 ? shown(usual / 2) : shown(usual);
	const [startLabel, ...labels] = countLabels(
		[start, ...ticks].map((x) => BigInt(Math.round(x))),
	);
	return {
		at: (n) => scale(Number(n)),
		...{ ticks, labels, startLabel: startLabel! },
		isBroken,
		...{ width, bar, top, row: bar + 2 * top },
	};
}

/** The total of a model: a grey bar, broken where the axis does not start at 0. */
function TotalBar({ axis, n, isLast }: { axis: Axis; n: bigint; isLast: boolean }) {
	const x = axis.at(n);
	const { bar, top, row } = axis;
	return (
		<svg width={axis.width} height={row} aria-hidden="true">
			<rect
				class="data"
				x={0}
				y={top}
				width={Math.max(x, 1)}
				height={bar}
				rx={3}
				fill="var(--ramp-4)"
			/>
			{axis.isBroken && (
				<path
					d={`M16 ${row - 4}l5 -${row - 8}M22 ${row - 4}l5 -${row - 8}`}
					class="break"
				/>
			)}
			<path class="link" d={isLast ? `M${x} 0V${top}` : `M${x} ${top + bar}V${row}`} />
		</svg>
	);
}

function CauseBar({
	axis,
	from,
	to,
	cause,
}: {
	axis: Axis;
	from: bigint;
	to: bigint;
	cause: Cause;
}) {
	const { bar, top, row } = axis;
	const [a, b] = [axis.at(from), axis.at(to)];
	const [left, width] = [Math.min(a, b), Math.max(Math.abs(b - a), 1.5)];
	const isMore = to > from;
	const isUniform = cause.groups.every((x) => BigInt(x[1]) > 0n === isMore);
	// a group that alone is more than the bar, less what it replaces: experts instead of an FFN
	const isAll = (n: bigint) => (isMore ? n >= to - from : n <= to - from);
	const main = cause.groups.find((x) => isAll(BigInt(x[1])))?.[0] ?? "";
	const total = Number(to - from);
	let offset = 0;
	const segments = (isUniform ? cause.groups : [[main, cause.delta] as const]).map(
		([group, n]) => {
			const size = total ? (width * Number(n)) / total : 0;
			const x = isMore ? left + offset : left + width - offset - size;
			offset += size;
			return { group, x, size };
		},
	);
	const tip = Math.min(7, width / 3);
	const shape = ({ x, size }: { x: number; size: number }, isEnd: boolean) => {
		const [start, end] = [x + (isMore ? 0 : 0.5), x + size - 1];
		if (!isEnd) return `M${start} ${top}H${end}V${top + bar}H${start}Z`;
		return isMore
			? `M${start} ${top}H${end - tip}L${end} ${top + bar / 2}L${end - tip} ${top + bar}H${start}Z`
			: `M${end} ${top}H${start + tip}L${start} ${top + bar / 2}L${start + tip} ` +
					`${top + bar}H${end}Z`;
	};
	return (
		<svg width={axis.width} height={row} aria-hidden="true">
			{axis.ticks.map((x, i) => (
				<path key={i} class="grid" d={`M${axis.at(x)} 0V${row}`} />
			))}
			{segments.map((x, i) => {
				const part = x.group ? modelPart(x.group) : null;
				const name =
					part &&
					[part.name, part.short].find((text) => textWidth(text, 13) < x.size - 16);
				return (
					<g key={x.group}>
						<path
							class="data"
							d={shape(x, i === segments.length - 1)}
							fill={part ? `var(--c-${part.color})` : "var(--ramp-3)"}
						/>
						{name && (
							<text
								x={x.x + x.size / 2}
								y={top + bar / 2 + 5}
								text-anchor="middle"
								style={{ fill: `var(--on-${part.color})` }}
							>
								{name}
							</text>
						)}
					</g>
				);
			})}
			<path class="link" d={`M${a} 0V${top}M${b} ${top + bar}V${row}`} />
		</svg>
	);
}

function Ticks({ axis }: { axis: Axis }) {
	return (
		<svg width={axis.width} height={24} aria-hidden="true">
			{axis.ticks.map((x, i) => (
				<text
					key={i}
					class="muted"
					x={Math.min(axis.at(x), axis.width - 18)}
					y={17}
					text-anchor={
						axis.at(x) < 20
							? "start"
							: i === axis.ticks.length - 1 && axis.at(x) > axis.width - 30
								? "end"
								: "middle"
					}
				>
					{axis.labels[i]}
				</text>
			))}
		</svg>
	);
}

export const Waterfall = (props: Props) => (
	<figure aria-label={`Causes of the difference between ${props.names[0]} and ${props.names[1]}`}>
		<Measured>{(width) => <Picture {...props} whole={width} />}</Measured>
	</figure>
);

function Picture({ names, causes: difference, isSmall, whole }: Props & { whole: number }) {
	const isNarrow = whole < 720;
	const width = isNarrow ? whole : whole - 430;
	const [a, b] = difference.totals.map(BigInt) as [bigint, bigint];
	const levels = [a];
	for (const x of difference.causes) levels.push(levels.at(-1)! + BigInt(x.delta));
	const axis = axisOf(levels, width, isSmall);
	const total = (i: number, n: bigint) => (
		<tr class="total" role="row">
			<th scope="row" role="rowheader">
				{names[i]}
			</th>
			<td class="n" role="cell">
				<NumberButton
					derive={() => ({
						title: names[i]!,
						lines: [formula(...difference.formulas[i]!, grouped(n))],
					})}
					label={`parameters of ${names[i]}`}
				>
					{grouped(n)}
				</NumberButton>
			</td>
			<td role="cell" class="bar">
				<TotalBar axis={axis} n={n} isLast={i === 1} />
			</td>
		</tr>
	);
	return (
		<>
			<table
				class={`waterfall ${isNarrow ? "narrow" : ""} ${isSmall ? "small" : ""}`}
				role="table"
			>
				<caption class="hidden">{`Parameters from ${names[0]} to ${names[1]}`}</caption>
				<thead role="rowgroup" class="hidden">
					<tr role="row">
						<th scope="col" role="columnheader">
							cause
						</th>
						<th scope="col" role="columnheader" class="n">
							parameters
						</th>
						<th scope="col" role="columnheader">
							change
						</th>
					</tr>
				</thead>
				<tbody role="rowgroup">
					{total(0, a)}
					{difference.causes.map((x, i) => (
						<tr key={x.kind} role="row">
							<th scope="row" role="rowheader">
								<span class="cause">{x.label}</span>
								{x.where.length <= MAX_PLACE && (
									<span class="caption">{x.where}</span>
								)}
							</th>
							<td class="n" role="cell">
								<NumberButton
									derive={() => ({
										title: x.label,
										lines: [x.where, ...x.of.map((y) => formula(...y))],
									})}
									label={x.label}
								>
									{signed(x.delta)}
								</NumberButton>
							</td>
							<td role="cell" class="bar">
								<CauseBar
									axis={axis}
									from={levels[i]!}
									to={levels[i + 1]!}
									cause={x}
								/>
							</td>
						</tr>
					))}
					{total(1, b)}
					<tr class="axis" aria-hidden="true">
						<th />
						<td class="n caption">parameters</td>
						<td class="bar">
							<Ticks axis={axis} />
						</td>
					</tr>
				</tbody>
			</table>
			{axis.isBroken && (
				<p class="caption">
					The axis starts at {axis.startLabel} parameters, where the bars are broken.
				</p>
			)}
		</>
	);
}
