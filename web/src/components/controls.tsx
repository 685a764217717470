// Controls: a choice among few values as buttons, a choice among many as a list, and a whole number
// as a slider with a text field.
import { useEffect, useMemo, useState } from "preact/hooks";
import { grouped } from "../lib/format";
import { placeAfter } from "../lib/roving";
import { parseWhole } from "../lib/settings";

type Value = string | number;
export type Options<T extends Value = string> = readonly (readonly [value: T, text: string])[];

interface ChoiceProps<T extends Value> {
	id: string;
	label: string;
	options: Options<T>;
	chosen: NoInfer<T>;
	choose: (value: T) => void;
}

/** A choice among at most about six values: one tab stop, and the arrow keys choose. */
export function Segmented<T extends Value>({
	id,
	label,
	options,
	chosen,
	choose,
	labelHidden = false,
}: ChoiceProps<T> & { labelHidden?: boolean }) {
	const stop = Math.max(
		0,
		options.findIndex(([value]) => value === chosen),
	);
	const onKeyDown = (event: KeyboardEvent, i: number) => {
		const next = placeAfter(event.key, i, options.length);
		if (next === undefined) return;
		event.preventDefault();
		const button = (event.currentTarget as Element).parentElement!.children[
			next
		] as HTMLElement;
		choose(options[next]![0]);
		button.focus();
	};
	return (
		<span class="control">
			<span class={labelHidden ? "hidden" : "control-label"} id={`${id}-label`}>
				{label}
			</span>
			<span class="segmented" role="radiogroup" aria-labelledby={`${id}-label`} id={id}>
				{options.map(([value, text], i) => (
					<button
						type="button"
						role="radio"
						key={value}
						aria-checked={value === chosen}
						tabIndex={i === stop ? 0 : -1}
						data-value={value}
						onClick={() => choose(value)}
						onKeyDown={(event) => onKeyDown(event, i)}
					>
						{text}
					</button>
				))}
			</span>
		</span>
	);
}

export function Select<T extends Value>({ id, label, options, chosen, choose }: ChoiceProps<T>) {
	const list = useMemo(
		() =>
			options.map(([value, text]) => (
				<option key={value} value={value}>
					{text}
				</option>
			)),
		[options],
	);
	return (
		<span class="control">
			<label class="control-label" for={id}>
				{label}
			</label>
			<select
				id={id}
				value={chosen}
				onChange={(event) => choose(options[event.currentTarget.selectedIndex]![0])}
			>
				{list}
			</select>
		</span>
	);
}

interface NumberProps {
	id: string;
	label: string;
	/** The unit, which screen readers hear with the value. */
	unit: string;
	value: bigint;
	/** The largest value of the slider; the text field takes more. */
	max: number;
	set: (value: bigint) => void;
}

const STEPS_PER_DOUBLING = 4;

/** A whole number on a logarithmic slider, and as text: 8192, 8,192 or 8k. */
export function WholeNumber({ id, label, unit, value, max, set }: NumberProps) {
	const [text, setText] = useState(grouped(value));
	useEffect(() => {
		if (parseWhole(text) !== value) setText(grouped(value));
	}, [value]);
	const isValid = parseWhole(text) !== null;
	const type = (typed: string) => {
		setText(typed);
		const n = parseWhole(typed);
		if (n !== null) set(n);
	};
	return (
		<span class="control">
			<label class="control-label" for={id}>
				{label}
			</label>
			<input
				type="range"
				min="0"
				max={Math.round(Math.log2(max) * STEPS_PER_DOUBLING)}
				aria-label={`${label}, slider`}
				aria-valuetext={`${grouped(value)} ${unit}`}
				value={Math.round(Math.log2(Number(value)) * STEPS_PER_DOUBLING)}
				onInput={(event) =>
					set(
						BigInt(
							Math.round(
								2 ** (Number(event.currentTarget.value) / STEPS_PER_DOUBLING),
							),
						),
					)
				}
			/>
			<input
				id={id}
				type="text"
				inputMode="numeric"
				maxLength={13}
				value={text}
				aria-invalid={!isValid}
				aria-describedby={`${id}-note`}
				onInput={(event) => type(event.currentTarget.value)}
				onBlur={() => setText(grouped(value))}
			/>
			<span class="control-note" id={`${id}-note`} role="status">
				{isValid ? null : "a whole number such as 8192 or 8k"}
			</span>
		</span>
	);
}
