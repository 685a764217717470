// A section of the page: what it is about, its finding as the heading, its controls, and what can
// be copied or saved from it.
import type { ComponentChildren } from "preact";
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

export function Section({ id, topic, title, lead, controls, children }: Props) {
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
					{controls && <div class="section-controls">{controls}</div>}
					<div class="section-menu">
						<SectionMenu id={id} topic={topic} />
					</div>
					{lead && <p class="lead">{lead}</p>}
				</div>
				{children}
			</div>
		</section>
	);
}
