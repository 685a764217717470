// Diagrams of head groups and experts, drawn one by one up to a limit.
import { texts, value, notation } from "./expressions.js";
import { h, rect, s, svgText } from "./dom.js";
import { numberWithFormula } from "./derivations.js";

const [MAX_GROUPS, MAX_HEADS, MAX_EXPERTS] = [16, 8, 512];
export const count = (form) => Number(value(form, {}));

// A label with its color, letter and number.
function labeledNumber(text, form, color) {
	const [letter, number] = [notation(form, {}, true), notation(form, {}, false)];
	return [color && h(`span.key.${color}`), `${text}${letter === number ? "" : ` (${letter})`} `, numberWithFormula(value(form, {}), text, letter === number ? text : letter)];
}

function figure(caption, label, [width, height], shapes) {
	const picture = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...shapes);
	return h("figure.shared", h("figcaption", caption), picture);
}

export const headRatio = (x) => [true, false].map((letters) => `${notation(x.n, {}, letters)} / ${notation(x.k, {}, letters)}`);

function heads(x, room) {
	const [many, few] = [count(x.n), count(x.k)];
	const each = Math.floor(many / few);
	const numGroups = few > MAX_GROUPS ? MAX_GROUPS / 2 : few;
	const perGroup = Math.min(each, few > MAX_GROUPS / 2 ? MAX_HEADS : room > 500 ? 32 : 12);
	const groupWidth = 38 + 14 * perGroup + (perGroup < each ? 14 : 0);
	const columns = Math.max(1, Math.floor(room / groupWidth));
	const groups = Array.from({ length: numGroups }, (_, i) => {
		const [left, top] = [(i % columns) * groupWidth, Math.floor(i / columns) * 28];
		const circles = Array.from({ length: perGroup }, (_, j) => s("circle.attention.edge", { cx: left + 32 + 14 * j, cy: top + 12, r: 5 }));
		return [rect(left + 0.5, top + 0.5, groupWidth - 9, 23, "ring"), rect(left + 6, top + 6, 12, 12, "embedding edge"), ...circles, svgText(left + 28 + 14 * perGroup, top + 16, perGroup < each ? "…" : "", null)];
	});
	const ratio = numberWithFormula(each, `${x.many} for each of ${x.few}`, ...headRatio(x));
	const rest = ` to each; ${x.says}${numGroups < few ? texts.some : ""}`;
	const size = [room, Math.ceil(numGroups / columns) * 28];
	return figure([...labeledNumber(x.many, x.n, "attention"), "; ", ...labeledNumber(x.few, x.k, "embedding"), ", ", ratio, rest], `${x.many}: ${many}, ${x.few}: ${few}, ${each} to each`, size, groups.flat());
}

function experts(x, room) {
	const [all, chosen] = [count(x.n), count(x.k)];
	const shown = Math.min(all, MAX_EXPERTS);
	const step = all > 64 ? 12 : 18;
	const per = x.groups > 1 ? Math.ceil(all / x.groups) : shown;
	const across = Math.min(per, Math.max(1, Math.floor(room / step)));
	const lines = Math.ceil(per / across);
	const cells = Array.from({ length: shown }, (_, i) => {
		const [column, row] = [(i % per) % across, Math.floor(i / per) * lines + Math.floor((i % per) / across)];
		return rect(column * step + 1, row * step + 1, step - 3, step - 3, i < chosen ? "experts edge thick" : "ring");
	});
	const bottom = Math.ceil(shown / per) * lines * step;
	const rest = [`: ${texts.chosen}${shown < all ? texts.some : ""}`, ...(x.groups > 1 ? ["; ", ...labeledNumber("groups", String(x.groups))] : [])];
	const label = `${all} experts, ${chosen} active per token${x.shared ? ", and a shared one" : ""}`;
	return figure([...labeledNumber("experts", x.n, "experts"), "; ", ...labeledNumber("active per token", x.k), ...rest, x.shared && ["; ", h("span.key.mlp"), texts.shared]], label, [room, bottom + (x.shared ? step + 6 : 2)], [...cells, x.shared && rect(1, bottom + 5, 3 * step - 3, step - 3, "mlp edge")]);
}

export const headSharing = (stage, room) => stage.heads.map((x) => (x.kind === "heads" ? heads(x, room) : experts(x, room)));
