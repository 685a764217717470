// The gallery: its header, the search, the chosen view, and the models of the hub where the server
// allows them.
import "./gallery.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { Segmented, Select, type Options } from "../../components/controls";
import { DialogHost } from "../../components/dialog";
import { Mark } from "../../components/header";
import { StatusLine } from "../../components/status_line";
import { ThemeButton } from "../../components/theme_button";
import { shellWord } from "../../lib/files/shell_word";
import { change, state, useAppState, type State } from "../../lib/state";
import { Cards } from "./cards";
import { Compare } from "./compare";
import {
	comparedName,
	filtered,
	gallery,
	isOwn,
	linkTo,
	linkToPair,
	sorted,
	useRest,
	valuesOf,
	type Entry,
} from "./entries";
import { openInSite, openOnServer, type OpenConfig } from "../../lib/files/open_config";
import { refuse } from "../../lib/files/strict_json";
import { Files } from "../files/files";
import { Kinship } from "./kinship";
import { Plot } from "./plot";
import { ModelTable } from "./table";
import { Timeline } from "./timeline";
import { Wall } from "./wall";

const VIEWS: Options<State["view"]> = [
	["cards", "Cards"],
	["wall", "Wall"],
	["table", "Table"],
	["timeline", "Timeline"],
	["kinship", "Kinship"],
	["plot", "Plot"],
	["compare", "Compare"],
];
const HUB_NAME = /^[a-z\d][\w.-]{0,95}\/[a-z\d][\w.-]{0,95}$/i;

function links(): HTMLElement[] {
	return [
		document.getElementById("find")!,
		...document.querySelectorAll<HTMLElement>(".models a.model"),
	];
}

function handleKey(event: KeyboardEvent) {
	const target = event.target as HTMLElement;
	if (event.ctrlKey || event.metaKey || event.altKey) return;
	const focusable = links();
	const at = focusable.indexOf(document.activeElement as HTMLElement);
	const isPicture = target.closest(".wall");
	const step =
		{ ArrowDown: 1, ArrowUp: -1 }[event.key] ??
		(isPicture ? { ArrowRight: 1, ArrowLeft: -1 }[event.key] : undefined);
	if (event.key === "Enter" && target.id === "find") focusable[1]?.click();
	else if (event.key === "/" && !target.closest("input, select, textarea")) focusable[0]!.focus();
	else if (step && at >= 0 && focusable[at + step]) focusable[at + step]!.focus();
	else return;
	event.preventDefault();
}

function Header() {
	const { view } = useAppState("view");
	return (
		<header>
			<div class="wrap">
				<a class="mark" href="#view=cards" aria-label="llamath: gallery of language models">
					<Mark />
					llamath
				</a>
				<Segmented
					id="view"
					label="View"
					labelHidden
					options={VIEWS}
					chosen={view}
					choose={(x) => change({ view: x })}
				/>
				<span class="grow" />
				<ThemeButton />
			</div>
		</header>
	);
}

/** "Compare X with: choose a second model", while a first one is chosen. */
function Comparing() {
	const state = useAppState("with");
	const name = comparedName(state.with);
	if (name === null) return null;
	return (
		<p class="comparing">
			<span>
				Compare <strong>{name}</strong> with: choose a second model.
			</span>
			<button
				type="button"
				class="button"
				onClick={() => {
					change({ with: "" });
					document.getElementById("find")?.focus();
				}}
			>
				One model only
			</button>
		</p>
	);
}

function HubField() {
	const state = useAppState("with");
	const [text, setText] = useState("");
	const [note, setNote] = useState("reads the config, never the weights");
	const [isInvalid, setInvalid] = useState(false);
	const open = () => {
		const isValid = HUB_NAME.test(text.trim());
		setInvalid(!isValid);
		setNote(isValid ? "asking the hub…" : "expected owner/name");
		if (isValid) location.assign(linkTo(`hub:${text.trim().replace("/", ":")}`, state));
	};
	return (
		<span class="control">
			<label class="control-label" for="hub">
				From the hub
			</label>
			<input
				id="hub"
				type="text"
				maxLength={193}
				placeholder="owner/name"
				autocomplete="off"
				spellcheck={false}
				value={text}
				aria-invalid={isInvalid}
				aria-describedby="hub-note"
				onInput={(event) => setText(event.currentTarget.value)}
				onKeyDown={(event) => event.key === "Enter" && open()}
			/>
			<button type="button" class="button" onClick={open}>
				Open
			</button>
			<span class="control-note" id="hub-note" role="status">
				{note}
			</span>
		</span>
	);
}

const withCounts = (
	all: string,
	values: [string, number][],
	chosen: string,
): [string, string][] => {
	const options = values.map(([x, n]): [string, string] => [
		x,
		`${x === "moe" ? "MoE" : x} (${n})`,
	]);
	return [
		["", all],
		...options,
		...(chosen && !values.some((x) => x[0] === chosen)
			? [[chosen, chosen] as [string, string]]
			: []),
	];
};

/** How cards are sorted; the table has its own columns for it. */
const ORDERS: Options<string> = [
	["-released", "newest first"],
	["released", "oldest first"],
	["-total", "largest first"],
	["total", "smallest first"],
	["kv", "least KV cache"],
	["-context", "longest context"],
	["name", "name"],
];

/** The views that show more than names, pictures and totals. */
const FACT_VIEWS: State["view"][] = ["table", "kinship", "plot"];
/** How many of these are of the catalog: files of the reader are beside it. */
const inCatalog = (models: Entry[]) => models.filter((x) => !isOwn(x)).length;

const FILTERS = ["kind", "attention", "organization", "license", "most"] as const;

/** The search and, on phones behind a button, the other filters. */
function Filters({ models }: { models: Entry[] }) {
	const state = useAppState("view", "sort", "find", ...FILTERS);
	const orders = ORDERS.some((x) => x[0] === state.sort)
		? ORDERS
		: [...ORDERS, [state.sort, "as the table"] as const];
	const [isOpen, setOpen] = useState(false);
	const all = inCatalog(gallery.models);
	const found = inCatalog(models);
	// what only the facts tell, of models whose facts are still computed
	const open = gallery.models.filter((x) => !x.shapes).length;
	const isOpenAsked = state.kind || state.attention || FACT_VIEWS.includes(state.view);
	const status = state.find
		? `${found} of ${all}${found ? "; Enter opens the first" : ""}`
		: found === all
			? `${all} models`
			: `${found} of ${all} models`;
	const used = FILTERS.filter((x) => state[x]).length;
	const clear = () => {
		change(Object.fromEntries(FILTERS.map((x) => [x, ""])));
		document.getElementById("find")?.focus();
	};
	return (
		<div class={`filters no-print ${isOpen ? "open" : ""}`}>
			<span class="control find">
				<label class="control-label" for="find">
					Find ( / )
				</label>
				<input
					id="find"
					type="search"
					placeholder="Find a model"
					maxLength={80}
					autocomplete="off"
					spellcheck={false}
					value={state.find}
					onInput={(event) => change({ find: event.currentTarget.value })}
				/>
			</span>
			<button
				type="button"
				class="button filters-button"
				aria-expanded={isOpen}
				aria-controls="more-filters"
				onClick={() => setOpen(!isOpen)}
			>
				{used ? `Filters: ${used}` : "Filters"}
			</button>
			<div class="more-filters" id="more-filters" role="group" aria-label="Filters">
				{state.view === "cards" && (
					<Select
						id="sort"
						label="Sort"
						options={orders}
						chosen={state.sort}
						choose={(sort) => change({ sort })}
					/>
				)}
				<Select
					id="kind"
					label="Kind"
					options={withCounts(
						"any",
						valuesOf((x) => x.kinds ?? []),
						state.kind,
					)}
					chosen={state.kind}
					choose={(kind) => change({ kind })}
				/>
				<Select
					id="attention"
					label="Attention"
					options={withCounts(
						"any",
						valuesOf((x) => (x.attention ?? "").split(", ")),
						state.attention,
					)}
					chosen={state.attention}
					choose={(attention) => change({ attention })}
				/>
				<Select
					id="organization"
					label="Organization"
					options={withCounts(
						"any",
						valuesOf((x) => [x.organization]),
						state.organization,
					)}
					chosen={state.organization}
					choose={(organization) => change({ organization })}
				/>
				<Select
					id="license"
					label="License"
					options={withCounts(
						"any",
						valuesOf((x) => [x.license]),
						state.license,
					)}
					chosen={state.license}
					choose={(license) => change({ license })}
				/>
				<span class="control">
					<label class="control-label" for="most">
						At most
					</label>
					<input
						id="most"
						type="text"
						class="short"
						maxLength={12}
						placeholder="70B"
						autocomplete="off"
						value={state.most}
						onInput={(event) => change({ most: event.currentTarget.value })}
					/>
				</span>
				{used > 0 && (
					<button type="button" class="button" onClick={clear}>
						Clear filters
					</button>
				)}
			</div>
			<p class="caption" role="status">
				{status}
				{open && isOpenAsked ? `; the facts of ${open} more are being computed` : ""}
			</p>
		</div>
	);
}

const isServed = Boolean(gallery.pair_link);
/** Opens a config beside the model with which the next one is compared, if there is one. */
const openConfig: OpenConfig = (file) => {
	if (isServed) return openOnServer(file, "", (id) => linkTo(id, state));
	return gallery.forms
		? openInSite(file, gallery)
		: Promise.resolve().then(() => refuse("no forms", shellWord(file.name)));
};

export function GalleryApp() {
	const state = useAppState("view", "sort", "find", ...FILTERS);
	useRest();
	useEffect(() => {
		addEventListener("keydown", handleKey);
		return () => removeEventListener("keydown", handleKey);
	}, []);
	const view = state.view;
	const models = sorted(filtered(state), state.sort);
	const heading = useRef<HTMLHeadingElement>(null);
	return (
		<>
			<a class="skip" href="#content">
				Skip to the models
			</a>
			<Header />
			<main id="content" tabIndex={-1}>
				<div class="wrap gallery">
					<h1 ref={heading}>
						{view === "compare"
							? "Two models side by side"
							: `${inCatalog(gallery.models).toLocaleString("en-US")} language models`}
					</h1>
					<Comparing />
					{gallery.hub && <HubField />}
					{view !== "compare" && <Filters models={models} />}
					{view === "cards" && <Cards models={models} />}
					{view === "wall" && <Wall models={models} />}
					{view === "table" && <ModelTable models={models} />}
					{view === "timeline" && <Timeline models={models} />}
					{view === "kinship" && <Kinship models={models} />}
					{view === "plot" && <Plot models={models} />}
					{view === "compare" && <Compare />}
				</div>
				<Files openConfig={openConfig} server={isServed ? "" : null} />
			</main>
			<footer>
				<div class="wrap">
					<p>
						llamath {gallery.version}: every number is computed from the model's
						configuration. KV cache in 16 bits. FLOPs of decoding one token. Dates,
						licenses and organizations are those of the catalog.
					</p>
				</div>
			</footer>
			<DialogHost />
			<StatusLine />
		</>
	);
}

export { linkToPair };
