// One figure of a model for the frame of another page: no header, and a link to the whole page.
import "./embedded.css";
import { useEffect, useRef } from "preact/hooks";
import { DialogHost } from "../components/dialog";
import { StatusLine } from "../components/status_line";
import { data } from "../lib/data";
import { shortCount } from "../lib/format";
import { stateWith, writeState } from "../lib/state";
import { chaptersOf } from "./model_page";
import { Plate } from "./plate/plate";

const PLATE = "plate";

/** Tells the page with the frame how high the figure is: a number, and nothing of the reader. */
function sendHeight(element: Element): () => void {
	if (parent === window) return () => undefined;
	const observer = new ResizeObserver(() =>
		parent.postMessage({ llamathHeight: Math.ceil(element.scrollHeight) }, "*"),
	);
	observer.observe(element);
	return () => observer.disconnect();
}

export function Embedded({ name }: { name: string }) {
	const ref = useRef<HTMLElement>(null);
	useEffect(() => sendHeight(ref.current!), []);
	const model = data.models[0]!;
	const sections = chaptersOf(model).flatMap((x) => x.parts);
	const section = sections.find((x) => x.id === name);
	const whole = writeState(stateWith({ embed: "", section: section ? name : "" }));
	return (
		<>
			<main id="content" class="embedded" ref={ref}>
				{name === PLATE ? (
					<div class="wrap">
						<h1>
							<span class="hidden">{model.name}: </span>
							{shortCount(model.counts[0]!.value)} parameters
						</h1>
						<Plate model={model} />
					</div>
				) : section ? (
					section.draw(model)
				) : (
					<p class="wrap callout">
						There is no figure “{name}”: embed knows{" "}
						{[PLATE, ...sections.map((x) => x.id)].join(", ")}.
					</p>
				)}
				<p class="wrap caption">
					<a
						href={`${location.href.split("#")[0]}${whole}`}
						target="_blank"
						rel="noopener"
					>
						{model.name} on its page
					</a>
					, llamath {data.version}
				</p>
			</main>
			<DialogHost />
			<StatusLine />
		</>
	);
}
