// The mode in which the model of the page is edited: by its dimensions or its config.json, with the
// classic questions; the page around it follows.
import "./edit.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Segmented } from "../../components/controls";
import { data } from "../../lib/data";
import { evaluateDesign, type Design } from "../../lib/design";
import { editCauses, type EditCause } from "../../lib/edit_causes";
import {
	closeEdit,
	editedDimensions,
	editedModel,
	withExperts,
	withValues,
	type Edited,
} from "../../lib/editing";
import { notation } from "../../lib/expressions";
import type { LineNote } from "../../lib/files/config_notes";
import { leftOut } from "../../lib/followed";
import { everydayCount, grouped, inWords, signed } from "../../lib/format";
import { change, state, useAppState } from "../../lib/state";
import type { Letters } from "../../lib/template";
import { Waterfall } from "../compare/waterfall";
import { Dimension, Total } from "../design/design";
import { openPlace } from "../plate/plate";
import { kindAt, numLayers, plateOf, type LayerKind } from "../plate/plate_model";
import { AsMixture } from "./as_mixture";
import { ConfigText, goToLine } from "./config_text";
import { WindowNote, WindowQuestions, WindowSlider } from "./edited_window";
import { hasLatent, LatentNote } from "./latent_question";
import { classicQuestions, hasChange, withoutChange } from "./questions";

const set = (design: Design, to: Record<string, bigint | boolean>, gesture = "") =>
	change({ sizes: withValues(design, state.sizes, to) }, false, gesture);

const NO_NOTES: readonly LineNote[] = [];

export function EditPanel({
	edited,
	setHalfTyped,
}: {
	edited: Edited;
	/** Called with whether the text is no config, so that what follows is of the last one. */
	setHalfTyped: (isHalfTyped: boolean) => void;
}) {
	const { edit, keys, plain } = useAppState("edit", "keys", "plain");
	const { original, counts, isChanged, broken, ignored, mixture } = edited;
	const isText = edit === "text";
	const lost = isChanged && edited.model !== original ? leftOut(edited.model, original) : [];
	const [isPast, setPast] = useState(false);
	const [typed, setNotes] = useState(NO_NOTES);
	const notes = isText ? typed : NO_NOTES;
	useEffect(() => setHalfTyped(notes.length > 0), [notes.length > 0]);
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
				class={`edit-panel no-print${isPast ? " past" : ""}`}
				aria-label={`Edit ${original.name}`}
				id="edit"
			>
				<div class="edit-head">
					<h2>What if?</h2>
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
					<Status edited={edited} notes={notes} />
					<span class="edit-buttons">
						<button
							type="button"
							class="button edit-back"
							onClick={() => scrollTo({ top: 0 })}
						>
							Back to the editor
						</button>
						<button
							type="button"
							class="button"
							aria-disabled={!isChanged && !keys && !plain}
							onClick={() => change({ sizes: "", keys: "", plain: "" })}
						>
							Reset
						</button>
						<button type="button" class="button" onClick={closeEdit}>
							Close
						</button>
					</span>
				</div>
				<div class={isChanged || isText ? "edit-body" : "edit-body unchanged"}>
					<div class="edit-inputs">
						<Questions edited={edited} />
						{isText ? (
							<ConfigText
								key={original.name}
								edited={edited}
								notes={notes}
								setNotes={setNotes}
							/>
						) : (
							<Sliders edited={edited} />
						)}
					</div>
					<div class="edit-result" aria-live="polite" data-numbers>
						{ignored.length > 0 && (
							<p class="edit-note">
								Not followed by this page, which keeps the values of {original.name}
								:{" "}
								{ignored
									.slice(0, MOST_IGNORED)
									.map(
										([key, text]) =>
											`${key} ${text.replace(/\s+/g, " ").slice(0, 60)}`,
									)
									.join(", ")}
								{ignored.length > MOST_IGNORED &&
									`, and ${ignored.length - MOST_IGNORED} others`}
								.
							</p>
						)}
						<WindowNote edited={edited} />
						{plain && hasLatent(edited) && <LatentNote edited={edited} />}
						{edited.hasOtherCache && (
							<p class="edit-note">
								The cache, the attention and the memory below are those of{" "}
								{original.name}: keys of {edited.opened || "its config"} that decide
								the cache differ.
							</p>
						)}
						{notes.length > 0 && !broken.length && (
							<p class="edit-note">Results of the last valid config:</p>
						)}
						{!broken.length && (
							<>
								{mixture ? (
									<AsMixture edited={edited} mixture={mixture} />
								) : (
									<Total result={counts} values={edited.dimensions.values} />
								)}
								{isChanged && <Change edited={edited} />}
								{lost.length > 0 && (
									<p class="caption" data-part="left-out">
										Not shown for an edit: {inWords(lost)}, chosen layer by
										layer or searched for {original.name} as published.
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

/** Errors that have room beside the buttons; more are counted. */
const MOST_ERRORS = 3;

/** In sight while the panel is: what is wrong, or the total. */
function Status({ edited, notes }: { edited: Edited; notes: readonly LineNote[] }) {
	const { original, total, isChanged } = edited;
	const said = notes.length
		? notes.map(({ line, text }) => ({ line, text }))
		: edited.broken.map((text) => ({ line: null, text }));
	return (
		<div class="edit-status">
			<div id="config-notes" role="status">
				{said.length > 0 && (
					<ul class="broken">
						{said.slice(0, MOST_ERRORS).map(({ line, text }) => (
							<li key={`${line} ${text}`}>
								{line !== null && (
									<>
										<button type="button" onClick={() => goToLine(line)}>
											Line {grouped(BigInt(line + 1))}
										</button>
										:{" "}
									</>
								)}
								{text}
							</li>
						))}
						{said.length > MOST_ERRORS && <li>{said.length - MOST_ERRORS} more</li>}
					</ul>
				)}
			</div>
			{!said.length && (
				<p>
					<b>{everydayCount(total)} parameters</b>
					{isChanged &&
						`, ${signed(total - BigInt(original.counts[0]!.value))} compared to ${original.name}`}
				</p>
			)}
		</div>
	);
}

/** What the experts add to the dense model of the same dimensions. */
function causeOfMixture({ counts, mixture, total }: Edited): EditCause[] {
	if (!mixture) return [];
	const sizesOf = (x: typeof counts) => new Map(x.groups.map((y) => [y.name, y.n]));
	const [dense, sparse] = [sizesOf(counts), sizesOf(mixture.counts)];
	const groups = [...new Set([...dense.keys(), ...sparse.keys()])]
		.map((x) => [x, (sparse.get(x) ?? 0n) - (dense.get(x) ?? 0n)] as const)
		.filter((x) => x[1]);
	const label = `${mixture.dimensions.values.E} experts in the place of each FFN`;
	return [
		{
			...{ kind: "E", cause: label, label, where: "" },
			delta: String(total - counts.total),
			groups: groups.map(([group, n]) => [group, String(n)]),
			of: [["with experts − dense", `${grouped(total)} − ${grouped(counts.total)}`]],
		},
	];
}

function Change({ edited }: { edited: Edited }) {
	const { design, dimensions, counts, mixture, original, total } = edited;
	const own = useMemo(() => editedDimensions(design, ""), [design]);
	const published = useMemo(() => evaluateDesign(design, own), [design]);
	const causes = [...editCauses(design, own, dimensions), ...causeOfMixture(edited)];
	const formulaAt = (
		{ values }: typeof dimensions,
		{ form }: typeof counts,
	): [string, string] => [notation(form, values, true), notation(form, values, false)];
	if (!causes.length) return <p class="caption">As many as {original.name} has.</p>;
	return (
		<Waterfall
			isSmall
			names={[original.name, "edited"]}
			causes={{
				totals: [String(published.total), String(total)],
				delta: String(total - published.total),
				// written out when they are asked for
				get formulas() {
					return [
						formulaAt(own, published),
						mixture
							? formulaAt(mixture.dimensions, mixture.counts)
							: formulaAt(dimensions, counts),
					];
				},
				method: data.words.method as string,
				causes,
			}}
		/>
	);
}

/** Opens a layer that an edit changes, where the open one stays as it is. */
function openChanged({ original }: Edited): void {
	const { model } = editedModel(state.view === "b" ? 1 : 0, state.sizes, state.keys);
	const [own, now] = [plateOf(original).kinds, plateOf(model).kinds];
	const open = openPlace(model, state.layer);
	if (typeof open !== "number" || own.length !== now.length) return;
	const shapesOf = ({ weights }: LayerKind) => weights.map((x) => `${x.path} ${x.shape}`).join();
	const isChanged = now.map((x, i) => shapesOf(x) !== shapesOf(own[i]!));
	const plate = plateOf(model);
	const [nearest] = Array.from({ length: numLayers(plate) }, (_, i) => i)
		.filter((i) => isChanged[kindAt(plate, i)])
		.toSorted((a, b) => Math.abs(a - open) - Math.abs(b - open));
	if (nearest !== undefined && nearest !== open) change({ layer: nearest, zoom: "" }, true);
}

function Questions({ edited }: { edited: Edited }) {
	const { plain } = useAppState("plain");
	const { design, dimensions, mixture, experts } = edited;
	const questions = useMemo(() => classicQuestions(design), [design]);
	const own = useMemo(() => editedDimensions(design, ""), [design]);
	return (
		<div class="edit-questions" role="group" aria-label="What if it were">
			{questions.map(({ name, title, to }) => {
				const asked = to(dimensions);
				const isChosen = hasChange(dimensions, asked);
				return (
					<button
						type="button"
						key={name}
						class="button"
						title={title || undefined}
						aria-pressed={isChosen}
						onClick={() => {
							set(design, isChosen ? withoutChange(own, asked) : asked);
							if (!isChosen) openChanged(edited);
						}}
					>
						{name}
					</button>
				);
			})}
			{hasLatent(edited) && (
				<button
					type="button"
					class="button"
					aria-expanded={plain !== ""}
					onClick={() => change({ plain: plain ? "" : "cache" })}
				>
					multi-head attention's cache
				</button>
			)}
			<WindowQuestions edited={edited} />
			{experts && (
				<button
					type="button"
					class="button"
					aria-pressed={!!mixture}
					onClick={() => change({ sizes: withExperts(state.sizes, experts, !mixture) })}
				>
					{String(experts.E)} experts, {String(experts.k)} used by a token
				</button>
			)}
		</div>
	);
}

function Sliders({ edited }: { edited: Edited }) {
	const { design, dimensions, mixture } = edited;
	const setExperts = (to: Letters, gesture: string) =>
		change({ sizes: withExperts(state.sizes, to) }, false, gesture);
	return (
		<div class="dimensions">
			{mixture?.numbers.map((x) => (
				<Dimension
					key={x.letter}
					x={x}
					n={mixture.experts[x.letter]!}
					move={(n) => setExperts({ [x.letter]: n }, x.letter)}
				/>
			))}
			{design.letters.map((x) => (
				<Dimension
					key={x.letter}
					x={x}
					n={dimensions.values[x.letter]!}
					move={(n) => set(design, { [x.letter]: n }, x.letter)}
				/>
			))}
			<WindowSlider edited={edited} />
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

/** Keys that are named; more are counted. */
const MOST_IGNORED = 6;

/** The title of an edited page. */
export const editedTitle = ({ original, total, opened }: Edited): string =>
	`${opened || `${original.name}, edited`}: ${everydayCount(total)}`;
