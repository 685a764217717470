// The header: the mark, the models of this page and their comparison, links to chapters, the theme.
import { useEffect } from "preact/hooks";
import { data } from "../lib/data";
import { canEdit, closeEdit, hasForm } from "../lib/editing";
import { forgetKeptKeys } from "../lib/files/config";
import type { SiteLinks } from "../lib/files/open_config";
import { change, useAppState, type State } from "../lib/state";
import { Menu } from "./export/menu";
import { PageMenu } from "./export/page_menu";
import type { ChapterLink } from "./section";
import { SectionAnchor } from "./section_link";
import { ThemeButton } from "./theme_button";

interface Props {
	title: string;
	view: State["view"];
	links: readonly ChapterLink[];
	showKeys: () => void;
}

export function Mark() {
	return (
		<svg width="22" height="22" viewBox="0 0 22 22" aria-hidden="true">
			<path d="M0 11h22" stroke="currentColor" stroke-width="3" />
			<path d="M2 2h4v7h-4zM9 2h4v7h-4zM16 2h4v7h-4z" fill="currentColor" />
			<path d="M4 13v6M11 13v6M18 13v6" stroke="currentColor" stroke-width="2" />
		</svg>
	);
}

function Views({ view }: { view: string }) {
	const { edit } = useAppState("edit");
	const [a, b] = data.models;
	const place = view === "b" ? 1 : 0;
	const isDesign = view === "design";
	const views: [State["view"], string][] = [
		["a", a!.name],
		...(b
			? ([
					["b", b.name],
					["difference", "Compare"],
				] as [State["view"], string][])
			: []),
		...(isDesign || (hasForm(place) && !canEdit(place))
			? ([["design", "Design"]] as [State["view"], string][])
			: []),
	];
	return (
		<div class="segmented views" role="group" aria-label="View">
			{views.map(([key, text]) => (
				<button
					type="button"
					key={key}
					data-view={key}
					aria-pressed={view === key && !edit}
					onClick={() => {
						if (edit) forgetKeptKeys();
						change({
							...{ view: key, section: "", quiz: "" },
							// a model as it is published, and what was designed is no edit of it
							...(edit && { edit: "", sizes: "", keys: "" }),
							...(isDesign && key !== "design" && { like: "a", sizes: "", keys: "" }),
						});
					}}
				>
					{text}
				</button>
			))}
			{!isDesign && canEdit(place) && (
				<button
					type="button"
					data-view="edit"
					aria-pressed={edit !== ""}
					onClick={() =>
						edit
							? closeEdit()
							: (change({ view: place ? "b" : "a", edit: "sizes" }), scrollTo(0, 0))
					}
				>
					Edit
				</button>
			)}
		</div>
	);
}

/** The address of the page of one model or two on the same server. */
export const pageUrl = (up: string, ids: readonly string[]) =>
	`${up}${ids.length > 1 ? "models" : "model"}/${ids.map(encodeURIComponent).join("/")}`;

function OtherModels() {
	if (data.gallery) {
		const links = data.gallery as SiteLinks;
		return (
			<>
				<a class="button" href={links.all}>
					All models
				</a>
				{links.with && (
					<a class="button wide-only" href={links.with}>
						Compare with…
					</a>
				)}
			</>
		);
	}
	if (!data.served) return null;
	const { up, ids } = data.served;
	return (
		<>
			<a class="button" href={`${up}choose`}>
				Another model
			</a>
			{ids.length === 1 ? (
				<a
					class="button wide-only"
					href={`${up}choose#${new URLSearchParams({ with: ids[0]! })}`}
				>
					Compare with…
				</a>
			) : (
				<a class="button wide-only" href={pageUrl(up, ids.toReversed())}>
					Swap models
				</a>
			)}
		</>
	);
}

/** Where a phone's header is out of sight. */
const HEADER_HEIGHT = 160;

/**
 * The chapters and their parts where the header has no room for links. The header of a phone is in sight while
 * one scrolls back, so that it covers nothing that is being read.
 */
function SectionList({ links }: { links: readonly ChapterLink[] }) {
	useEffect(() => {
		let last = scrollY;
		const onScroll = () => {
			if (Math.abs(scrollY - last) < 8) return;
			document.documentElement.dataset.scroll =
				scrollY < last && scrollY > HEADER_HEIGHT ? "up" : "";
			last = scrollY;
		};
		addEventListener("scroll", onScroll, { passive: true });
		return () => removeEventListener("scroll", onScroll);
	}, []);
	return (
		<span class="narrow-only">
			<Menu text="Sections" label="Sections">
				{(close) =>
					links.flatMap((chapter) =>
						[chapter, ...chapter.parts].map((x) => (
							<SectionAnchor key={x.id} id={x.id} onFollow={close}>
								{x === chapter ? <b>{x.name}</b> : x.name}
							</SectionAnchor>
						)),
					)
				}
			</Menu>
		</span>
	);
}

export function Header({ title, view, links, showKeys }: Props) {
	return (
		<header>
			<div class="wrap">
				<a class="mark" href="#content" aria-label={`llamath: ${title}, top of the page`}>
					<Mark />
					llamath
				</a>
				<Views view={view} />
				{links.length > 0 && <SectionList links={links} />}
				<nav aria-label="Chapters">
					{links.map((x) => (
						<SectionAnchor key={x.id} id={x.id}>
							{x.name}
						</SectionAnchor>
					))}
				</nav>
				<span class="grow" />
				<OtherModels />
				<PageMenu name={title} />
				<button
					type="button"
					class="button icon wide-only"
					aria-label="Keyboard shortcuts"
					onClick={showKeys}
				>
					?
				</button>
				<ThemeButton />
			</div>
		</header>
	);
}
