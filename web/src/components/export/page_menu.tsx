// What can be taken from the whole page: the output of `count` or `diff` as text, Markdown or JSON,
// its link, and the posters of a model.
import "./export.css";
import { data } from "../../lib/data";
import { decodeSizes, designedModel, evaluateDesign } from "../../lib/design";
import { canEdit, editedModel } from "../../lib/editing";
import { keysAt } from "../../lib/files/config";
import type { FormatData } from "../../lib/files/headers";
import { state, writeState } from "../../lib/state";
import { copyText } from "./clipboard";
import { countJson, writtenJson, type CountParts, type JsonParts } from "./count_json";
import { Menu } from "./menu";
import { PosterItems } from "./poster_items";

interface PageTexts {
	text: string;
	markdown: string;
	json: JsonParts | CountParts | null;
}

/** The text, Markdown and JSON of models as they are published. */
function publishedFormats(isComparison: boolean): [string, () => string][] {
	const model = data.models[state.view === "b" ? 1 : 0]! as unknown as { copy: PageTexts };
	const texts = isComparison ? (data.difference as { copy: PageTexts }).copy : model.copy;
	const { json } = texts;
	const written = () =>
		isComparison ? writtenJson(json as JsonParts) : countJson(json as CountParts);
	return [
		["text", () => texts.text],
		["Markdown", () => texts.markdown],
		...(json ? [["JSON", written] as [string, () => string]] : []),
	];
}

/** The configuration of what Design shows. */
function designedConfig(): string {
	const { design, like } = designedModel(data, state.like);
	const { entries } = keysAt(like, design, state.keys, data.files as FormatData);
	return evaluateDesign(design, decodeSizes(design, state.sizes), entries).config;
}

export function PageMenu({ name }: { name: string }) {
	const isComparison = state.view === "difference";
	const isDesign = state.view === "design";
	const place = state.view === "b" ? 1 : 0;
	const isEdited =
		!isComparison &&
		state.edit !== "" &&
		canEdit(place) &&
		editedModel(place, state.sizes, state.keys).isChanged;
	const isPublished = !isEdited && !isDesign;
	const formats = isDesign
		? [["config.json", designedConfig] as [string, () => string]]
		: isPublished
			? publishedFormats(isComparison)
			: [];
	return (
		<Menu text="Copy" label="Copy the page">
			{(close) => (
				<>
					<button
						type="button"
						class="button"
						aria-label="Copy link"
						onClick={() => (
							copyText(
								`${location.href.split("#")[0]}${writeState(state)}`,
								"link to this page",
							),
							close()
						)}
					>
						Link
					</button>
					{formats.map(([form, text]) => (
						<button
							key={form}
							type="button"
							class="button"
							aria-label={`Copy as ${form}`}
							onClick={() => (copyText(text(), `${name} as ${form}`), close())}
						>
							{form === "text" ? "Text" : form}
						</button>
					))}
					{isPublished && !isComparison && (
						<PosterItems model={data.models[place]!} close={close} />
					)}
				</>
			)}
		</Menu>
	);
}
