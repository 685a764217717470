// A section of the page: what it is about, its finding as the heading, its controls, and what can
// be copied or saved from it.
import { createContext, type ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import { usePrintedState } from "../lib/printing";
import { IS_PHONE } from "../lib/use_media";
import { settingTexts, state } from "../lib/state";
import { SectionMenu } from "./export/section_menu";
import { SectionAnchor } from "./section_link";

interface Props {
	/** The id of the section, which its links and `nav` use. */
	id: string;
	/** What the section is about, in a few words. */
	topic: string;
	/** The finding, as a sentence. */
	title: ComponentChildren;
	lead?: ComponentChildren;
	controls?: ComponentChildren;
	children: ComponentChildren;
}

/** The sections of which a phone first shows the finding alone. */
const FOLDED_ON_PHONES: readonly string[] = [
	"live",
	"layouts",
	"attention",
	"positions",
	"experts",
	"tensors",
	"shapes",
	"configs",
];

/** The sections of a model that say little of it, and why: they begin folded at any width. */
export const Minor = createContext<{ sections: readonly string[]; why: string }>({
	sections: [],
	why: "",
});

/** Whether a section begins folded: if it is minor or on a phone, unless the address asks for it. */
const beginsFolded = (id: string, isMinor: boolean): boolean =>
	(isMinor || (FOLDED_ON_PHONES.includes(id) && matchMedia(IS_PHONE).matches)) &&
	state.section !== id &&
	location.hash !== `#${id}` &&
	!settingTexts(state).some((x) => !x.isInitial && x.parts.includes(id));

export function Section({ id, topic, title, lead, controls, children }: Props) {
	const minor = useContext(Minor);
	const isMinor = minor.sections.includes(id);
	// paper has what a phone folds, but not what says little
	const [isFolded, setFolded] = usePrintedState(
		() => beginsFolded(id, isMinor),
		isMinor ? undefined : false,
	);
	return (
		<section id={id} aria-labelledby={`${id}-title`} data-topic={topic} data-numbers>
			<div class="wrap">
				<div class="section-head">
					<p class="eyebrow">
						<SectionAnchor id={id}>{topic}</SectionAnchor>
					</p>
					<h2 id={`${id}-title`} tabIndex={-1}>
						{title}
					</h2>
					{!isFolded && controls && <div class="section-controls">{controls}</div>}
					{!isFolded && (
						<div class="section-menu">
							<SectionMenu id={id} topic={topic} />
						</div>
					)}
					{!isFolded && lead && <p class="lead">{lead}</p>}
					{isFolded && isMinor && <p class="lead">{minor.why}</p>}
				</div>
				{isFolded ? (
					<button
						type="button"
						class="button unfold no-print"
						aria-label={`Show ${topic}`}
						onClick={() => {
							setFolded(false);
							document.getElementById(`${id}-title`)?.focus({ preventScroll: true });
						}}
					>
						Show
					</button>
				) : (
					children
				)}
			</div>
		</section>
	);
}
