// A chapter of the page and its parts: what each is about, its finding as the
// heading, its controls, and what can be copied or saved from it.
import { createContext, type ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import { usePrintedState } from "../lib/printing";
import { IS_PHONE } from "../lib/use_media";
import { settingTexts, state } from "../lib/state";
import { SectionMenu } from "./export/section_menu";
import { SectionAnchor } from "./section_link";

export interface SectionLink {
	id: string;
	name: string;
}

export interface ChapterLink extends SectionLink {
	parts: readonly SectionLink[];
}

/** Where a part begins as its finding alone, until it is asked for. */
export type Fold = "never" | "on phones" | "always";

/** The level of the heading of a section, and how it begins. */
interface Place {
	level: 2 | 3;
	fold: Fold;
	/** Whether paper has all of it however the screen begins. */
	isPrinted: boolean;
}

const PlaceInChapter = createContext<Place>({ level: 2, fold: "never", isPrinted: true });

/** A part of a chapter: the sections in it are one level below. */
export function Part({
	fold = "never",
	isPrinted = fold !== "always",
	children,
}: Partial<Omit<Place, "level">> & { children: ComponentChildren }) {
	return (
		<PlaceInChapter.Provider value={{ level: 3, fold, isPrinted }}>
			{children}
		</PlaceInChapter.Provider>
	);
}

/** The headings below that of the section; without one, below that of the page. */
const SubHeadingOfSection = createContext<"h2" | "h3" | "h4">("h2");

export function SubHeading({ children }: { children: ComponentChildren }) {
	const Heading = useContext(SubHeadingOfSection);
	return <Heading class="sub">{children}</Heading>;
}

interface ChapterProps extends ChapterLink {
	/** The finding, as a sentence. */
	title: ComponentChildren;
	lead?: ComponentChildren;
	children: ComponentChildren;
}

export function Chapter({ id, name, parts, title, lead, children }: ChapterProps) {
	return (
		<section id={id} class="chapter" aria-labelledby={`${id}-title`}>
			<div class="wrap chapter-head">
				<p class="eyebrow">
					<SectionAnchor id={id}>{name}</SectionAnchor>
				</p>
				<h2 id={`${id}-title`} tabIndex={-1}>
					{title}
				</h2>
				<p class="chapter-parts no-print">
					{parts.map((x) => (
						<SectionAnchor key={x.id} id={x.id}>
							{x.name}
						</SectionAnchor>
					))}
				</p>
				{lead && <p class="lead">{lead}</p>}
			</div>
			{children}
		</section>
	);
}

interface Props {
	/** The id of the section, which its links use. */
	id: string;
	/** What the section is about, in a few words. */
	topic: string;
	/** The finding, as a sentence. */
	title: ComponentChildren;
	lead?: ComponentChildren;
	controls?: ComponentChildren;
	children: ComponentChildren;
}

/** Whether a section begins folded, unless the address asks for it or for what it alone shows. */
const beginsFolded = (id: string, fold: Fold): boolean =>
	fold !== "never" &&
	(fold === "always" || matchMedia(IS_PHONE).matches) &&
	state.section !== id &&
	location.hash !== `#${id}` &&
	!settingTexts(state).some((x) => !x.isInitial && x.parts.join() === id);

export function Section({ id, topic, title, lead, controls, children }: Props) {
	const { level, fold, isPrinted } = useContext(PlaceInChapter);
	const [isFolded, setFolded] = usePrintedState(
		() => beginsFolded(id, fold),
		isPrinted ? false : undefined,
	);
	const Heading = level === 2 ? "h2" : "h3";
	return (
		<section
			id={id}
			class={isFolded ? "folded-section" : undefined}
			aria-labelledby={`${id}-title`}
			data-topic={topic}
			data-numbers
		>
			<div class="wrap">
				<div class="section-head">
					<p class="eyebrow">
						<SectionAnchor id={id}>{topic}</SectionAnchor>
					</p>
					<Heading id={`${id}-title`} tabIndex={-1} class="title">
						{title}
					</Heading>
					{!isFolded && controls && <div class="section-controls">{controls}</div>}
					<div class="section-menu">
						{isFolded ? (
							<button
								type="button"
								class="button unfold no-print"
								aria-label={`Show ${topic}`}
								onClick={() => {
									setFolded(false);
									document
										.getElementById(`${id}-title`)
										?.focus({ preventScroll: true });
								}}
							>
								Show
							</button>
						) : (
							<SectionMenu id={id} topic={topic} />
						)}
					</div>
					{!isFolded && lead && <p class="lead">{lead}</p>}
				</div>
				<SubHeadingOfSection.Provider value={level === 2 ? "h3" : "h4"}>
					{!isFolded && children}
				</SubHeadingOfSection.Provider>
			</div>
		</section>
	);
}
