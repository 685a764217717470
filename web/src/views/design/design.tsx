// Change the dimensions of a model and see what follows: its size, its parts, its distance to a
// target, its config.json.
import "./design.css";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Segmented } from "../../components/controls";
import { copyText, saveFile } from "../../components/export/clipboard";
import { NumberButton } from "../../components/number";
import { Section, type ChapterLink } from "../../components/section";
import { data } from "../../lib/data";
import { formula, inShort, shareFormula, type Derivation } from "../../lib/derivation";
import {
	decodeSizes,
	designedModel,
	designedModels,
	encodeSizes,
	evaluateDesign,
	formatPpm,
	parseCount,
	sliderOf,
	windowsOf,
	type Design,
	type DesignLetter,
	type Dimensions,
} from "../../lib/design";
import { notation, value, type Expression } from "../../lib/expressions";
import { forgetKeptKeys, keptKeys, keysAt, unreadKeys } from "../../lib/files/config";
import type { FormatData } from "../../lib/files/headers";
import { everydayCount, grouped, percent, share, shortBytes, signed } from "../../lib/format";
import { visible } from "../../lib/files/strict_json";
import { shellWord } from "../../lib/files/shell_word";
import { modelPart } from "../../lib/model_parts";
import { parseWhole } from "../../lib/settings";
import { change, endGesture, useAppState } from "../../lib/state";
import { sizedModel, statedContext } from "../../lib/sizing/form_sizes";
import { HardwareSection } from "../hardware/hardware";
import { MemorySection } from "../memory/memory";
import { SettingsBar } from "../memory/settings_bar";
import { DesignPicture } from "./design_picture";

const WHOLE = "a whole number from 1 to 4,294,967,295";
const COUNT = "a count: 405B, 1.5e9, 500M or 8,030,261,248";

/** A key that may break behind each of its words. */
const breakable = (key: string) =>
	key.split("_").map((word, i) => [i > 0 && "_", i > 0 && <wbr />, word]);

export function Dimension({
	x,
	n,
	most,
	move,
}: {
	x: DesignLetter;
	n: bigint;
	/** The largest value, if there is one. */
	most?: bigint;
	move: (n: bigint) => void;
}) {
	const id = `size-${x.letter}`;
	const name = x.says || x.key;
	const slider = sliderOf(x);
	if (most && most < slider.most) slider.most = most;
	const [text, setText] = useState(String(n));
	useEffect(() => {
		if (parseWhole(text) !== n) setText(String(n));
	}, [n]);
	const isValid = parseWhole(text) !== null;
	const type = (typed: string) => {
		setText(typed);
		const whole = parseWhole(typed);
		if (whole !== null) move(whole);
	};
	return (
		<div class="dimension">
			<label for={id}>
				{breakable(name)}
				<span class="caption" title={x.key}>
					{" "}
					{x.letter} {x.says && <code class="dimension-key">{breakable(x.key)}</code>}
				</span>
			</label>
			<input
				type="range"
				min={String(slider.step)}
				max={String(slider.most)}
				step={String(slider.step)}
				value={String(n)}
				aria-label={`${name}, slider`}
				aria-valuetext={`${name}: ${grouped(n)}`}
				onInput={(event) => move(BigInt(event.currentTarget.value))}
				onPointerUp={endGesture}
				onBlur={endGesture}
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
				onBlur={endGesture}
			/>
			<span id={`${id}-note`} class="control-note" role="status">
				{isValid ? null : WHOLE}
			</span>
		</div>
	);
}

function Target({ initial }: { initial: string }) {
	const [text, setText] = useState(initial);
	const isInvalid = text.trim() !== "" && !parseCount(text);
	const type = (typed: string) => {
		setText(typed);
		if (typed.trim() === "" || parseCount(typed)) change({ target: typed.trim() });
	};
	return (
		<span class="control">
			<label class="control-label" for="target">
				Target
			</label>
			<input
				id="target"
				type="text"
				maxLength={24}
				value={text}
				placeholder="405B"
				aria-invalid={isInvalid}
				aria-describedby="target-note"
				onInput={(event) => type(event.currentTarget.value)}
			/>
			<span id="target-note" class="control-note" role="status">
				{isInvalid ? COUNT : ""}
			</span>
		</span>
	);
}

type Result = ReturnType<typeof evaluateDesign>;

const expressionLines = (form: Expression, values: Dimensions["values"], n: bigint) =>
	formula(notation(form, values, true), notation(form, values, false), grouped(n));

export function Total({ result, values }: { result: Result; values: Dimensions["values"] }) {
	const derive = (): Derivation => ({
		title: "total",
		lines: [
			expressionLines(result.form, values, result.total),
			...inShort("total", result.total),
		],
	});
	const deriveActive = (): Derivation => ({
		title: "active",
		lines: [
			expressionLines(result.active, values, result.live),
			...inShort("active", result.live),
		],
	});
	return (
		<p class="design-total">
			exactly{" "}
			<span>
				<NumberButton derive={derive} label="total" data-part="designed">
					{grouped(result.total)}
				</NumberButton>
				{result.live !== result.total && ","}
			</span>
			{result.live !== result.total && (
				<>
					{" "}
					<NumberButton derive={deriveActive} label="active" data-part="live">
						{grouped(result.live)}
					</NumberButton>{" "}
					active for one token
				</>
			)}
		</p>
	);
}

/** The bytes of the cache of some tokens. */
function Cached({
	cache,
	at,
	tokens,
	part,
}: {
	cache: Expression;
	at: Dimensions["values"];
	tokens: bigint;
	part: string;
}) {
	const [none, n] = [0n, tokens].map((T) => value(cache, { ...at, T }));
	const [isOne, isGrowth] = [tokens === 1n, tokens === 1n && none! > 0n];
	const shown = isGrowth ? n! - none! : n!;
	const derive = (): Derivation => ({
		title: !tokens
			? "Recurrent states"
			: isOne
				? "KV cache of a token"
				: `KV cache of ${grouped(tokens)} tokens`,
		lines: [
			expressionLines(cache, { ...at, T: tokens }, n!),
			isGrowth && formula("less the states", `${grouped(n!)} − ${grouped(none!)}`),
			...inShort("bytes", shown, shortBytes(shown)),
		],
	});
	return (
		<NumberButton derive={derive} label={tokens ? "KV cache" : "states"} data-part={part}>
			{shortBytes(shown)}
		</NumberButton>
	);
}

/** The bytes of the weights in 16 bits and of the KV cache. */
function Bytes({
	design,
	result,
	values,
	own,
}: {
	design: Design;
	result: Result;
	values: Dimensions["values"];
	/** The context that the config states. */
	own: bigint | null;
}) {
	const { context } = useAppState("context");
	const weights = 2n * result.total;
	const { form: cache, windows, unknown } = result.cache;
	const at = { ...values, ...windows };
	const [none, many] = [0n, 1n << 20n].map((T) => cache && value(cache, { ...at, T }));
	return (
		<p class="caption" data-part="bytes">
			In 16 bits{" "}
			<NumberButton
				derive={() => ({
					title: "weights in bf16 or fp16",
					lines: [
						formula("2·total", `2·${grouped(result.total)}`, grouped(weights)),
						...inShort("bytes", weights, shortBytes(weights)),
					],
				})}
				label="weights in 16 bits"
			>
				{shortBytes(weights)}
			</NumberButton>{" "}
			of weights;{" "}
			{cache === null ? (
				`what is cached is not known: ${
					unknown.length
						? `it depends on ${unknown.join(", ")}, which this page knows with other values`
						: "llamath counts this family, and knows no forward pass of it"
				}`
			) : none && none === many ? (
				<>
					recurrent states of <Cached cache={cache} at={at} tokens={0n} part="states" />{" "}
					for a sequence, however long
				</>
			) : (
				<>
					KV cache <Cached cache={cache} at={at} tokens={1n} part="cache-per-token" /> per
					token, <Cached cache={cache} at={at} tokens={context} part="cache" /> at{" "}
					{grouped(context)} tokens
					{own !== null && own !== context && (
						<>
							, <Cached cache={cache} at={at} tokens={own} part="cache-full" /> at its
							context of {grouped(own)}
						</>
					)}
					{windowsOf(design, windows).map(([key, n]) => {
						const isOfAll = value(cache, { ...at, T: n }) === many;
						return `, with a window of ${grouped(n)} tokens in ${isOfAll ? "all" : "some"} layers (${key})`;
					})}
				</>
			)}
			.
		</p>
	);
}

function Away({ total, text }: { total: bigint; text: string }) {
	const target = parseCount(text);
	if (!target) return null;
	const difference = total - target;
	const [far, sign] = difference < 0n ? [-difference, "−"] : [difference, "+"];
	const away =
		far * 1000n >= target ? `${sign}${percent(far, target)}` : formatPpm(total, target);
	const derive = (): Derivation => ({
		title: "distance to the target",
		lines: [
			formula(text, grouped(target)),
			formula("total − target", `${grouped(total)} − ${grouped(target)}`, signed(difference)),
			formula(
				"(total − target) / target",
				`${signed(difference)} / ${grouped(target)}`,
				away,
			),
		],
	});
	return (
		<p data-part="away">
			<span class="set">{text}</span> is{" "}
			<NumberButton derive={derive} label="target">
				{grouped(target)}
			</NumberButton>
			:{" "}
			{difference ? (
				<>
					<NumberButton derive={derive} label="difference">
						{signed(difference)}
					</NumberButton>{" "}
					parameters,{" "}
					<NumberButton derive={derive} label="relative difference">
						{away}
					</NumberButton>
				</>
			) : (
				"met exactly"
			)}
		</p>
	);
}

function Parts({
	result,
	values,
	own,
	name,
}: {
	result: Result;
	values: Dimensions["values"];
	own: Result;
	name: string;
}) {
	const parts = result.groups.filter((x) => x.n > 0n);
	let offset = 0;
	return (
		<figure class="design-parts" aria-label="Parameters by component">
			<DesignPicture name={name} now={result.bars} own={own.bars} />
			<svg
				class="data"
				width="100%"
				height="36"
				role="img"
				aria-label={`Parameters by component: ${parts.map((x) => `${modelPart(x.name).name} ${share(x.n, result.total)}`).join(", ")}`}
			>
				{parts.map((x) => {
					const width = Number((x.n * 100_000n) / (result.total || 1n)) / 1000;
					offset += width;
					return (
						<rect
							key={x.name}
							x={`${offset - width}%`}
							y="0"
							width={`${width}%`}
							height="36"
							fill={`var(--c-${modelPart(x.name).color})`}
							stroke="var(--paper)"
						/>
					);
				})}
			</svg>
			<ul class="key">
				{parts.map((x) => (
					<li key={x.name}>
						<i
							class="swatch"
							style={{ background: `var(--c-${modelPart(x.name).color})` }}
						/>{" "}
						{modelPart(x.name).name}{" "}
						<NumberButton
							derive={() => ({
								title: modelPart(x.name).name,
								lines: [
									expressionLines(x.form, values, x.n),
									...inShort(x.name, x.n, everydayCount(x.n)),
									shareFormula(
										x.name,
										x.n,
										result.total,
										share(x.n, result.total),
									),
								],
							})}
							label={modelPart(x.name).name}
						>{`${everydayCount(x.n)} · ${share(x.n, result.total)}`}</NumberButton>
					</li>
				))}
			</ul>
		</figure>
	);
}

/** The sections of the view, by the names that the header has for them. */
const SECTIONS: readonly ChapterLink[] = [
	{ id: "dimensions", name: "Dimensions", parts: [] },
	{ id: "hardware", name: "Hardware", parts: [] },
	{ id: "memory", name: "Memory", parts: [] },
	{ id: "config", name: "config.json", parts: [] },
];
/** More keys that are ignored are not named. */
const MOST_UNREAD = 8;
const OF_SIZES = ["hardware", "memory"];

/** The other keys of the config that the view shows, and the name of its file. */
const keysOfDesign = (like: string, design: Design, keys: string) =>
	keysAt(like, design, keys, data.files as FormatData);

/** The model whose memory the view shows; none where its form does not tell it. */
function sizedDesign(
	like: string,
	design: Design,
	dimensions: Dimensions,
	name: string,
	kept: ReadonlyMap<string, string> | undefined,
) {
	const isShown = !["a", "b"].includes(like);
	const isSound = isShown && !evaluateDesign(design, dimensions, kept).broken.length;
	return isSound ? sizedModel(name, design, dimensions, kept) : null;
}

/** The sections that the view shows now. */
export function designSections(asked: string, sizes: string, keys: string): readonly ChapterLink[] {
	const { like, design } = designedModel(data, asked);
	const { entries } = keysOfDesign(like, design, keys);
	const hasSizes = sizedDesign(like, design, decodeSizes(design, sizes), "", entries) !== null;
	return SECTIONS.filter((x) => hasSizes || !OF_SIZES.includes(x.id));
}

/** A config of another family, whose form is that of some model of it: qwen2 config. */
const configName = ({ type }: Design) => `${type} config`;

export function DesignView() {
	const state = useAppState("like");
	const { like, name, design } = designedModel(data, state.like);
	// of the families one is a choice only while it is the chosen one
	const likes = designedModels(data)
		.filter((x, i) => i < data.models.length || x.like === like)
		.map((x, i) => [x.like, i < data.models.length ? x.name : configName(x.design)] as const);
	const choice = likes.length > 1 && (
		<Segmented
			id="like"
			label="Like"
			options={likes}
			chosen={like}
			choose={(to) => (forgetKeptKeys(), change({ like: to, sizes: "", keys: "" }))}
		/>
	);
	const isOfPage = ["a", "b"].includes(like);
	return (
		<Designer
			key={name}
			design={design}
			name={isOfPage ? name : configName(design)}
			like={name}
			isOfPage={isOfPage}
			choice={choice}
		/>
	);
}

function Designer({
	design,
	name,
	like,
	isOfPage,
	choice,
}: {
	design: Design;
	name: string;
	/** The model with this form. */
	like: string;
	/** Whether it is a model of the page, and not a config of another family. */
	isOfPage: boolean;
	choice: ComponentChildren;
}) {
	const state = useAppState("like", "sizes", "keys", "target");
	const current = decodeSizes(design, state.sizes);
	const { entries: kept, name: opened } = keysOfDesign(state.like, design, state.keys);
	const result = evaluateDesign(design, current, kept);
	const unread = kept ? unreadKeys(kept).map(visible) : [];
	const own = useMemo(
		() => (isOfPage ? evaluateDesign(design, decodeSizes(design, "")) : null),
		[design, isOfPage],
	);
	const first = isOfPage ? "" : opened ? keptKeys.sizes : undefined;
	const isBroken = result.broken.length > 0;
	const set = (to: Partial<Dimensions>, gesture = "") =>
		change({ sizes: encodeSizes({ ...current, ...to }) }, false, gesture);
	const file = opened.replace(/\.json$/i, "") || name;
	const sizedAs = encodeSizes(current);
	const sized = useMemo(
		() => (isOfPage ? null : sizedDesign(state.like, design, current, file, kept)),
		[isOfPage, isBroken, file, design, sizedAs, kept],
	);
	const title = isBroken ? "There is no such model" : `${everydayCount(result.total)} parameters`;
	return (
		<>
			<div class="wrap hero">
				<h1>
					{!isOfPage
						? `Your ${name}: ${everydayCount(result.total)}`
						: kept?.size
							? `${opened || "Your config"}, counted like ${name}`
							: `Design a model like ${name}`}
				</h1>
				<p class="lead">
					Change any dimension: the total follows exactly, by the same expressions as the
					library's.
				</p>
				{!isOfPage && !kept && (
					<p>
						Of a config, this address has the dimensions alone: its other keys, such as
						a window, are taken to be those of {like}.
					</p>
				)}
				{unread.length > 0 && (
					<p>
						Ignored, since no family reads {unread.length > 1 ? "them" : "it"}:{" "}
						{unread.slice(0, MOST_UNREAD).join(", ")}
						{unread.length > MOST_UNREAD &&
							` and ${unread.length - MOST_UNREAD} others`}
					</p>
				)}
				{!isOfPage && (
					<p>
						Its layers, a tour and bounds of its speed are on a page of its own:{" "}
						<code>
							llamath export {shellWord(opened || "config.json")} -o page.html
						</code>
					</p>
				)}
			</div>
			<Section
				id="dimensions"
				topic="Dimensions"
				title={
					isBroken ? (
						title
					) : (
						<NumberButton
							derive={() => ({
								title: "total",
								lines: [
									expressionLines(result.form, current.values, result.total),
									...inShort("total", result.total, everydayCount(result.total)),
								],
							})}
							label="finding"
						>
							{title}
						</NumberButton>
					)
				}
				controls={
					<>
						{choice}
						<Target initial={state.target} />
						{current.tied !== null && (
							<span class="control">
								<input
									id="tied"
									type="checkbox"
									checked={current.tied}
									onChange={(event) => set({ tied: event.currentTarget.checked })}
								/>
								<label class="control-label" for="tied">
									head tied to the embedding
								</label>
							</span>
						)}
						{first !== undefined && (
							<button
								type="button"
								class="button"
								onClick={() => {
									if (isOfPage) forgetKeptKeys();
									change({ sizes: first, ...(isOfPage && { keys: "" }) });
								}}
							>
								Reset to {isOfPage ? name : opened}
							</button>
						)}
					</>
				}
			>
				<div class="designer">
					<div class="made" aria-live="polite">
						{isBroken ? (
							<ul class="broken">
								{result.broken.map((x) => (
									<li key={x}>{x}</li>
								))}
							</ul>
						) : (
							<>
								<Total result={result} values={current.values} />
								<Bytes
									design={design}
									result={result}
									values={current.values}
									own={statedContext(design, kept)}
								/>
								<Away total={result.total} text={state.target} />
							</>
						)}
					</div>
					<div class="dimensions">
						{design.letters.map((x) => (
							<Dimension
								key={x.letter}
								x={x}
								n={current.values[x.letter]!}
								move={(n) =>
									set({ values: { ...current.values, [x.letter]: n } }, x.letter)
								}
							/>
						))}
					</div>
					{!isBroken && (
						<Parts
							result={result}
							values={current.values}
							own={own ?? result}
							name={name}
						/>
					)}
				</div>
				{design.fixed.length > 0 && (
					<p class="caption">
						{design.fixed.join(", ")}: no slider, since the total has no closed form in
						it. <code>llamath count --set KEY=VALUE</code> counts any value.
					</p>
				)}
			</Section>
			{sized && (
				<div class="sized">
					<SettingsBar models={[sized]} />
					<HardwareSection model={sized} />
					<MemorySection models={[sized]} />
					<p class="wrap caption">
						In 16 bits, on GPUs split by tensor parallelism alone; without bounds of the
						speed, which the form does not tell.
					</p>
				</div>
			)}
			<Section
				id="config"
				topic="Configuration"
				title="config.json with these dimensions"
				lead={
					kept?.size
						? `Keys that change no weight are those of ${opened || "the opened config, as far as the address has them"}.`
						: undefined
				}
				controls={
					!isBroken && (
						<>
							<button
								type="button"
								class="button"
								onClick={() => copyText(result.config, "config.json")}
							>
								Copy config.json
							</button>
							<button
								type="button"
								class="button"
								onClick={() =>
									saveFile("config.json", result.config, "application/json")
								}
							>
								Save config.json
							</button>
						</>
					)
				}
			>
				<pre class="formula" tabIndex={0} aria-label="config.json">
					{result.config}
				</pre>
			</Section>
		</>
	);
}
