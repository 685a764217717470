// The models of the gallery: what is known of each, how they are filtered and sorted, and where
// their pages are.
import { useEffect, useState } from "preact/hooks";
import { data } from "../../lib/data";
import type { Library } from "../../lib/files/open_config";
import { matchWords } from "../../lib/format";
import type { State } from "../../lib/state";
import type { Causes } from "../compare/difference";

/** An exact integer; as text if it is beyond what JSON numbers hold exactly. */
export type Int = number | string;

/** [colour, all parameters, active parameters]. */
export type Part = [string, Int, Int];

export interface Picture {
	before: Part[][];
	kinds: Part[][];
	/** [kind, layers] in order. */
	runs: [number, number][];
	after: Part[][];
}

/** [path, dimensions, copies, colour]. */
export type Shape = [string, Int[], Int, string];

export interface Kin {
	of: string;
	name: string;
	/** Of blocks, rules or sizes, in words. */
	changes: [kind: "block" | "rule" | "size", text: string][];
}

export interface Entry {
	id: string;
	name: string;
	total: Int;
	organization?: string | null;
	family?: string;
	released?: string | null;
	license?: string | null;
	ids?: string[];
	kinds?: string[];
	attention?: string;
	description?: string;
	picture?: Picture;
	shapes?: Shape[];
	/** Blocks and rules that it has, and that some model had first. */
	has?: string[];
	/** The nearest earlier model; null if there is none, or a date is not known. */
	kin?: Kin | null;
	[fact: string]: unknown;
}

interface GalleryData {
	models: Entry[];
	link: string;
	pair_link: string;
	chunks: number;
	hub: boolean;
	/** Why the second model of a pair, `a b`, has another size; of few models alone. */
	causes: Record<string, Causes>;
	/** The address of the script with the closed forms of a static gallery; empty without one. */
	forms: string;
	library?: Library;
	version: string;
}

export const gallery = data as unknown as GalleryData;
export const byId = new Map(gallery.models.map((x) => [x.id, x]));

/** The model with which the next one that is chosen is compared; hub ids are not in the list. */
const HUB = /^hub:[a-z\d][\w.-]{0,95}:[a-z\d][\w.-]{0,95}$/i;
export function comparedName(id: string): string | null {
	return (
		byId.get(id)?.name ?? (gallery.hub && HUB.test(id) ? id.slice(4).replace(":", "/") : null)
	);
}

const fill = (link: string, ids: Record<string, string>) =>
	link.replaceAll(/\{(\w+)\}/g, (_, key: string) => encodeURIComponent(ids[key]!));

/** The address of a model's page; of the comparison, while a first model is chosen. */
export function linkTo(id: string, state: Pick<State, "with">): string {
	const first = state.with;
	return comparedName(first) === null ? fill(gallery.link, { id }) : linkToPair(first, id);
}

export function linkToPair(a: string, b: string): string {
	return gallery.pair_link
		? fill(gallery.pair_link, { a, b })
		: `#${new URLSearchParams({ view: "compare", a, b })}`;
}

/** Whether a model is of the reader, and not of the catalog. */
export const isOwn = (x: Entry) => x.id.startsWith("~");

/** Loads what the server computes while the page is already shown: pictures, then facts. */
export function useRest(): void {
	const [, setChunks] = useState(0);
	useEffect(() => {
		void (async () => {
			for (let i = 0; i < gallery.chunks; i++) {
				const answer = await fetch(`gallery/${i}`).catch(() => null);
				if (!answer?.ok) {
					await new Promise((done) => setTimeout(done, 2000)); // the server is busy: once more, then without these
					continue;
				}
				const { models } = (await answer.json()) as { models: Entry[] };
				for (const x of models) Object.assign(byId.get(x.id) ?? {}, x);
				setChunks(i + 1);
			}
		})();
	}, []);
}

export function number(x: Entry, key: string): number | null {
	const value = x[key];
	return value === null || value === undefined ? null : Number(value);
}

/** A number of parameters as people type it: 8B, 70 b, 1.5T. */
export function parseSize(text: string): number {
	const match = /^\s*(\d+(?:\.\d+)?)\s*([kmbgt]?)\s*$/i.exec(text);
	return match
		? Number(match[1]) *
				{ "": 1, k: 1e3, m: 1e6, b: 1e9, g: 1e9, t: 1e12 }[match[2]!.toLowerCase()]!
		: Infinity;
}

export function filtered(
	state: Pick<State, "find" | "most" | "kind" | "attention" | "organization" | "license">,
): Entry[] {
	const matches = matchWords(state.find);
	const most = parseSize(state.most);
	return gallery.models.filter(
		(x) =>
			matches(
				x.name,
				x.id,
				x.organization ?? "",
				x.family ?? "",
				x.attention ?? "",
				...(x.kinds ?? []),
				...(x.ids ?? []),
			) &&
			(!state.kind || (x.kinds ?? []).includes(state.kind)) &&
			(!state.attention || (x.attention ?? "").split(", ").includes(state.attention)) &&
			(!state.organization || x.organization === state.organization) &&
			(!state.license || x.license === state.license) &&
			Number(x.total) <= most,
	);
}

/** Sorts by a fact, those without it last; models of the launch come first, in their order. */
export function sorted(models: Entry[], sort: string): Entry[] {
	const key = sort.replace(/^-/, "");
	const sign = sort.startsWith("-") ? -1 : 1;
	const place = (x: Entry) => (isOwn(x) ? gallery.models.indexOf(x) : Infinity);
	const compare = (a: unknown, b: unknown): number => {
		if (a == null || a === "" || b == null || b === "")
			return Number(a == null || a === "") - Number(b == null || b === "");
		return (
			sign *
			(typeof a === "number" || typeof b === "number"
				? Number(a) - Number(b)
				: String(a).localeCompare(String(b), "en", { numeric: true, sensitivity: "base" }))
		);
	};
	return models.toSorted(
		(a, b) =>
			(place(a) < place(b) ? -1 : place(a) > place(b) ? 1 : 0) ||
			compare(a[key], b[key]) ||
			a.name.localeCompare(b.name, "en", { numeric: true }),
	);
}

/** The values of a fact that models have, with how many do, most frequent first. */
export function valuesOf(pick: (x: Entry) => (string | null | undefined)[]): [string, number][] {
	const counts = new Map<string, number>();
	for (const x of gallery.models)
		for (const value of new Set(pick(x)))
			if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
	return [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
}
