// The parts of a model, as the library groups its weights: their names, and their colours, which
// mean the same in all views.
export interface ModelPart {
	/** The name alone, such as a label. */
	name: string;
	/** The name where there is little room. */
	short: string;
	/** The name in a sentence: "… of the parameters are in the FFN". */
	within: string;
	/** The token of its colour: `--c-NAME` for fills, `--on-NAME` for text on them. */
	color: string;
}

const part = (name: string, within: string, color: string, short = name): ModelPart => ({
	name,
	short,
	within,
	color,
});

const PARTS = new Map(
	Object.entries({
		embedding: part("Embedding", "in the embedding", "embed", "Embed"),
		attention: part("Attention", "in attention", "attn", "Attn"),
		mixer: part("Recurrent mixers", "in recurrent mixers", "attn", "Mixers"),
		mlp: part("FFN", "in the FFN", "ffn"),
		experts: part("Routed experts", "in routed experts", "experts", "Experts"),
		router: part("Router", "in the router", "router"),
		norm: part("Norms", "in norms", "norm"),
		head: part("Head", "in the head", "head"),
		vision: part("Vision encoder", "in the vision encoder", "vision", "Vision"),
		projector: part("Projector", "in the projector", "vision"),
		cache: part("KV cache", "in the KV cache", "kv"),
	}),
);

/** The part of a group of weights; an unknown group keeps its own name. */
export const modelPart = (group: string): ModelPart =>
	PARTS.get(group) ?? part(group === "other" || !group ? "Other" : group, "elsewhere", "norm");

const ORDER = [...PARTS.keys()];
/** The place of a group among the parts; an unknown one is the last. */
export const placeOfPart = (group: string): number =>
	ORDER.includes(group) ? ORDER.indexOf(group) : ORDER.length;

const SHORT_NAMES = new Map([...PARTS.values()].map((x) => [x.name, x.short]));

/** The name of a part where there is little room. */
export const shortName = (name: string): string => SHORT_NAMES.get(name) ?? name;

/** The colours of a layer's parts, from the stream upwards. */
export const STACK_ORDER = [
	"norm",
	"attn",
	"router",
	"ffn",
	"embed",
	"head",
	"vision",
	"kv",
	"experts",
];
