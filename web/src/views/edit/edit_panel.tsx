// The mode in which the model of the page is edited: by its dimensions or its config.json, with the
// classic questions; the page around it follows.
import "./edit.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Segmented } from "../../components/controls";
import { copyText } from "../../components/export/clipboard";
import { data } from "../../lib/data";
import { encodeSizes, evaluateDesign, type Design, type Dimensions } from "../../lib/design";
import { editCauses } from "../../lib/edit_causes";
import {
	closeEdit,
	editedDimensions,
	encodeEdit,
	withMixture,
	withValues,
	type Edited,
	type Mixture,
} from "../../lib/editing";
import { notation } from "../../lib/expressions";
import { encodeKeys, keepTyped } from "../../lib/files/config";
import { readTyped, type LineNote } from "../../lib/files/config_notes";
import type { FormatData } from "../../lib/files/headers";
import { leftOut } from "../../lib/followed";
import { compactCount, grouped, signed } from "../../lib/format";
import { modelPart } from "../../lib/model_parts";
import { change, state, useAppState } from "../../lib/state";
import { Waterfall } from "../compare/waterfall";
import { Dimension, Total } from "../design/design";
import { classicQuestions, hasChange, withoutChange } from "./questions";

const set = (design: Design, to: Record<string, bigint | boolean>, gesture = "") =>
	change({ sizes: withValues(design, state.sizes, to) }, false, gesture);

export function EditPanel({ edited }: { edited: Edited }) {
	const { edit, keys } = useAppState("edit", "keys");
	const { original, counts, isChanged, broken, ignored } = edited;
	const lost = isChanged && edited.model !== original ? leftOut(edited.model, original) : [];
	const [isPast, setPast] = useState(false);
	const [isStale, setStale] = useState(false);
	const end = useRef<HTMLDivElement>(null);
	useEffect(() => {
		const observer = new IntersectionObserver(([x]) =>
			setPast(!x!.isIntersecting && x!.boundingClientRect.top < 0),
		);
		observer.observe(end.current!);
		return () => observer.disconnect();
	}, []);
	return (
		<>
			<section
				class={`edit-panel no-print${isChanged ? " changed" : ""}${isPast ? " past" : ""}`}
				aria-label={`Edit ${original.name}`}
				id="edit"
			>
				<div class="edit-head">
					<h2>What if?</h2>
					<span class="edit-short">
						{compactCount(counts.total)} parameters
						{isChanged &&
							`: ${signed(counts.total - BigInt(original.counts[0]!.value))} compared to ${original.name}`}
					</span>
					<Segmented
						id="edit-by"
						label="Edit by"
						labelHidden
						options={[
							["sizes", "Dimensions"],
							["text", "config.json"],
						]}
						chosen={edit || "sizes"}
						choose={(x) => change({ edit: x })}
					/>
					<span class="grow" />
					<button
						type="button"
						class="button edit-short"
						onClick={() => scrollTo({ top: 0 })}
					>
						Back to the editor
					</button>
					<button
						type="button"
						class="button"
						disabled={!isChanged && !edited.mixture && !keys}
						onClick={() => change({ sizes: "", keys: "" })}
					>
						Reset
					</button>
					<button type="button" class="button" onClick={closeEdit}>
						Close
					</button>
				</div>
				{ignored.length > 0 && (
					<p class="edit-note" role="status">
						Not followed by this page, which keeps the values of {original.name}:{" "}
						{ignored
							.slice(0, MOST_IGNORED)
							.map(
								([key, text]) => `${key} ${text.replace(/\s+/g, " ").slice(0, 60)}`,
							)
							.join(", ")}
						{ignored.length > MOST_IGNORED &&
							`, and ${ignored.length - MOST_IGNORED} others`}
						.
					</p>
				)}
				{edited.hasOtherCache && (
					<p class="edit-note" role="status">
						The cache, the attention and the memory below are those of {original.name}:
						keys of {edited.opened || "its config"} that decide the cache differ.
					</p>
				)}
				{edited.unfollowed && !broken.length && (
					<p class="edit-note" role="status">
						The pictures and sizes below are those of {original.name} as published:{" "}
						{edited.unfollowed}.
					</p>
				)}
				<div
					class={
						isChanged || edited.mixture || edit === "text"
							? "edit-body"
							: "edit-body unchanged"
					}
				>
					<div class="edit-inputs">
						<Questions edited={edited} />
						{edit === "text" ? (
							<ConfigText key={original.name} edited={edited} setStale={setStale} />
						) : (
							<Sliders edited={edited} />
						)}
					</div>
					<div class="edit-result" aria-live="polite" data-numbers>
						{isStale && edit === "text" && (
							<p class="edit-note">Results of the last valid config:</p>
						)}
						{broken.length ? (
							<ul class="broken">
								{broken.map((x) => (
									<li key={x}>{x}</li>
								))}
							</ul>
						) : (
							<>
								{edited.mixture ? (
									<AsMixture edited={edited} mixture={edited.mixture} />
								) : (
									<Total result={counts} values={edited.dimensions.values} />
								)}
								{isChanged && <Change edited={edited} />}
								{lost.length > 0 && (
									<p class="caption" data-part="left-out">
										Below without {lost.join(", ")}: searched, or chosen layer
										by layer, for {original.name} as published.
									</p>
								)}
							</>
						)}
					</div>
				</div>
			</section>
			<div ref={end} />
		</>
	);
}

function Change({ edited }: { edited: Edited }) {
	const { design, dimensions, counts, original } = edited;
	const own = useMemo(() => editedDimensions(design, ""), [design]);
	const published = useMemo(() => evaluateDesign(design, own), [design]);
	const causes = editCauses(design, own, dimensions);
	const formulaAt = (x: Dimensions, form: typeof counts.form): [string, string] => [
		notation(form, x.values, true),
		notation(form, x.values, false),
	];
	const delta = counts.total - published.total;
	if (!causes.length) return <p class="caption">As many as {original.name} has.</p>;
	return (
		<>
			<p class="caption" data-part="edit-delta">
				{signed(delta)} compared to {original.name}
			</p>
			<Waterfall
				isSmall
				names={[original.name, "edited"]}
				causes={{
					totals: [String(published.total), String(counts.total)],
					delta: String(delta),
					// written out when they are asked for
					get formulas() {
						return [formulaAt(own, published.form), formulaAt(dimensions, counts.form)];
					},
					method: data.words.method as string,
					causes,
				}}
			/>
		</>
	);
}

/** A layer with experts beside the one that the page shows. */
function AsMixture({ edited, mixture }: { edited: Edited; mixture: Mixture }) {
	const { counts, original } = edited;
	const { design, dimensions, like } = mixture;
	const result = evaluateDesign(design, dimensions);
	const layerOf = (x: typeof counts) => x.bars.find((y) => y.isLayers)?.groups ?? [];
	const sizesOf = (x: typeof counts) => new Map(layerOf(x).map((y) => [y.name, y.n]));
	const [dense, sparse] = [sizesOf(counts), sizesOf(result)];
	const names = [...new Set([...dense.keys(), ...sparse.keys()])];
	const { E, k } = dimensions.values;
	const toDesign = () =>
		change({
			...({ view: "design", like, edit: "", keys: "", section: "", zoom: "" } as const),
			sizes: encodeSizes(dimensions),
		});
	return (
		<div data-part="mixture">
			<h3>
				{String(E)} experts in the place of each FFN, {String(k)} for a token
			</h3>
			<Total result={result} values={dimensions.values} />
			<p class="caption">
				{signed(result.total - BigInt(original.counts[0]!.value))} compared to{" "}
				{original.name}
			</p>
			<table class="mixture-layer">
				<caption class="caption">
					Parameters of a layer. Attention and KV cache stay; a router of each layer
					chooses the experts of a token, and all of them are in memory.
				</caption>
				<thead>
					<tr>
						<th scope="col" />
						<th scope="col">dense</th>
						<th scope="col">with experts</th>
					</tr>
				</thead>
				<tbody>
					{names.map((name) => (
						<tr key={name}>
							<th scope="row">{modelPart(name).name}</th>
							{[dense, sparse].map((x, i) => (
								<td key={i} class="n">
									{x.has(name) ? grouped(x.get(name)!) : "—"}
								</td>
							))}
						</tr>
					))}
				</tbody>
			</table>
			<p class="caption">
				The page below stays that of the dense model.{" "}
				<button type="button" class="button" onClick={toDesign}>
					Memory and hardware of the mixture
				</button>
			</p>
		</div>
	);
}

function Questions({ edited }: { edited: Edited }) {
	const { design, dimensions, mixture, possibleMixture } = edited;
	const questions = useMemo(() => classicQuestions(design), [design]);
	const own = useMemo(() => editedDimensions(design, ""), [design]);
	return (
		<div class="edit-questions" role="group" aria-label="What if it were">
			{questions.map(({ name, to }) => {
				const asked = to(dimensions);
				const isChosen = hasChange(dimensions, asked);
				return (
					<button
						type="button"
						key={name}
						class="button"
						aria-pressed={isChosen}
						onClick={() => set(design, isChosen ? withoutChange(own, asked) : asked)}
					>
						{name}
					</button>
				);
			})}
			{possibleMixture && (
				<button
					type="button"
					class="button"
					aria-pressed={!!mixture}
					onClick={() => change({ sizes: withMixture(state.sizes, !mixture) })}
				>
					8 × 2 experts
				</button>
			)}
		</div>
	);
}

function Sliders({ edited }: { edited: Edited }) {
	const { design, dimensions } = edited;
	return (
		<div class="dimensions">
			{design.letters.map((x) => (
				<Dimension
					key={x.letter}
					x={x}
					n={dimensions.values[x.letter]!}
					move={(n) => set(design, { [x.letter]: n }, x.letter)}
				/>
			))}
			{dimensions.tied !== null && (
				<span class="control">
					<input
						id="edit-tied"
						type="checkbox"
						checked={dimensions.tied}
						onChange={(event) => set(design, { tied: event.currentTarget.checked })}
					/>
					<label class="control-label" for="edit-tied">
						head tied to the embedding
					</label>
				</span>
			)}
		</div>
	);
}

const REST_MS = 150;
/** Keys that are named; more are counted. */
const MOST_IGNORED = 6;

/** The config.json as text: the last sound state stays while a line is half typed. */
function ConfigText({
	edited,
	setStale,
}: {
	edited: Edited;
	setStale: (isStale: boolean) => void;
}) {
	const { design, original, counts, dimensions } = edited;
	const [text, setText] = useState(counts.config);
	const [notes, setNotes] = useState<LineNote[]>([]);
	const { keys } = useAppState("keys");
	const now = `${encodeEdit(design, dimensions)} ${keys}`;
	const typed = useRef(now);
	const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
	useEffect(() => {
		// a slider, a question or Back has changed what the text should say
		if (now === typed.current) return;
		typed.current = now;
		setText(counts.config);
		setNotes([]);
		setStale(false);
	}, [now]);
	const read = (content: string) => {
		const found = readTyped(content, design, original.name, data.files as FormatData);
		setNotes(found.notes);
		setStale(found.notes.length > 0);
		if (!found.dimensions) return;
		const sizes = encodeEdit(design, found.dimensions);
		const keys = encodeKeys(found.others, design);
		typed.current = `${sizes} ${keys}`;
		keepTyped(state.view === "b" ? "b" : "a", sizes, found.others);
		change({ sizes, keys });
	};
	const type = (content: string) => {
		setText(content);
		clearTimeout(timer.current);
		timer.current = setTimeout(() => read(content), REST_MS);
	};
	const lines = text.split("\n");
	const noted = new Map(notes.map((x) => [x.line, x]));
	return (
		<div class="config-text">
			<div class="config-lines" aria-hidden="true">
				{lines.map((_, i) => (
					<span key={i} class={noted.has(i) ? "marked" : undefined}>
						{i + 1}
					</span>
				))}
			</div>
			<textarea
				id="config-text"
				aria-label="config.json"
				aria-invalid={notes.length > 0}
				aria-describedby="config-notes"
				spellcheck={false}
				wrap="off"
				rows={lines.length}
				value={text}
				onInput={(event) => type(event.currentTarget.value)}
			/>
			<div id="config-notes" class="config-notes" role="status">
				<ul>
					{notes.map((x) => (
						<li key={`${x.line} ${x.text}`}>
							Line {grouped(BigInt(x.line + 1))}: {x.text}
						</li>
					))}
				</ul>
			</div>
			{edited.opened && (
				<p class="caption">Keys that change no weight are those of {edited.opened}.</p>
			)}
			<button type="button" class="button" onClick={() => copyText(text, "config.json")}>
				Copy config.json
			</button>
		</div>
	);
}

/** The title of an edited page. */
export const editedTitle = ({ original, counts, opened }: Edited): string =>
	`${opened || `${original.name}, edited`}: ${compactCount(counts.total)}`;
