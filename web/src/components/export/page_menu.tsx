// What can be taken from the whole page: the output of `count` or `diff` as text, Markdown or JSON,
// its link, and the posters of a model.
import "./export.css";
import { data } from "../../lib/data";
import { canEdit, editedModel } from "../../lib/editing";
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

export function PageMenu({ name }: { name: string }) {
	const isComparison = state.view === "difference";
	const model = data.models[state.view === "b" ? 1 : 0]!;
	const texts = (
		isComparison
			? (data.difference as { copy: PageTexts })
			: (model as unknown as { copy: PageTexts })
	).copy;
	const json = texts.json;
	// these are of the model as it is published
	const place = state.view === "b" ? 1 : 0;
	const isEdited =
		!isComparison &&
		state.edit !== "" &&
		canEdit(place) &&
		editedModel(place, state.sizes, state.keys).isChanged;
	const formats: [string, () => string][] = [
		["Text", () => texts.text],
		["Markdown", () => texts.markdown],
		...(json
			? [
					[
						"JSON",
						() =>
							isComparison
								? writtenJson(json as JsonParts)
								: countJson(json as CountParts),
					] as [string, () => string],
				]
			: []),
	];
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
					{!isEdited &&
						formats.map(([form, text]) => (
							<button
								key={form}
								type="button"
								class="button"
								aria-label={`Copy as ${form === "Text" ? "text" : form}`}
								onClick={() => (
									copyText(
										text(),
										`${name} as ${form === "Text" ? "text" : form}`,
									),
									close()
								)}
							>
								{form}
							</button>
						))}
					{!isComparison && !isEdited && <PosterItems model={model} close={close} />}
				</>
			)}
		</Menu>
	);
}
