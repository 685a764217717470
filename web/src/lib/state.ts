// The state of the page, which the URL fragment holds. The URL is untrusted: only valid values are
// accepted.
import { useContext, useLayoutEffect, useState } from "preact/hooks";
import { data, type Setting } from "./data";
import { PlaceOfSection } from "./place";
import { markBusy } from "./turns";

export type State = Record<string, string>;

/** Characters of a text that a model in the page reads. */
export const MAX_TEXT = 2000;
/** Longer addresses are cut. */
const MAX_ADDRESS = 20_000;
const MAX_UINT32 = 2n ** 32n - 1n;

/** A whole number as people type it: 8192, 8,192, 8k (8,192), 128K. Null for anything else. */
export function parseWhole(text: string, max = MAX_UINT32): bigint | null {
	const match = /^([1-9]\d{0,9})(k|m)?$/i.exec(text.replaceAll(/[ ,_]/g, ""));
	if (!match) return null;
	const n =
		BigInt(match[1]!) * ({ k: 1024n, m: 1024n * 1024n }[match[2]?.toLowerCase() ?? ""] ?? 1n);
	return n <= max ? n : null;
}

type Parse = (text: string) => string | null;
const matching =
	(pattern: RegExp): Parse =>
	(text) =>
		pattern.test(text) ? text : null;
const PARSERS: Record<string, Parse> = {
	number: (text) => parseWhole(text)?.toString() ?? null,
	section: matching(/^[a-z][a-z-]{0,30}$/),
	place: matching(/^\d{1,3}$/),
	sizes: matching(/^[A-Za-z]{1,8}\d{1,10}(\.[A-Za-z]{1,8}\d{1,10}){0,31}$/),
	target: matching(/^[\dkmbgte+.,_ ]{1,24}$/i),
	id: matching(/^[\w.~:-]{1,220}$/),
	column: matching(/^-?[a-z_]{1,40}$/),
	columns: matching(/^[a-z_]{1,40}(,[a-z_]{1,40}){0,60}$/),
	words: (text) => text.slice(0, 80),
	text: (text) => text.slice(0, MAX_TEXT),
	whole: matching(/^\d{1,15}$/),
	layer: matching(/^(\d{1,7}|embedding|head|(vision|audio|(audio_)?projector)(\.\d{1,2})?)$/),
	zoom: matching(/^(model|[a-z_\d]{1,40}(\/[a-z_\d.{}]{1,80}(\/\d{1,4})?)?)$/i),
};

const parser = (kind: Setting[2]): Parse =>
	typeof kind === "string" ? PARSERS[kind]! : (text) => (kind.includes(text) ? text : null);
interface Rule {
	initial: string;
	parse: Parse;
}
const rules = new Map<string, Rule>(
	data.settings.map(([name, initial, kind]) => [name, { initial, parse: parser(kind) }]),
);
/** A fragment that names no setting is the id of an element, such as #memory. */
export const isAnchor = (hash: string) => /^#[a-z][a-z-]*$/.test(hash);

export function readState(hash: string): State {
	const params = new URLSearchParams(
		isAnchor(hash) ? "" : hash.replace(/^#/, "").slice(0, MAX_ADDRESS),
	);
	const valueOf = (name: string, { initial, parse }: Rule): string => {
		const given = params.get(name);
		return (given === null ? null : parse(given)) ?? initial;
	};
	return Object.fromEntries([...rules].map(([name, rule]) => [name, valueOf(name, rule)]));
}

export function writeState(state: State): string {
	const params = new URLSearchParams();
	for (const [name, { initial }] of rules)
		if (state[name] !== initial) params.set(name, state[name]!);
	return `#${params}`;
}

/**
 * Settings whose change is a step that Back undoes; others replace the current entry of the
 * history.
 */
const STEPS = new Set(["view", "section", "zoom"]);

export const state: State = readState(location.hash);
const listeners = new Set<() => void>();
const notify = () => listeners.forEach((x) => x());
let waiting: ReturnType<typeof setTimeout> | undefined;
/**
 * Browsers limit how often the address may change, and each change takes milliseconds: it is
 * written when a slider rests.
 */
const REST_MS = 100;

function writeAddress(): void {
	history.replaceState(null, "", writeState(state));
	markBusy("address", false);
}

/** Changes settings; every component that uses the state is drawn again. */
export function change(to: State): void {
	const isStep = Object.keys(to).some((name) => STEPS.has(name) && to[name] !== state[name]);
	Object.assign(state, to);
	clearTimeout(waiting);
	markBusy("address", !isStep);
	if (isStep) history.pushState(null, "", writeState(state));
	else waiting = setTimeout(writeAddress, REST_MS);
	notify();
}

addEventListener("popstate", () => {
	if (isAnchor(location.hash)) return;
	Object.assign(state, readState(location.hash));
	notify();
});

/**
 * Draws the component again when the state changes, or only when one of these settings does;
 * returns the state.
 */
export function useAppState(...names: string[]): State {
	const [, set] = useState({});
	const place = useContext(PlaceOfSection);
	// at once: a change may come before the next frame
	useLayoutEffect(() => {
		const redraw = () => set({});
		const values = () => names.map((name) => state[name]).join("\0");
		let drawn = values();
		const listener = () => {
			if (names.length && values() === drawn) return;
			drawn = values();
			place.draw(redraw);
		};
		listeners.add(listener);
		return () => void listeners.delete(listener);
	}, []);
	return state;
}
