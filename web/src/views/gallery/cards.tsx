// The models as cards, each with its small picture.
import { count, month } from "./columns";
import type { Entry } from "./entries";
import { MiniPicture } from "./mini_picture";
import { CompareButton, ModelLink, useModelStop, type Stop } from "./model_link";
import { shortBytes, shortTokens } from "../../lib/format";

export function Cards({ models }: { models: Entry[] }) {
	const stop = useModelStop(models);
	return (
		<>
			<p class="caption cards-key">
				Each bar is a layer, as high as its parameters; to the scale of the model. Solid:
				used by each token. Pale: experts that a token does not use.
			</p>
			<ColourKey />
			<ul class="models cards">
				{models.map((x) => (
					<Card key={x.id} entry={x} stop={stop(x)} />
				))}
			</ul>
			{!models.length && <p class="callout">No model matches.</p>}
		</>
	);
}

/** A legend of the colours in the pictures. */
export function ColourKey() {
	return (
		<p class="key cards-key" aria-hidden="true">
			{[
				["embed", "Embedding"],
				["attn", "Attention, recurrence"],
				["ffn", "FFN"],
				["experts", "Experts"],
				["head", "Head"],
				["vision", "Vision, audio"],
			].map(([colour, name]) => (
				<span key={colour}>
					<svg class="swatch data" width="13" height="13">
						<path class={`c-${colour}`} d="M0 0h13v13H0z" />
					</svg>
					{name}
				</span>
			))}
		</p>
	);
}

function Card({ entry: x, stop }: { entry: Entry; stop: Stop }) {
	const isSparse = x.active !== undefined && x.kinds?.includes("moe");
	const facts = [
		x.layers && `${String(x.layers)} layers${x.pattern ? `, ${String(x.pattern)}` : ""}`,
		x.attention,
		x.context && `${shortTokens(x.context as number)} context`,
		x.kv === 0
			? "no KV cache"
			: x.kv != null && `${shortBytes(x.kv as number)} of KV cache per token`,
	];
	return (
		<li class="card" data-model={x.id}>
			<p class="caption">
				{[x.organization, x.released && month(x.released)].filter(Boolean).join(" · ") ||
					" "}
			</p>
			<h2>
				<ModelLink entry={x} stop={stop} />
			</h2>
			<p class="card-number">
				<strong>{count(x.total)}</strong>
				{isSparse && <span> {count(x.active as number)} active</span>}
			</p>
			<MiniPicture entry={x} width={252} height={76} />
			<p class={x.shapes ? "caption" : "caption awaited"}>
				{facts.filter(Boolean).join(" · ")}
			</p>
			<CompareButton entry={x} stop={stop} />
		</li>
	);
}
