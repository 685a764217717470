// What `verify` says of a checkpoint: a word for each thing that it looks at, which opens what was found.
import { faint, h, numeral, path, row, scrolled, table } from "./dom.js";

function finding(x) {
	return h("div", h("p", x.says), faint(x.hint), x.tensors && h("pre", { tabindex: "0", "aria-label": "tensors" }, x.tensors));
}

function listed([head, ...rows]) {
	const lines = rows.map(([name, ...rest]) => row(path(name), ...rest.map((x) => [x])));
	return scrolled(head.join(", "), table(null, [head[0], ...head.slice(1).map((x) => [x])], lines));
}

function verdict(x) {
	const tell = () => [`${x.what}: ${x.ok ? "in order" : "not in order"}`, x.findings.length ? x.findings.map(finding) : "Nothing was found that contradicts the configuration.", x.table && listed(x.table)];
	const mark = h("span", { class: x.ok ? "good" : "bad", "aria-hidden": "true" }, x.ok ? "✓" : "✗");
	return h("li", mark, " ", numeral(x.what, tell, { "data-verdict": x.what }), ` ${x.says}`);
}

export function checkpoint({ checkpoint: found }) {
	if (!found) return null;
	const whole = found.ok ? "whole: its files are what the configuration says" : "not what its configuration says";
	return h("div", { class: "checkpoint" }, h("p", h("strong", `The checkpoint is ${whole}.`), ` ${found.says}.`), h("ul", { "aria-label": "verdicts" }, found.verdicts.map(verdict)));
}
