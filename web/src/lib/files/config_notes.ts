// Notes on the lines of a config as it is typed.
import type { Design, Dimensions } from "../design";
import { value } from "../expressions";
import { grouped } from "../format";
import { matchConfig, neutralKeys, parseConfigText } from "./config";
import type { FormatData } from "./headers";
import { FileError } from "./strict_json";

/** A config longer than this is opened as a file, not typed. */
export const MAX_TYPED = 65_536;

export interface LineNote {
	/** From 0; the first one where the whole text is meant. */
	line: number;
	text: string;
}

export interface TypedConfig {
	/** The dimensions, if the text is a config of this design. */
	dimensions: Dimensions | null;
	/** Its keys that change no weight. */
	others: ReadonlyMap<string, string>;
	notes: LineNote[];
}

/** The line of a key at any depth; the first line for one that is missing. */
function lineOfKey(text: string, key: string): number {
	const at = text.indexOf(JSON.stringify(key));
	return at < 0 ? 0 : lineAt(text, at);
}

const lineAt = (text: string, at: number) => text.slice(0, at).split("\n").length - 1;

const lineOf = (text: string, { place }: FileError) =>
	place === null ? 0 : typeof place === "number" ? lineAt(text, place) : lineOfKey(text, place);

/** Reads a config as it is typed. */
export function readTyped(
	text: string,
	design: Design,
	name: string,
	files: FormatData,
): TypedConfig {
	try {
		if (text.length > MAX_TYPED)
			throw new FileError(`more than ${grouped(MAX_TYPED)} characters`);
		const config = parseConfigText(text, files);
		const { dimensions } = matchConfig(config, [{ name, design }], files);
		return {
			dimensions,
			others: neutralKeys(config, design, files.nothing),
			notes: brokenRules(text, design, dimensions),
		};
	} catch (error) {
		if (!(error instanceof FileError)) throw error;
		const notes = [error, ...error.others].map((x) => ({
			line: lineOf(text, x),
			text: x.inLine || x.message,
		}));
		return { dimensions: null, others: new Map(), notes };
	}
}

/** The constraints that dimensions break, each at the line of the first key that it names. */
export function brokenRules(text: string, design: Design, { values }: Dimensions): LineNote[] {
	return design.rules
		.filter((x) => value(x.form, values) > value(x.most.form, values))
		.map((x) => ({ line: lineOfKey(text, x.says.split(" ")[0]!), text: x.says }));
}
