// A model of the page at other dimensions: what is edited, the model that follows, and what does not.
import { createContext } from "preact";
import { data, templates, type ModelData } from "./data";
import {
	designedModels,
	designOf,
	evaluateDesign,
	type Design,
	type DesignLetter,
	type Dimensions,
} from "./design";
import { value } from "./expressions";
import {
	encodeKeys,
	forgetKeptKeys,
	keepTyped,
	keptKeys,
	keysAt,
	keysNotFollowed,
	ownEntries,
} from "./files/config";
import type { FormatData } from "./files/headers";
import { focusNext } from "./focus_next";
import { grouped } from "./format";
import { parseWhole } from "./settings";
import { change, state } from "./state";
import { readRestated, type StatedWindow } from "./restated";
import { instantiate, lettersFrom, variantOf, type Letters, type Template } from "./template";

/** The model as it is published, where the one that is shown is edited; else null. */
export const Original = createContext<ModelData | null>(null);

/** In the address, whether the head is tied. */
const TIED = "tied";
/** A stack of more layers is counted, not drawn. */
const MAX_DRAWN_LAYERS = 2000n;

export interface Edited {
	/** What the page shows: the model at these dimensions, or at the last ones that make one. */
	model: ModelData;
	original: ModelData;
	design: Design;
	dimensions: Dimensions;
	/** The counts by the family's form, which also knows a tied head. */
	counts: ReturnType<typeof evaluateDesign>;
	isChanged: boolean;
	/** Constraints that the dimensions break. */
	broken: string[];
	/** The numbers of experts that its layers may have in the place of their FFNs; null: none. */
	experts: Letters | null;
	/** The model with them, if that is asked for. */
	mixture: Mixture | null;
	/** The parameters of the model that is asked for. */
	total: bigint;
	/** Whether the cache is that of the original, though an opened config has another one. */
	hasOtherCache: boolean;
	/** Why the page cannot show the model that is asked for, though there is one. */
	unfollowed: string;
	/** Keys that change no dimension and that the page does not follow, with their values. */
	ignored: [key: string, text: string][];
	/** The window, if the page follows it. */
	window: StatedWindow | null;
	/** The texts of other keys than those of dimensions, where they are not the model's own. */
	kept: ReadonlyMap<string, string> | undefined;
	/** The name of the file whose model it is, or empty. */
	opened: string;
}

/** Whether the dimensions of the i-th model can be changed at all. */
export const hasForm = (i: number): boolean => designOf(data.models[i]!).letters.length > 0;

/** Whether a page has what it takes to edit its i-th model. */
export const canEdit = (i: number): boolean => !!templates[i] && hasForm(i);

/** Letters with a key that the config does not give follow from the others until they are set. */
const followsOthers = (design: Design, key: string): boolean =>
	!design.config.find((x) => x.key === key)?.text;

const entriesOf = (text: string): Map<string, string> =>
	new Map([...text.matchAll(/([A-Za-z]+)(\d+)/g)].map((x) => [x[1]!, x[2]!]));

/** The dimensions that a text of the address gives; the others are the model's own, or follow. */
export const editedDimensions = (design: Design, text: string): Dimensions =>
	dimensionsOf(design, entriesOf(text));

function dimensionsOf(design: Design, given: ReadonlyMap<string, string>): Dimensions {
	const values: Record<string, bigint> = {};
	for (const x of design.letters)
		values[x.letter] = parseWhole(given.get(x.letter) ?? "") ?? BigInt(x.value);
	const isMoved = design.letters.some((x) => values[x.letter] !== BigInt(x.value));
	for (const { letter, key, absent } of isMoved ? design.letters : [])
		if (!given.has(letter) && absent.form !== null && followsOthers(design, key))
			values[letter] = value(absent.form, values);
	const tied = given.has(TIED) ? given.get(TIED) === "1" : design.tied;
	return { values, tied: design.tied === null ? null : tied };
}

const isSame = (a: Dimensions, b: Dimensions): boolean =>
	a.tied === b.tied && Object.keys(a.values).every((x) => a.values[x] === b.values[x]);

/** A dense model with experts in the place of each FFN, by the form of another family. */
export interface Mixture {
	like: string;
	design: Design;
	dimensions: Dimensions;
	counts: ReturnType<typeof evaluateDesign>;
	/** How many experts there are, and how many a token passes. */
	experts: Letters;
	numbers: DesignLetter[];
}

const mixtureDesign = (like: string) => designedModels(data).find((x) => x.like === like)?.design;

/** The numbers of experts of what the i-th model would be with some, if a page has that. */
function expertsOf(i: number, { letters }: Design): Letters | null {
	const { mixture, variants } = templates[i]!;
	if (!mixture || !variants.mixture) return null;
	const known = new Set([...letters.map((x) => x.letter), ...Object.keys(mixture.values)]);
	const isKnown = mixtureDesign(mixture.like)?.letters.every((x) => known.has(x.letter));
	return isKnown ? lettersFrom(mixture.values) : null;
}

/** A model with so many experts in the place of each FFN. */
function asMixture(like: string, { values, tied }: Dimensions, experts: Letters): Mixture {
	const design = mixtureDesign(like)!;
	const all: Letters = { ...values, ...experts };
	const dimensions = {
		values: Object.fromEntries(design.letters.map((x) => [x.letter, all[x.letter]!])),
		tied: design.tied === null ? null : (tied ?? false),
	};
	const counts = evaluateDesign(design, dimensions);
	const numbers = design.letters.filter((x) => x.letter in experts);
	return { like, design, dimensions, counts, experts, numbers };
}

/** The numbers of experts that a text of the address asks for; null: it is dense. */
function askedExperts(usual: Letters | null, given: ReadonlyMap<string, string>): Letters | null {
	const asked = Object.keys(usual ?? {}).map((x) => [x, parseWhole(given.get(x) ?? "")] as const);
	return asked.length && asked.every((x) => x[1] !== null)
		? (Object.fromEntries(asked) as Letters)
		: null;
}

/** The text without what the i-th model does not have. */
export function knownSizes(i: number, text: string): string {
	const design = designOf(data.models[i]!);
	const known = [TIED, ...design.letters.map((x) => x.letter)];
	known.push(...Object.keys(expertsOf(i, design) ?? {}));
	return writtenEntries(new Map([...entriesOf(text)].filter(([name]) => known.includes(name))));
}

/** The text with other numbers of experts, or without some. */
export function withExperts(text: string, experts: Letters, isMixture = true): string {
	const given = entriesOf(text);
	for (const [x, n] of Object.entries(experts))
		if (isMixture) given.set(x, String(n));
		else given.delete(x);
	return writtenEntries(given);
}

const writtenEntries = (given: ReadonlyMap<string, string>): string =>
	[...given].map(([name, n]) => `${name}${n}`).join(".");

/** The text without what it says of the model's own dimensions, and of what follows anyway. */
function shortest(design: Design, given: Map<string, string>): string {
	const wanted = dimensionsOf(design, given);
	for (const name of [...given.keys()]) {
		if (name !== TIED && !(name in wanted.values)) continue; // a number of experts
		const without = new Map([...given].filter((x) => x[0] !== name));
		if (isSame(dimensionsOf(design, without), wanted)) given = without;
	}
	return writtenEntries(given);
}

/** The text with other values of some letters, or of `tied`; what was not set goes on following. */
export function withValues(
	design: Design,
	text: string,
	to: Readonly<Record<string, bigint | boolean>>,
): string {
	const given = entriesOf(text);
	for (const [name, n] of Object.entries(to)) given.set(name, String(BigInt(n)));
	return shortest(design, given);
}

/** Encodes all dimensions explicitly. */
export const encodeEdit = (design: Design, { values, tied }: Dimensions): string =>
	withValues(design, "", { ...values, ...(tied !== null && { tied }) });

/** Ends the edit, and forgets the other keys of a config that was opened. */
export function closeEdit(): void {
	forgetKeptKeys();
	change({ edit: "", sizes: "", keys: "", plain: "" });
	focusNext("[data-view=edit]");
}

/** Sets the window of an edited model, which is a key of its config and no dimension. */
export function setWindow({ design, kept, window }: Edited, n: bigint, gesture = ""): void {
	const entries = new Map(kept ?? ownEntries(design)).set(window!.key, String(n));
	keepTyped(state.view === "b" ? "b" : "a", state.sizes, entries);
	change({ keys: encodeKeys(entries, design) }, false, gesture);
}

const lastSound = new Map<number, ModelData>();

const lastEdited = new Map<number, { of: unknown[]; edited: Edited }>();

/** The i-th model of the page at the dimensions, and with the keys, that the address gives. */
export function editedModel(i: number, sizes: string, keys: string): Edited {
	const last = lastEdited.get(i);
	const of = [sizes, keys, keptKeys.entries];
	if (last?.of.every((x, place) => x === of[place])) return last.edited;
	const edited = makeEdited(i, sizes, keys);
	lastEdited.set(i, { of, edited });
	return edited;
}

function makeEdited(i: number, text: string, keys: string): Edited {
	const original = data.models[i]!;
	const design = designOf(original);
	const dimensions = editedDimensions(design, text);
	const { entries: kept, name: opened } = keysAt(
		"ab"[i]!,
		design,
		keys,
		data.files as FormatData,
	);
	const counts = evaluateDesign(design, dimensions, kept);
	const own = editedDimensions(design, "");
	const experts = expertsOf(i, design);
	const asked = askedExperts(experts, entriesOf(text));
	const mixture = asked ? asMixture(templates[i]!.mixture!.like, dimensions, asked) : null;
	const shown = mixture ?? { counts, dimensions };
	const zero = [...design.letters, ...(mixture?.numbers ?? [])].filter(
		(x) => !shown.dimensions.values[x.letter],
	);
	const broken = [...shown.counts.broken, ...zero.map((x) => `${x.key} would be 0`)];
	const isOtherHead = dimensions.tied !== own.tied;
	const isChanged = !isSame(dimensions, own) || mixture !== null;
	const ownKeys = new Map(design.config.map((x) => [x.key, x.text]));
	const restated = readRestated(original, ownKeys, kept ?? ownKeys);
	const isFollowed = (key: string) => restated.keys.has(key);
	const hasOtherCache = counts.cache.unknown.some((key) => !isFollowed(key));
	const { window } = restated;
	const ignored = kept ? keysNotFollowed(kept, design).filter(([key]) => !isFollowed(key)) : [];
	const edited = {
		...{ original, design, dimensions, counts, isChanged, broken, hasOtherCache, ignored },
		...{ experts, mixture, opened, window, kept, total: shown.counts.total },
	};
	const made = (template: Template, letters: Letters) => {
		const model = instantiate(template, { ...letters, ...restated.letters });
		return restated.apply(model, opened);
	};
	if (!isChanged) {
		lastSound.delete(i);
		return { ...edited, model: made(templates[i]!, {}), unfollowed: "" };
	}
	if (broken.length) return { ...edited, model: lastSound.get(i) ?? original, unfollowed: "" };
	try {
		if ((dimensions.values.L ?? 0n) > MAX_DRAWN_LAYERS)
			throw new Error(`at most ${grouped(MAX_DRAWN_LAYERS)} layers are drawn`);
		const template = templateOf(templates[i]!, isOtherHead, mixture !== null);
		const known = knownLetters(template, design, dimensions);
		const model = made(template, { ...known, ...mixture?.experts });
		lastSound.set(i, model);
		return { ...edited, model, unfollowed: "" };
	} catch (error) {
		return { ...edited, model: original, unfollowed: (error as Error).message };
	}
}

function templateOf(own: Template, isOtherHead: boolean, isMixture: boolean): Template {
	if (isOtherHead && isMixture) throw new Error("a mixture keeps the head of its dense model");
	const found = isOtherHead
		? variantOf(own, "head")
		: isMixture
			? variantOf(own, "mixture")
			: own;
	if (!found) throw new Error("they have its head");
	return found;
}

/** The values of the template's letters; one that it does not follow may not change. */
function knownLetters({ own: letters, fixed }: Template, design: Design, now: Dimensions): Letters {
	const own = editedDimensions(design, "").values;
	const unknown = design.letters.find(
		({ letter }) =>
			now.values[letter] !== own[letter] && (!(letter in letters) || fixed.includes(letter)),
	);
	if (unknown) throw new Error(`a page does not follow ${unknown.key}`);
	return Object.fromEntries(Object.entries(now.values).filter(([letter]) => letter in letters));
}
