// Links between pages of the server: another model, or a comparison with a second one.
import { h } from "./dom.js";

// The URL of the page of one model or two; `up` is the relative path to the server's root.
export const pageUrl = (up, ids) => `${up}${ids.length > 1 ? "models" : "model"}/${ids.map(encodeURIComponent).join("/")}`;

export function pageLinks(served) {
	if (!served) return null;
	const { up, ids } = served;
	const link = (to, text) => h("a", { href: to }, text);
	const one = ids.length === 1 ? link(`${up}choose#${new URLSearchParams({ with: ids[0] })}`, "Compare with…") : link(pageUrl(up, ids.toReversed()), "Swap models");
	return h("nav", { "aria-label": "other models" }, link(`${up}choose`, "Another model"), one);
}
