// A model in a few square centimetres: one bar per layer on the residual stream, to scale; pale is
// what a token does not use.
import { STACK_ORDER } from "../../lib/model_parts";
import type { Entry, Part } from "./entries";

interface Props {
	entry: Entry;
	width: number;
	height: number;
	/** The parameters that are as high as the picture; without it the largest bar is. */
	most?: number;
	label?: string;
}

export const sumOf = (bar: Part[]) => bar.reduce((n, x) => n + Number(x[1]), 0);

export function tallest(entry: Entry): number {
	const { before, kinds, after } = entry.picture!;
	return Math.max(1, ...[...before, ...kinds, ...after].map(sumOf));
}

/** Rectangles of each colour as one path; few elements, so that hundreds of pictures are cheap. */
function rectangles(
	entry: Entry,
	width: number,
	height: number,
	most: number,
): Map<string, string> {
	const { before, kinds, runs, after } = entry.picture!;
	const layers = runs.flatMap(([kind, n]) => Array.from({ length: n }, () => kinds[kind]!));
	const sides = [...before, ...after].filter((x) => sumOf(x) / most > 0.004);
	const sideWidth = Math.max(4, Math.min(14, width / 22));
	const left = before.filter((x) => sides.includes(x));
	const right = after.filter((x) => sides.includes(x));
	const room = width - (left.length + right.length) * (sideWidth + 3);
	const step = room / Math.max(1, layers.length);
	const gap = step > 5 ? 2 : step > 2.6 ? 1 : 0;
	const paths = new Map<string, string>();
	const draw = (bar: Part[], x: number, w: number) => {
		let y = height;
		const sorted = bar.toSorted(([a], [b]) => STACK_ORDER.indexOf(a) - STACK_ORDER.indexOf(b));
		for (const [colour, all, active] of sorted) {
			const tall = (Number(all) / most) * height;
			const used = (Number(active) / most) * height;
			const add = (key: string, top: number, h: number) =>
				h > 0.05 &&
				paths.set(
					key,
					`${paths.get(key) ?? ""}M${x.toFixed(2)} ${top.toFixed(2)}h${w.toFixed(2)}v${h.toFixed(2)}h-${w.toFixed(2)}z`,
				);
			add(colour, y - used, used);
			add(`${colour} idle`, y - tall, tall - used);
			y -= tall;
		}
	};
	let x = 0;
	for (const bar of left) {
		draw(bar, x, sideWidth);
		x += sideWidth + 3;
	}
	layers.forEach((bar, i) => draw(bar, x + i * step, Math.max(0.8, step - gap)));
	x += room + 3;
	for (const bar of right) {
		draw(bar, x, sideWidth);
		x += sideWidth + 3;
	}
	return paths;
}

export function MiniPicture({ entry, width, height, most, label }: Props) {
	if (!entry.picture?.kinds.length)
		return <svg class="mini" width={width} height={height} aria-hidden="true" />;
	const paths = rectangles(entry, width, height - 4, most ?? tallest(entry));
	return (
		<svg
			class="mini data"
			width={width}
			height={height}
			viewBox={`0 0 ${width} ${height}`}
			preserveAspectRatio="none"
			role={label ? "img" : undefined}
			aria-label={label}
			aria-hidden={label ? undefined : "true"}
		>
			{[...paths].map(([key, d]) => (
				<path key={key} class={`c-${key}`} d={d} />
			))}
			<path class="c-stream" d={`M0 ${height - 2}h${width}`} />
		</svg>
	);
}
