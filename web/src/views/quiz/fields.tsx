// The fields of "Count it yourself" in the picture: one where the number of each part would be.
import { useContext, useId, useState } from "preact/hooks";
import { grouped } from "../../lib/format";
import { textWidth } from "../../lib/measure_text";
import { answerTo } from "../../lib/question";
import { state as appState } from "../../lib/state";
import type { LayerLayout } from "../plate/layout";
import type { Comparison } from "../plate/measure";
import { openPlace } from "../plate/plate";
import { firstOfKind, kindAt, plateOf } from "../plate/plate_model";
import { AskingOf, nextOpen, type Asking } from "./quiz_data";

/** The text in whose place a field stands: as wide as the largest number of a layer's parts. */
const fieldOf = ({ quiz }: Asking): string =>
	quiz.items.some(
		({ part, question }) =>
			part?.paths.length && isLayer(part) && answerTo(quiz.model, question) >= 100_000_000n,
	)
		? "0,000,000,000"
		: "00,000,000";
const isLayer = ({ layer }: { layer: string }) => /^\d+$/.test(layer);
const HEIGHT = 20;

export const isField = (text: string): boolean => /^0[0,]{9}/.test(text);

/** The part of a weight in the opened layer; layers of other kinds may have it in other sizes. */
function partWith({ quiz }: Asking, paths: readonly string[]): number {
	const plate = plateOf(quiz.model);
	const open = openPlace(quiz.model, appState.layer);
	if (typeof open !== "number") return -1;
	const layer = String(firstOfKind(plate, kindAt(plate, open)));
	return quiz.items.findIndex(
		(x) => x.part?.layers.includes(layer) && x.part.paths.some((y) => paths.includes(y)),
	);
}

/** Room in the layout for a field of each matrix and of the first norm. */
export function roomForFields(asking: Asking | null): Comparison | undefined {
	if (!asking) return undefined;
	const isAsked = (paths: string[]) => partWith(asking, paths) >= 0;
	const field = fieldOf(asking);
	let norm: string | null = null;
	return {
		matrixOf: () => null,
		linesOf: ({ use }) => (isAsked([use.path]) ? [field] : []),
		notesOf: (node) => {
			if (node.kind !== "norm" || !isAsked(node.steps[0]!.uses.map((x) => x.path))) return [];
			norm ??= node.id;
			return norm === node.id ? [field] : [];
		},
	};
}

/** Whether a weight's number is still asked for. */
export function useIsOpen(): (path: string) => boolean {
	const asking = useContext(AskingOf);
	return (path) => {
		if (!asking) return false;
		const i = partWith(asking, [path]);
		return i >= 0 && !asking.quiz.isKnown(asking.quiz.items[i]!);
	};
}

/** Whether a part outside of the layers, or else a whole layer, is still asked for. */
export function useIsAsked(): (name: string) => boolean {
	const asking = useContext(AskingOf);
	return (name) =>
		asking?.quiz.items.some(
			(x) =>
				x.part?.layer &&
				(name
					? x.part.paths.some((y) => y.startsWith(`${name}.`))
					: !x.part.paths.length) &&
				!asking.quiz.isKnown(x),
		) ?? false;
}

/** The fields on the picture of the opened layer, where the layout left room. */
export function LayerFields({ layout }: { layout: LayerLayout }) {
	const asking = useContext(AskingOf);
	if (!asking) return null;
	const field = fieldOf(asking);
	return (
		<>
			{layout.nodes.flatMap((placed) => {
				const paths = placed.boxes.length
					? placed.boxes.map((x) => x.matrix.use.path)
					: [placed.node.steps[0]?.uses[0]?.path ?? ""];
				const asked = paths.filter((x) => partWith(asking, [x]) >= 0);
				return placed.labels
					.filter((x) => isField(x.text))
					.map((label, i) => {
						const path = asked[i]!;
						const width = textWidth(field, 13) + 2;
						const whole = textWidth(label.text, 13);
						const left =
							placed.x +
							label.x -
							{ start: 0, middle: whole / 2, end: whole }[label.anchor];
						return (
							<g key={`${placed.node.id} ${path}`}>
								<foreignObject
									x={left - 1}
									y={placed.y + label.y - 14}
									width={width}
									height={HEIGHT}
								>
									<Field
										asking={asking}
										at={partWith(asking, [path])}
										path={path}
									/>
								</foreignObject>
								{label.text.length > field.length && (
									<text
										class="muted haloed"
										x={left + width + 4}
										y={placed.y + label.y}
									>
										{label.text.slice(field.length).replace(/^, /, "")}
									</text>
								)}
							</g>
						);
					});
			})}
		</>
	);
}

/** A field of a part, or its number once it is known. */
function Field({
	asking: { quiz, at: now, go },
	at,
	path,
}: {
	asking: Asking;
	at: number;
	path?: string;
}) {
	const item = quiz.items[at]!;
	const [text, setText] = useState("");
	const [isWrong, setWrong] = useState(false);
	const id = useId();
	if (quiz.isKnown(item))
		return (
			<b class="quiz-known tabular" data-field={path} data-item={item.key}>
				{grouped(answerTo(quiz.model, item.question))}
			</b>
		);
	const check = (event: Event) => {
		event.preventDefault();
		if (!text.trim()) return;
		const { isRight } = quiz.check(item, text);
		setWrong(!isRight);
		if (!isRight) return;
		const fields = [...document.querySelectorAll<HTMLInputElement>("input[data-field]")];
		const own = fields.findIndex((x) => x.id === id);
		const next = fields[own + 1];
		(next ?? document.querySelector<HTMLElement>(".quiz-card input"))?.focus({
			preventScroll: true,
		});
		if (!next) go(nextOpen(quiz, at));
	};
	return (
		<form class={isWrong ? "wrong" : undefined} onSubmit={check}>
			<input
				id={id}
				class={`quiz-input${now === at ? " here" : ""}`}
				data-field={path ?? item.key}
				data-item={item.key}
				type="text"
				value={text}
				maxLength={60}
				autocomplete="off"
				spellcheck={false}
				placeholder="?"
				aria-label={item.question.text}
				aria-invalid={isWrong}
				onFocus={() => go(at)}
				onInput={(event) => {
					setText(event.currentTarget.value);
					setWrong(false);
				}}
			/>
		</form>
	);
}

/** Fields of the parts outside of the layers and of the total, below the bars of the model. */
export function WholeFields() {
	const asking = useContext(AskingOf);
	if (!asking) return null;
	const shown = asking.quiz.items.flatMap((x, i) =>
		x.part && !isLayer(x.part) ? [[x, i] as const] : [],
	);
	return (
		<div class="quiz-whole no-print">
			{shown.map(([x, i]) => (
				<span key={x.key}>
					<small>{x.part!.name}</small>
					<Field asking={asking} at={i} />
				</span>
			))}
		</div>
	);
}

/** The field of the opened layer's own number. */
export function LayerField({ parameters }: { parameters: string }) {
	const asking = useContext(AskingOf);
	if (!asking) return null;
	const { quiz } = asking;
	const at = quiz.items.findIndex(
		(x) =>
			x.part &&
			!x.part.paths.length &&
			x.part.layer &&
			answerTo(quiz.model, x.question) === BigInt(parameters),
	);
	return at < 0 ? <>?</> : <Field asking={asking} at={at} />;
}
