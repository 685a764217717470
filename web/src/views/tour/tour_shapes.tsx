// The shapes of what the steps of a stop compute.
import type { TourStop } from "./tour_stops";

/** The shapes of the results, in letters and numbers, of one sequence of T tokens. */
export function Shapes({ stop }: { stop: TourStop }) {
	if (!stop.shapes.length) return null;
	return (
		<ul class="tour-shapes">
			{stop.shapes.map((x) => (
				<li key={x.name}>
					<code>{x.name}</code> [{x.letters}]
					{x.letters === x.numbers ? "" : ` = [${x.numbers}]`}
				</li>
			))}
		</ul>
	);
}
