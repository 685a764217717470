// The state of the page, which the URL fragment holds. The URL is untrusted: only valid values are
// accepted.
import { useContext, useLayoutEffect, useState } from "preact/hooks";
import { announce } from "../components/status_line";
import { data } from "./data";
import { PlaceOfSection } from "./place";
import { SETTINGS, type Kind, type SettingName, type State } from "./settings";
import { markBusy } from "./turns";

export type { State };

/** Longer addresses are cut. */
const MAX_ADDRESS = 20_000;

interface Rule extends Kind<unknown> {
	name: SettingName;
	initial: string;
	parts: readonly string[];
}
const rules: Rule[] = Object.entries(SETTINGS).map(([key, setting]) => {
	const name = key as SettingName;
	const [initial = setting.initial, values = setting.values] = data.settings[name] ?? [];
	return { ...(setting as Kind<unknown>), name, initial, values, parts: setting.parts };
});

/** The value of a text; undefined if it is not valid. */
const valueOf = ({ parse, values }: Rule, text: string): unknown =>
	!values || values.includes(text) ? parse(text) : undefined;

const readValue = (rule: Rule, text: string | null | undefined): unknown =>
	(text == null ? undefined : valueOf(rule, text)) ?? rule.parse(rule.initial);

/** A whole state of texts; what is not there or not valid has its initial value. */
const stateOf = (texts: { get(name: string): string | null | undefined }): State =>
	Object.fromEntries(rules.map((x) => [x.name, readValue(x, texts.get(x.name))])) as State;

/** A fragment that names no setting is the id of an element, such as #memory. */
export const isAnchor = (hash: string) => /^#[a-z][a-z-]*$/.test(hash);

const readAddress = (hash: string) =>
	new URLSearchParams(isAnchor(hash) ? "" : hash.replace(/^#/, "").slice(0, MAX_ADDRESS));

const readState = (hash: string): State => stateOf(readAddress(hash));

/** The settings as texts. */
export const settingTexts = (of: State) =>
	rules.map((x) => {
		const text = x.format(of[x.name]);
		return { name: x.name, text, isInitial: text === x.initial, parts: x.parts };
	});

/** The present state with other settings, given as texts. */
export const stateWith = (texts: Record<string, string>): State =>
	stateOf(
		new Map([
			...settingTexts(current).map((x): [string, string] => [x.name, x.text]),
			...Object.entries(texts),
		]),
	);

let written: Record<string, string> | null = null;

/** The address of the present state with another section, for the many links to sections. */
export function linkTo(section: string): string {
	if (!written) {
		const changed = settingTexts(current).filter((x) => !x.isInitial && x.name !== "section");
		written = Object.fromEntries(changed.map((x) => [x.name, x.text]));
	}
	return `#${new URLSearchParams(section ? { ...written, section } : written)}`;
}

export function writeState(of: State): string {
	const changed = settingTexts(of).filter((x) => !x.isInitial);
	return `#${new URLSearchParams(changed.map((x) => [x.name, x.text]))}`;
}

/** Settings each of whose changes is a step that Back undoes. */
const STEPS: readonly SettingName[] = [
	"view",
	"section",
	"zoom",
	"layer",
	"edit",
	"sizes",
	"keys",
	"plain",
];
/** Of these, changes of the same ones that follow each other are one step, as of a slider. */
const SIZING = ["memory", "parameters", "layouts"];
const isSizing = (name: SettingName) => SETTINGS[name].parts.some((x) => SIZING.includes(x));
/** The names of those that the last step has changed, or its gesture. */
let lastStep = "";

/** A slider was let go, or a field was left: what moves it next is another step. */
export function endGesture(): void {
	lastStep = "";
}

/** Beginning and ending the tour or the quiz are steps, their stops and answers are not. */
const isTourStep = ({ tour, quiz }: Partial<State>) =>
	(tour !== undefined && (tour === null) !== (state.tour === null)) ||
	(quiz !== undefined && (quiz === "") !== (state.quiz === ""));

/** What a page without an address shows. */
export const initialState: Readonly<State> = readState("");
const current: State = readState(location.hash);
export const state: Readonly<State> = current;
const listeners = new Set<() => void>();
const notify = () => {
	written = null;
	listeners.forEach((x) => x());
};
let waiting: ReturnType<typeof setTimeout> | undefined;
/**
 * Browsers limit how often the address may change, and each change takes milliseconds: it is
 * written when a slider rests.
 */
const REST_MS = 100;

function writeAddress(): void {
	clearTimeout(waiting);
	waiting = undefined;
	history.replaceState(history.state, "", writeState(state));
	markBusy("address", false);
}

/** The entry of the history that is left has the settings of the page. */
function settleAddress(): void {
	if (waiting !== undefined) writeAddress();
}

/** Whether the address says another state than that of the page. */
export const isElsewhere = () =>
	!isAnchor(location.hash) && writeState(readState(location.hash)) !== writeState(state);

/** An entry of the history with the present settings, for what Back undoes and no setting says. */
export function addEntry(name: string): void {
	settleAddress();
	if (history.state !== name) history.pushState(name, "");
}

/**
 * Changes settings; every component that uses the state is drawn again. What `follows` from another
 * change is no step of its own, and the changes of one gesture are one step.
 */
export function change(to: Partial<State>, follows = false, gesture = ""): void {
	const changed = (Object.keys(to) as SettingName[]).filter((name) => to[name] !== state[name]);
	const group = changed.length && gesture ? gesture : changed.filter(isSizing).sort().join();
	const isStep =
		!follows &&
		(isTourStep(to) ||
			(!gesture && changed.some((name) => STEPS.includes(name))) ||
			(group !== "" && group !== lastStep));
	if (isStep) {
		settleAddress();
		lastStep = group;
	}
	for (const name of changed) ofAddress.delete(name);
	Object.assign(current, to);
	clearTimeout(waiting);
	markBusy("address", !isStep);
	if (isStep) history.pushState(null, "", writeState(state));
	else waiting = setTimeout(writeAddress, REST_MS);
	notify();
}

/** The settings that have the values of the address. */
let ofAddress = new Set<string>();
/** What an address asks for in vain is said in so many parts, and so many characters of each. */
const [MOST_SAID, LONGEST_SAID] = [5, 40];

let unknown: [name: string, text: string][] = [];

function sayUnknown(more: [name: string, text: string][]): void {
	if (!more.length) return;
	unknown = [...unknown, ...more].slice(0, MOST_SAID);
	const said = unknown.map(([name, text]) => {
		const known = rules.find((x) => x.name === name)?.values?.filter(Boolean) ?? [];
		const range = known.length > MOST_SAID ? `${known[0]} … ${known.at(-1)}` : known.join(", ");
		return `${`${name}=${text}`.slice(0, LONGEST_SAID)}${range && ` (${range})`}`;
	});
	announce(`Not on this page, and left out of the address: ${said.join("; ")}`);
}

/** Resets settings to what the model has; those that came by the address are named. */
export function dropUnknown(to: Partial<State>): void {
	const names = Object.keys(to) as SettingName[];
	sayUnknown(
		settingTexts(current)
			.filter((x) => names.includes(x.name) && ofAddress.has(x.name))
			.map((x) => [x.name, x.text]),
	);
	change(to, true);
}

/** What the address says and the page does not know is named and removed. */
function cleanAddress(): void {
	const address = [...readAddress(location.hash)];
	ofAddress = new Set(address.map(([name]) => name));
	unknown = [];
	if (!location.hash || isAnchor(location.hash)) return;
	sayUnknown(
		address.filter(([name, text]) => {
			const rule = rules.find((x) => x.name === name);
			return !rule || valueOf(rule, text) === undefined;
		}),
	);
	const known = writeState(state);
	if (`#${new URLSearchParams(location.hash.slice(1))}` !== known)
		history.replaceState(history.state, "", known);
}

cleanAddress();
/** The section before Back, Forward or another address. */
export let sectionBefore = "";
addEventListener("popstate", () => {
	endGesture();
	sectionBefore = state.section;
	if (isAnchor(location.hash)) return;
	Object.assign(current, readState(location.hash));
	cleanAddress();
	notify();
});

/**
 * Draws the component again when one of these settings changes, and returns them; without names,
 * all of them.
 */
export function useAppState(): Readonly<State>;
export function useAppState<Name extends SettingName>(
	...names: Name[]
): Readonly<Pick<State, Name>>;
export function useAppState(...names: SettingName[]): Readonly<State> {
	const [, set] = useState({});
	const place = useContext(PlaceOfSection);
	// at once: a change may come before the next frame
	useLayoutEffect(() => {
		const redraw = () => set({});
		const values = () => names.map((name) => state[name]);
		let drawn = values();
		const listener = () => {
			const now = values();
			if (names.length && now.every((x, i) => x === drawn[i])) return;
			drawn = now;
			place.draw(redraw);
		};
		listeners.add(listener);
		return () => void listeners.delete(listener);
	}, []);
	return state;
}
