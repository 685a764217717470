// The result of verifying a checkpoint; each check opens its findings.
import { texts } from "./expressions.js";
import { faint, formula, h, numberButton, path, row, scrollRegion, table } from "./dom.js";

function finding(x) {
	return h("div", h("p", x.says), faint(x.hint), x.tensors && h("pre", { tabindex: "0", "aria-label": "tensors" }, x.tensors));
}

function dataTable([head, ...rows]) {
	const lines = rows.map(([name, ...rest]) => row(path(name), ...rest.map((x) => [x])));
	return scrollRegion(head.join(", "), table(null, [head[0], ...head.slice(1).map((x) => [x])], lines));
}

function checkItem(x) {
	const details = () => [`${x.what}: ${x.ok ? "ok" : "findings"}`, x.of.map((y) => formula(...y)), x.findings.length ? x.findings.map(finding) : texts.nothing, x.table && dataTable(x.table)];
	const mark = h("span", { class: x.ok ? "good" : "bad", "aria-hidden": "true" }, x.ok ? "✓" : "✗");
	return h("li", mark, " ", numberButton(x.what, details, { "data-verdict": x.what }), ` ${x.says}`);
}

export function checkpointStatus({ checkpoint }) {
	if (!checkpoint) return null;
	return h("div.checkpoint", h("p", h("strong", texts.checkpoint[Number(checkpoint.ok)]), " ", numberButton(checkpoint.says, () => ["contents of its files", checkpoint.of.map((x) => formula(...x))]), "."), h("ul", { "aria-label": "verdicts" }, checkpoint.verdicts.map(checkItem)));
}
