// The weights of a dropped safetensors file, in place of those that the page holds: names, shapes,
// types and lengths are those of the program before a byte reaches the engine.
import { useState } from "preact/hooks";
import type { ModelData } from "../../lib/data";
import type { FileTensor, Header } from "../../lib/files/headers";
import { grouped } from "../../lib/format";
import { liveOf } from "../../lib/live_views";
import { isWeightType, type StoredWeight, type WeightType } from "../../live/engine";
import { fullName, schemeNames } from "../plate/plate_model";
import { storyOf } from "./story";

interface Wanted {
	path: string;
	name: string;
	shape: string[];
}

/** The weights of the program by their names in Hugging Face's format. */
function wantedWeights(model: ModelData): Wanted[] {
	const names = schemeNames(model);
	const rows = (model.sections as { rows: { path: string; shape: string[] }[] }[]).flatMap(
		(x) => x.rows,
	);
	const shapes = new Map(rows.map((x) => [x.path, x.shape]));
	return liveOf(model)!.weights.map(([path]) => {
		const numbers = path.match(/(?<=\.)\d+(?=\.)/g) ?? [];
		let place = 0;
		const pattern = path.replace(/(?<=\.)\d+(?=\.)/g, () => (place++ ? "{e}" : "{l}"));
		place = 0;
		const name = (fullName(names, pattern, "hf", "") || pattern).replace(
			/\{\w\}/g,
			() => numbers[place++] ?? "",
		);
		return { path, name, shape: shapes.get(pattern) ?? [] };
	});
}

const shapeText = (shape: readonly (bigint | string)[]): string =>
	`[${shape.map((n) => grouped(n)).join(", ")}]`;

/** What differs between the tensor of a file and the weight of the program; empty if nothing does. */
function differenceOf({ name, shape }: Wanted, found: FileTensor | undefined): string {
	if (!found) return `${name} is missing`;
	if (!isWeightType(found.dtype)) return `${name} is in ${found.dtype}, expected F32, F16, BF16`;
	return found.shape.map(String).join() === shape.join()
		? ""
		: `${name} is ${shapeText(found.shape)}, expected ${shapeText(shape)}`;
}

/** The weights in a file, or what is wrong with it. */
async function readWeights(
	model: ModelData,
	file: File,
	header: Header,
): Promise<Map<string, StoredWeight> | string> {
	const tensors = new Map(header.tensors.map((x) => [x.name, x]));
	const wanted = wantedWeights(model);
	for (const x of wanted) {
		const problem = differenceOf(x, tensors.get(x.name));
		if (problem) return `This model's program does not fit the file: ${problem}.`;
	}
	const found = new Map<string, StoredWeight>();
	for (const { path, name } of wanted) {
		const { dtype, bytes, start } = tensors.get(name)!;
		const first = header.dataStart! + Number(start);
		const part = await file.slice(first, first + Number(bytes)).arrayBuffer();
		if (part.byteLength !== Number(bytes)) return `The file ends within ${name}.`;
		found.set(path, { type: dtype as WeightType, bytes: new Uint8Array(part) });
	}
	return found;
}

/** Offers to run the weights of a file that was opened on a page with a live model. */
export function RunFile({ model, file, header }: { model: ModelData; file: File; header: Header }) {
	const story = storyOf(model);
	const [says, setSays] = useState("");
	if (!story || header.dataStart === undefined) return null;
	const run = async () => {
		const found = await readWeights(model, file, header);
		if (typeof found === "string") return setSays(found);
		await story.open(found);
		setSays(
			story.status === "ready"
				? `The page runs the weights of ${file.name}, with its own tokenizer.`
				: story.problem,
		);
	};
	return (
		<p class="callout live-file">
			<button type="button" class="button" onClick={() => void run()}>
				Run these weights in the page
			</button>{" "}
			<span role="status">{says}</span>
		</p>
	);
}
