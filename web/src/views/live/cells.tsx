// Numbers as coloured cells: strips and maps, drawn into a canvas in the colour of their element.
import { useLayoutEffect, useRef } from "preact/hooks";
import { shownTheme } from "../../lib/theme";
import { useAppState } from "../../lib/state";

interface Props {
	columns: number;
	rows: number;
	/** From −1 to 1; NaN leaves the paper. */
	at: (column: number, row: number) => number;
	/** What a reader hears; empty for what its button says. */
	label: string;
	class?: string;
	color: string;
	/** What the picture is drawn from: it is drawn again when one of these changes. */
	of: readonly unknown[];
	hover?: (column: number, row: number) => void;
}

type Rgb = readonly [number, number, number];

const probe = (): CanvasRenderingContext2D => {
	const canvas = document.createElement("canvas");
	[canvas.width, canvas.height] = [1, 1];
	return canvas.getContext("2d", { willReadFrequently: true })!;
};
let context: CanvasRenderingContext2D | null = null;
const known = new Map<string, Rgb>();

/** A colour of the page's tokens, such as --c-attn, as numbers. */
function rgbOf(token: string): Rgb {
	const key = `${shownTheme()} ${token}`;
	let found = known.get(key);
	if (!found) {
		context ??= probe();
		const style = getComputedStyle(document.documentElement);
		context.fillStyle = style.getPropertyValue(token).trim();
		context.fillRect(0, 0, 1, 1);
		const [r, g, b] = context.getImageData(0, 0, 1, 1).data;
		known.set(key, (found = [r!, g!, b!]));
	}
	return found;
}

/** Positive numbers in the component's colour, negative ones in ink, zero as sunk paper. */
export function Cells({ columns, rows, at, label, class: name, color, of, hover }: Props) {
	useAppState("theme");
	const theme = shownTheme();
	const ref = useRef<HTMLCanvasElement>(null);
	useLayoutEffect(() => {
		const canvas = ref.current!;
		[canvas.width, canvas.height] = [columns, rows];
		const drawing = canvas.getContext("2d")!;
		const image = drawing.createImageData(columns, rows);
		const [paper, more, less] = [rgbOf("--sunk"), rgbOf(color), rgbOf("--ink")];
		for (let y = 0; y < rows; y++)
			for (let x = 0; x < columns; x++) {
				const v = at(x, y);
				if (Number.isNaN(v)) continue;
				const to = v < 0 ? less : more;
				const share = Math.min(1, Math.abs(v));
				const i = 4 * (y * columns + x);
				for (let k = 0; k < 3; k++)
					image.data[i + k] = paper[k]! + (to[k]! - paper[k]!) * share;
				image.data[i + 3] = 255;
			}
		drawing.putImageData(image, 0, 0);
	}, [columns, rows, theme, color, ...of]);
	const move = (event: PointerEvent) => {
		const box = ref.current!.getBoundingClientRect();
		const x = Math.floor(((event.clientX - box.left) / box.width) * columns);
		const y = Math.floor(((event.clientY - box.top) / box.height) * rows);
		hover?.(Math.max(0, Math.min(columns - 1, x)), Math.max(0, Math.min(rows - 1, y)));
	};
	return (
		<canvas
			ref={ref}
			class={`cells data ${name ?? ""}`}
			role={label ? "img" : undefined}
			aria-label={label || undefined}
			aria-hidden={label ? undefined : "true"}
			onPointerMove={hover && move}
		/>
	);
}

export const largestSize = (list: Float32Array): number => {
	let most = 0;
	for (const x of list) most = Math.max(most, Math.abs(x));
	return most;
};

export const rootMeanSquare = (list: Float32Array): number =>
	Math.sqrt(list.reduce((n, x) => n + x * x, 0) / Math.max(1, list.length));

/** A number of the model with few digits, and a minus sign as wide as a plus. */
export const shortNumber = (x: number): string =>
	(Math.abs(x) >= 100 ? x.toFixed(0) : Math.abs(x) >= 10 ? x.toFixed(1) : x.toFixed(2)).replace(
		"-",
		"−",
	);

export const percentOf = (share: number): string =>
	`${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}\u00a0%`;
