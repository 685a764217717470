// What can be taken from a section: its link, its tables as text, Markdown or CSV, and its pictures
// as SVG or PNG in either theme.
import "./export.css";
import { useState } from "preact/hooks";
import { data } from "../../lib/data";
import { designedModel } from "../../lib/design";
import type { SiteLinks } from "../../lib/files/open_config";
import { grouped } from "../../lib/format";
import { settingTexts, state, writeState } from "../../lib/state";
import type { SettingName } from "../../lib/settings";
import { inTheme, shownTheme } from "../../lib/theme";
import { Segmented } from "../controls";
import { copyText, saveFile } from "./clipboard";
import { Menu } from "./menu";
import { picturesIn, pngOf, svgDocument, type Picture } from "./svg_document";
import { asCsv, asMarkdown, asText, tablesIn, visibleText } from "./table_text";

/** Settings in words; what is not here, such as a search, is no setting of a result. */
const SETTING_NAMES: Partial<Record<SettingName, (text: string) => string>> = {
	context: (x) => `context ${grouped(x)} tokens`,
	batch: (x) => `batch ${grouped(x)}`,
	dtype: (x) => `weights ${x}`,
	kv: (x) => `KV cache ${x}`,
	gpus: (x) => (x === "1" ? "1 GPU" : `${x} GPUs`),
	tp: (x) => `TP ${x}`,
	trainers: (x) => `${x} training GPUs`,
	card: (x) => x,
	map: (x) => `by ${x}`,
	mode: (x) => (x === "train" ? "training" : "inference"),
	target: (x) => `target ${x}`,
	sizes: (x) => `dimensions ${x}`,
};

/** Settings that follow from others, such as the GPU; the bar of settings fills it in. */
export const followed: { texts: () => Partial<Record<SettingName, string>> } = {
	texts: () => ({}),
};

const FILES = "files";
const modelName = (id = "") =>
	id === FILES
		? document.getElementById(`${FILES}-title`)!.textContent!
		: state.view === "difference"
			? data.models.map((x) => x.name).join(" → ")
			: state.view === "design"
				? designedModel(data, state.like).name
				: data.models[state.view === "b" ? 1 : 0]!.name;

/**
 * The model and the settings of a section: those that it shows, and others that are not at their
 * initial values.
 */
export function modelAndSettings(id: string): string {
	// the numbers of GPUs for inference and for training are two settings
	const other = state.mode === "train" ? "gpus" : "trainers";
	const chosen = followed.texts();
	const settings = settingTexts(state)
		.map((x) => ({ ...x, text: chosen[x.name] ?? x.text }))
		.filter((x) => x.name !== other && x.text && (!x.isInitial || x.parts.includes(id)))
		.flatMap((x) => SETTING_NAMES[x.name]?.(x.text) ?? []);
	return `${[modelName(id), ...(id === FILES ? [] : settings)].join(", ")}; llamath ${data.version}`;
}

const linkTo = (id: string) =>
	`${location.href.split("#")[0]}${writeState({ ...state, section: id })}`;

const asAttribute = (text: string) => text.replace(/[&<>"]/g, (x) => `&#${x.charCodeAt(0)};`);

/** Code that embeds a section of a gallery's page in another page: as a frame, and by the script. */
function snippets(id: string): Record<string, string> {
	const page = location.href.split(/[?#]/)[0]!;
	const model = decodeURIComponent(
		page
			.split("/")
			.at(-1)!
			.replace(/\.html$/, ""),
	);
	const name = asAttribute(modelName());
	const link = `<a href="${asAttribute(linkTo(id))}">${name}</a>`;
	const script = asAttribute(new URL("../embed.js", page).href);
	return {
		iframe:
			`<iframe src="${asAttribute(`${page}#embed=${id}`)}" title="${name}: ${id}" ` +
			`width="100%" height="480"></iframe>`,
		script:
			`${link}\n<script src="${script}" data-model="${asAttribute(model)}" ` +
			`data-figure="${id}" async></script>`,
	};
}

function PictureItems({
	picture,
	id,
	title,
	theme,
	close,
}: {
	picture: Picture;
	id: string;
	title: string;
	theme: string;
	close: () => void;
}) {
	const model = modelName(id);
	const own = picture.name.replace(model, "").replace(/^[,\s]+/, "");
	const parts = [model, id, ["picture", id].includes(own) ? "" : own, theme];
	const name = parts.filter(Boolean).join("-");
	const draw = () => inTheme(theme, () => svgDocument(picture, title, modelAndSettings(id)));
	const save = async (format: string) => {
		const drawn = draw();
		if (format === "SVG") saveFile(`${name}.svg`, drawn.text, "image/svg+xml");
		else saveFile(`${name}.png`, await pngOf(drawn), "image/png");
		close();
	};
	return (
		<p class="export-row">
			<span class="caption">{picture.name.slice(0, 60)}</span>
			{["SVG", "PNG"].map((format) => (
				<button
					key={format}
					type="button"
					class="button"
					aria-label={`Save ${picture.name} as ${format}`}
					data-format={format}
					onClick={() => void save(format)}
				>
					{format}
				</button>
			))}
		</p>
	);
}

function Items({ id, topic, close }: { id: string; topic: string; close: () => void }) {
	const [theme, setTheme] = useState(shownTheme());
	const section = document.getElementById(id)!;
	const finding = section.querySelector(".title");
	const title = section.dataset.title ?? (finding ? visibleText(finding) : topic);
	const tables = tablesIn(section);
	const pictures = picturesIn(section);
	const heading = `${topic}: ${modelAndSettings(id)}`;
	const copyTable = (form: string, text: string) => {
		copyText(text, `${topic} as ${form}`);
		close();
	};
	return (
		<>
			<button
				type="button"
				class="button"
				onClick={() => (copyText(linkTo(id), `link to ${topic}`), close())}
			>
				Copy link
			</button>
			{(data.gallery as SiteLinks | undefined)?.with !== undefined && (
				<p class="export-row">
					<span class="caption">Embed</span>
					{Object.entries(snippets(id)).map(([form, text]) => (
						<button
							key={form}
							type="button"
							class="button"
							aria-label={`Copy ${topic} as ${form}`}
							onClick={() => (copyText(text, `${topic} as ${form}`), close())}
						>
							{form}
						</button>
					))}
				</p>
			)}
			{tables.length > 0 && (
				<p class="export-row">
					<span class="caption">Tables</span>
					<button
						type="button"
						class="button"
						aria-label={`Copy ${topic} as text`}
						onClick={() => copyTable("text", `${heading}\n\n${asText(tables)}`)}
					>
						Text
					</button>
					<button
						type="button"
						class="button"
						aria-label={`Copy ${topic} as Markdown`}
						onClick={() =>
							copyTable(
								"Markdown",
								`${heading.replace(/[\\`*|[\]<&]/g, (x) => `&#${x.charCodeAt(0)};`)}\n\n${asMarkdown(tables)}`,
							)
						}
					>
						Markdown
					</button>
					<button
						type="button"
						class="button"
						aria-label={`Save ${topic} as CSV`}
						onClick={() => (
							saveFile(
								`${modelName()}-${id}.csv`,
								`# ${heading.replace(/\s+/g, " ")}\n${asCsv(tables)}\n`,
								"text/csv",
							),
							close()
						)}
					>
						CSV
					</button>
				</p>
			)}
			{pictures.length > 0 && (
				<>
					<p class="export-row">
						<Segmented
							id={`theme-of-${id}`}
							label="Pictures in"
							options={[
								["light", "light"],
								["dark", "dark"],
							]}
							chosen={theme}
							choose={setTheme}
						/>
					</p>
					{pictures.map((x, i) => (
						<PictureItems
							key={i}
							picture={x}
							id={id}
							title={title}
							theme={theme}
							close={close}
						/>
					))}
				</>
			)}
		</>
	);
}

export function SectionMenu({ id, topic }: { id: string; topic: string }) {
	return (
		<Menu text="⋯" label={`Copy or save: ${topic}`}>
			{(close) => <Items id={id} topic={topic} close={close} />}
		</Menu>
	);
}
