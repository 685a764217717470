// Links of a page that a server shows: another model, a second one beside it.
import { h } from "./dom.js";

// Where the page of one model or two lies; `up` leads from here to the server's first page.
export const address = (up, ids) => `${up}${ids.length > 1 ? "models" : "model"}/${ids.map(encodeURIComponent).join("/")}`;

export function others(served) {
	if (!served) return null;
	const { up, ids } = served;
	const link = (to, text) => h("a", { href: to }, text);
	const one = ids.length === 1 ? link(`${up}choose#${new URLSearchParams({ with: ids[0] })}`, "Compare with…") : link(address(up, ids.toReversed()), "The other way round");
	return h("nav", { "aria-label": "other models" }, link(`${up}choose`, "Another model"), one);
}
