// The schedule of a pipeline: a row for each stage, forward and backward passes in time; what is
// empty is the bubble.
import { Measured } from "../../components/measured";
import { textWidth } from "../../lib/measure_text";
import type { Schedule } from "./data";

const ROW = 24;

export const ScheduleChart = ({ schedule }: { schedule: Schedule }) => (
	<Measured>{(width) => <Chart schedule={schedule} width={width} />}</Measured>
);

function Chart({ schedule, width }: { schedule: Schedule; width: number }) {
	const { stages, microbatches, slots } = schedule;
	const end = Math.max(...slots.map(([, , backward, start]) => start + 1 + backward));
	const left = 62;
	const unit = (width - left - 2) / end;
	const height = stages * ROW + 26;
	return (
		<svg
			width={width}
			height={height}
			viewBox={`0 0 ${width} ${height}`}
			role="img"
			aria-label={`1F1B schedule of ${stages} stages and ${microbatches} microbatches: ${3 * microbatches} of ${end} units of time are work on each stage, the rest is the bubble`}
		>
			<defs>
				<pattern
					id="idle"
					width="7"
					height="7"
					patternUnits="userSpaceOnUse"
					patternTransform="rotate(45)"
				>
					<path d="M0 0v7" stroke="var(--ramp-1)" stroke-width="2" />
				</pattern>
			</defs>
			{Array.from({ length: stages }, (_, i) => (
				<g key={i}>
					<text class="muted tabular" x={left - 8} y={i * ROW + 16} text-anchor="end">
						stage {i}
					</text>
					<rect
						x={left}
						y={i * ROW}
						width={end * unit}
						height={ROW - 2}
						fill="url(#idle)"
						stroke="var(--rule)"
					/>
				</g>
			))}
			{slots.map(([stage, microbatch, backward, start]) => {
				const span = (1 + backward) * unit;
				const text = String(microbatch + 1);
				return (
					<g key={`${stage} ${microbatch} ${backward}`}>
						<rect
							class="data"
							x={left + start * unit}
							y={stage * ROW}
							width={Math.max(span - 1, 0.5)}
							height={ROW - 2}
							fill={backward ? "var(--ramp-4)" : "var(--ramp-2)"}
						/>
						{span > textWidth(text, 12) + 4 && (
							<text
								class="tabular slot"
								x={left + start * unit + span / 2 - 0.5}
								y={stage * ROW + 16}
								text-anchor="middle"
								style={{ fill: backward ? "var(--paper)" : "var(--ink)" }}
							>
								{text}
							</text>
						)}
					</g>
				);
			})}
			<text class="muted" x={left} y={height - 4}>
				time →
			</text>
		</svg>
	);
}
