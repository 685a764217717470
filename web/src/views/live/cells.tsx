// Numbers as coloured cells: strips and maps, drawn into a canvas in the colour of their element.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { onTheme } from "../../lib/theme";

interface Props {
	columns: number;
	rows: number;
	/** Puts numbers from −1 to 1 into cells; the others stay empty. */
	paint: (put: (column: number, row: number, value: number) => void) => void;
	/** What a reader hears; empty for what its button says. */
	label: string;
	class?: string;
	color: string;
	/** What the picture is drawn from: it is drawn again when one of these changes. */
	of: readonly unknown[];
	hover?: (column: number, row: number) => void;
	choose?: (column: number, row: number) => void;
}

/** Paints a row of numbers, the largest one in full. */
export const rowOf =
	(values: Float32Array, most = largestSize(values) || 1): Props["paint"] =>
	(put) =>
		values.forEach((x, i) => put(i, 0, x / most));

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
	const key = `${document.documentElement.dataset.theme} ${token}`;
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
export function Cells({ columns, rows, paint, label, class: name, color, of, ...on }: Props) {
	const [theme, setTheme] = useState(document.documentElement.dataset.theme);
	useLayoutEffect(() => onTheme(() => setTheme(document.documentElement.dataset.theme)), []);
	const ref = useRef<HTMLCanvasElement>(null);
	useLayoutEffect(() => {
		const canvas = ref.current!;
		[canvas.width, canvas.height] = [columns, rows];
		const drawing = canvas.getContext("2d")!;
		const image = drawing.createImageData(columns, rows);
		const [paper, more, less] = [rgbOf("--sunk"), rgbOf(color), rgbOf("--ink")];
		const { data } = image;
		paint((x, y, v) => {
			const to = v < 0 ? less : more;
			const share = Math.min(1, Math.abs(v));
			const i = 4 * (y * columns + x);
			data[i] = paper[0] + (to[0] - paper[0]) * share;
			data[i + 1] = paper[1] + (to[1] - paper[1]) * share;
			data[i + 2] = paper[2] + (to[2] - paper[2]) * share;
			data[i + 3] = 255;
		});
		drawing.putImageData(image, 0, 0);
	}, [columns, rows, theme, color, ...of]);
	const cellAt = (event: PointerEvent | MouseEvent): [number, number] => {
		const box = ref.current!.getBoundingClientRect();
		const x = Math.floor(((event.clientX - box.left) / box.width) * columns);
		const y = Math.floor(((event.clientY - box.top) / box.height) * rows);
		return [Math.max(0, Math.min(columns - 1, x)), Math.max(0, Math.min(rows - 1, y))];
	};
	return (
		<canvas
			ref={ref}
			class={`cells data ${name ?? ""}`}
			role={label ? "img" : undefined}
			aria-label={label || undefined}
			aria-hidden={label ? undefined : "true"}
			onPointerMove={on.hover && ((event) => on.hover!(...cellAt(event)))}
			onClick={on.choose && ((event) => on.choose!(...cellAt(event)))}
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

/** How many numbers of a result are written out. */
export const FIRST = 3;
export const firstNumbers = (list: Float32Array | undefined): string =>
	list ? `${Array.from(list.subarray(0, FIRST), shortNumber).join(", ")}, …` : "";

/** A share in percent; what is not everything is never 100%, and what is something never 0%. */
export function percentOf(share: number): string {
	if (share >= 0.9995 && share < 1) return ">99.9%";
	if (share < 0.0005 && share > 0) return "<0.1%";
	const digits = share < 0.0995 || (share > 0.9945 && share < 1) ? 1 : 0;
	return `${(100 * share).toFixed(digits)}%`;
}
