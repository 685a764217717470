// The posters of a model, which Python has composed: saved as SVG or PNG in either theme.
import { useState } from "preact/hooks";
import type { ModelData } from "../../lib/data";
import { inTheme, shownTheme } from "../../lib/theme";
import { Segmented } from "../controls";
import { saveFile } from "./clipboard";
import { pngOf } from "./svg_document";

/** The SVG with names of the page's colours, and the size of its PNG. */
type Poster = [svg: string, width: number, height: number];

/** The SVG with the colours of the theme that is shown. */
function coloured(svg: string): string {
	const style = getComputedStyle(document.documentElement);
	return svg.replace(
		/="\$([a-z0-9-]+)"/g,
		(_, token: string) => `="${style.getPropertyValue(`--${token}`).trim()}"`,
	);
}

export function PosterItems({ model, close }: { model: ModelData; close: () => void }) {
	const [theme, setTheme] = useState(shownTheme());
	const save = async (name: string, format: string) => {
		const [svg, width, height] = (model.posters as Record<string, Poster>)[name]!;
		const text = inTheme(theme, () => coloured(svg));
		const file = `${model.name}-poster-${name}-${theme}`;
		if (format === "SVG") saveFile(`${file}.svg`, text, "image/svg+xml");
		else saveFile(`${file}.png`, await pngOf({ text, width, height }, 1), "image/png");
		close();
	};
	return (
		<>
			<p class="export-row">
				<Segmented
					id="theme-of-poster"
					label="Poster in"
					options={[
						["light", "light"],
						["dark", "dark"],
					]}
					chosen={theme}
					choose={setTheme}
				/>
			</p>
			{Object.keys(model.posters as Record<string, Poster>).map((name) => (
				<p class="export-row" key={name}>
					<span class="caption">{name === "a3" ? "A3" : name}</span>
					{["SVG", "PNG"].map((format) => (
						<button
							key={format}
							type="button"
							class="button"
							aria-label={`Save the poster, ${name}, as ${format}`}
							onClick={() => void save(name, format)}
						>
							{format}
						</button>
					))}
				</p>
			))}
		</>
	);
}
