// The page: header, the chosen view with its chapters, footer.
import { useEffect, useMemo, useState } from "preact/hooks";
import { DialogHost, openDialog } from "./components/dialog";
import { Header } from "./components/header";
import type { ChapterLink } from "./components/section";
import { showSection } from "./components/section_link";
import { StatusLine } from "./components/status_line";
import { comparisonView } from "./lib/comparison_view";
import { data } from "./lib/data";
import { designedModel } from "./lib/design";
import { keptKeys, onKeptKeys } from "./lib/files/config";
import { openOnPage } from "./lib/files/open_config";
import { liveViews } from "./lib/live_views";
import { dropUnknown, isAnchor, state, useAppState, sectionBefore } from "./lib/state";
import { whilePrinting } from "./lib/printing";
import { whenWhole } from "./lib/turns";
import { canEdit, editedModel, knownSizes, Original } from "./lib/editing";
import { DesignPage, designSections } from "./views/design_page";
import { EditPanel, editedTitle } from "./views/edit/edit_panel";
import { StaleNote } from "./views/edit/stale_note";
import { Files } from "./views/files/files";
import { chaptersOf, ModelPage } from "./views/model_page";
import { stopAt } from "./views/tour/tour_stops";

const COMPARISON = "difference";
const DESIGN = "design";
const EXACTNESS =
	"Speeds are upper bounds from published bandwidth and FLOP/s, not predictions. " +
	"Activations and overhead are estimates; everything else is exact.";

function titleOf(view: string): string {
	if (view === DESIGN) return "Design";
	const names = data.models.map((x) => x.name);
	return view === COMPARISON ? names.join(" → ") : names[view === "b" ? 1 : 0]!;
}

function showKeys() {
	const keys = data.words.keys as [string, string][];
	openDialog(
		"Keyboard",
		<dl class="keys">{keys.map(([key, text]) => [<dt>{key}</dt>, <dd>{text}</dd>])}</dl>,
	);
}

function handleKey(event: KeyboardEvent) {
	const isTyping = (event.target as Element).closest?.("input, select, textarea, dialog");
	if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
	if (event.key === "?") showKeys();
	else if (event.key === "/") {
		if (!document.getElementById("find")) showSection("tensors");
		document.getElementById("find")?.focus();
	} else return;
	event.preventDefault();
}

/** The section that the address names: as an element, or in the state. */
const sectionInAddress = () =>
	isAnchor(location.hash) ? document.querySelector(`section${location.hash}`)?.id : state.section;

/**
 * Scrolls to the section that the address names, where it will be when all above it is drawn; not
 * where another setting is undone.
 */
function scrollToSection() {
	if (state.section && state.section === sectionBefore && !isAnchor(location.hash)) return;
	whenWhole(() => {
		const section = sectionInAddress();
		if (section) showSection(section);
	});
}

/** The other keys of an opened or typed config, which the page follows. */
function useKeptKeys() {
	const [kept, setKept] = useState(keptKeys.entries);
	useEffect(() => onKeptKeys(() => setKept(keptKeys.entries)), []);
	return kept;
}

export function App() {
	const { RunFile } = liveViews;
	// the sections follow the other settings themselves
	const settings = useAppState("view", "edit", "sizes", "keys", "like", "tour");
	const { view: asked, edit, sizes, keys, like, tour } = settings;
	// a model without a form has its own page alone
	const isEmpty = asked === DESIGN && !designedModel(data, like).design.letters.length;
	const view = isEmpty ? "a" : asked;
	const place = view === "b" ? 1 : 0;
	const isEdited = edit !== "" && (view === "a" || view === "b") && canEdit(place);
	const kept = useKeptKeys();
	const edited = useMemo(
		() => (isEdited ? editedModel(place, sizes, keys) : null),
		[isEdited, place, sizes, keys, kept],
	);
	const isOther = !!edited && (edited.isChanged || !!edited.opened);
	const title = isOther ? editedTitle(edited) : titleOf(view);
	useEffect(() => {
		document.title = `${title} · llamath`;
		// on paper alone: a property of the root is one of every element
		const { style } = document.documentElement;
		return whilePrinting(
			() => {
				style.setProperty("--running-head", JSON.stringify(title));
				style.setProperty(
					"--running-foot",
					JSON.stringify(`llamath ${data.version}. ${EXACTNESS}`),
				);
			},
			() => {},
		);
	}, [title]);
	useEffect(() => {
		scrollToSection();
		addEventListener("popstate", scrollToSection);
		return () => removeEventListener("popstate", scrollToSection);
	}, []);
	useEffect(() => {
		addEventListener("keydown", handleKey);
		return () => removeEventListener("keydown", handleKey);
	}, []);
	const [isHalfTyped, setHalfTyped] = useState(false);
	const isStale = !!edited && (isHalfTyped || edited.broken.length > 0 || !!edited.unfollowed);
	const original = data.models[place]!;
	const model = edited?.model ?? original;
	const isOfModel = view === "a" || view === "b";
	useEffect(() => {
		// what nothing shows leaves the address
		const isSized = isEdited || view === DESIGN;
		const shown = isEdited ? knownSizes(place, sizes) : sizes;
		const hasStop = isOfModel && stopAt(model, tour) !== null;
		const idle = {
			...(tour !== null && !hasStop && { tour: null }),
			...(!isSized && keys && { keys: "" }),
			...(isSized ? shown !== sizes && { sizes: shown } : sizes && { sizes: "" }),
		};
		if (Object.keys(idle).length) dropUnknown(idle);
	}, [model, view, isEdited, tour, sizes, keys]);
	const links: readonly ChapterLink[] =
		view === DESIGN
			? designSections(like, sizes, keys)
			: (view === COMPARISON && comparisonView.chapters) || chaptersOf(model);
	const page = useMemo(
		() => (
			<Original.Provider value={model === original ? null : original}>
				<ModelPage key={original.name} model={model} />
			</Original.Provider>
		),
		[model],
	);
	return (
		<>
			<a class="skip" href="#content">
				Skip to the model
			</a>
			<Header title={title} view={view} links={links} showKeys={showKeys} />
			<main id="content" tabIndex={-1}>
				{view === DESIGN ? (
					<DesignPage />
				) : view === COMPARISON && comparisonView.Page ? (
					<comparisonView.Page />
				) : (
					<>
						{edited && <EditPanel edited={edited} setHalfTyped={setHalfTyped} />}
						{edited && isStale && <StaleNote edited={edited} />}
						<div class={isStale ? "model stale" : "model"} inert={isStale}>
							{page}
						</div>
					</>
				)}
				<Files
					openConfig={openOnPage}
					server={data.served?.up ?? null}
					offer={
						RunFile &&
						((file, header) => (
							<RunFile model={data.models[0]!} file={file} header={header} />
						))
					}
				/>
			</main>
			<footer>
				<div class="wrap">
					<p>
						llamath {data.version}: every number on this page is computed from the
						model's configuration and opens its derivation. {EXACTNESS}
					</p>
				</div>
			</footer>
			<DialogHost />
			<StatusLine />
		</>
	);
}
