// The page's data, as src/llamath/web/page_data writes it: exact integers as decimal text, each
// with its derivation.
import type { PackedForms } from "./design";
import type { Expression } from "./expressions";
import { readData } from "./read_data";
import type { SettingName } from "./settings";
import { instantiate, type Template } from "./template";

/** Integers of any size as decimal text. */
export type Digits = string;

export interface Letter {
	letter: string;
	value: Digits;
	of: string[];
	says: string;
	key: string;
	from: string;
}

export interface Count {
	name: string;
	value: Digits;
	everyday: string;
	says: string;
	symbols: string;
	numbers: string;
}

export interface MemoryLine {
	what: string;
	says: string;
	form: Expression;
}

export interface ModelData {
	name: string;
	family: string;
	source: string;
	notes: string[];
	everyday: string;
	counts: Count[];
	letters: Letter[];
	groups: { name: string; parameters: Digits }[];
	// Each view types what it reads of the rest.
	[part: string]: unknown;
}

export interface Served {
	up: string;
	ids: string[];
}

export interface PageData {
	models: ModelData[];
	/** The forms of all families, each with a model. */
	known?: PackedForms;
	/** Initial values and, where the data decide them, all values of settings. */
	settings: Partial<Record<SettingName, [initial: string, values?: string[]]>>;
	difference: unknown;
	version: string;
	served?: Served;
	words: {
		letters: Record<string, string>;
		symbols: Record<string, Expression>;
		[name: string]: unknown;
	};
	[part: string]: unknown;
}

const read = (await readData()) as PageData;
/** The models as templates in their letters; null for one that is none. */
export const templates: readonly (Template | null)[] = (read.models ?? []).map((x) =>
	"forms" in x ? (x as Template) : null,
);
export const data: PageData = {
	...read,
	models: read.models.map((x, i) => (templates[i] ? instantiate(templates[i]) : x)),
};
