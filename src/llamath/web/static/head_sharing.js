// Diagrams of head groups and experts, drawn one by one up to a limit.
import { texts, value, written } from "./forms.js";
import { h, rect, s, svgText } from "./dom.js";
import { numberWithFormula } from "./derivations.js";

const [GROUPS, EACH, CELLS] = [16, 8, 512];
export const count = (form) => Number(value(form, {}));

// A label with its color, letter and number.
function fact(text, form, color) {
	const [letter, number] = [written(form, {}, true), written(form, {}, false)];
	return [color && h(`span.key.${color}`), `${text}${letter === number ? "" : ` (${letter})`} `, numberWithFormula(value(form, {}), text, letter === number ? text : letter)];
}

function figure(caption, label, [width, height], shapes) {
	const picture = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...shapes);
	return h("figure.shared", h("figcaption", caption), picture);
}

export const headRatio = (x) => [true, false].map((letters) => `${written(x.n, {}, letters)} / ${written(x.k, {}, letters)}`);

function heads(x, room) {
	const [many, few] = [count(x.n), count(x.k)];
	const each = Math.floor(many / few);
	const shown = few > GROUPS ? GROUPS / 2 : few;
	const inside = Math.min(each, few > GROUPS / 2 ? EACH : room > 500 ? 32 : 12);
	const wide = 38 + 14 * inside + (inside < each ? 14 : 0);
	const across = Math.max(1, Math.floor(room / wide));
	const groups = Array.from({ length: shown }, (_, i) => {
		const [left, top] = [(i % across) * wide, Math.floor(i / across) * 28];
		const circles = Array.from({ length: inside }, (_, j) => s("circle.attention.edge", { cx: left + 32 + 14 * j, cy: top + 12, r: 5 }));
		return [rect(left + 0.5, top + 0.5, wide - 9, 23, "ring"), rect(left + 6, top + 6, 12, 12, "embedding edge"), ...circles, svgText(left + 28 + 14 * inside, top + 16, inside < each ? "…" : "", null)];
	});
	const [all, own] = [x.many, x.few];
	const ratio = numberWithFormula(each, `${x.many} for each of ${x.few}`, ...headRatio(x));
	const rest = ` to each; ${x.says}${shown < few ? texts.some : ""}`;
	const size = [room, Math.ceil(shown / across) * 28];
	return figure([...fact(all, x.n, "attention"), "; ", ...fact(own, x.k, "embedding"), ", ", ratio, rest], `${all}: ${many}, ${own}: ${few}, ${each} to each`, size, groups.flat());
}

function experts(x, room) {
	const [all, chosen] = [count(x.n), count(x.k)];
	const shown = Math.min(all, CELLS);
	const step = all > 64 ? 12 : 18;
	const per = x.groups > 1 ? Math.ceil(all / x.groups) : shown;
	const across = Math.min(per, Math.max(1, Math.floor(room / step)));
	const lines = Math.ceil(per / across);
	const cells = Array.from({ length: shown }, (_, i) => {
		const [column, row] = [(i % per) % across, Math.floor(i / per) * lines + Math.floor((i % per) / across)];
		return rect(column * step + 1, row * step + 1, step - 3, step - 3, i < chosen ? "experts edge thick" : "ring");
	});
	const bottom = Math.ceil(shown / per) * lines * step;
	const rest = [`: ${texts.chosen}${shown < all ? texts.some : ""}`, ...(x.groups > 1 ? ["; ", ...fact("groups", String(x.groups))] : [])];
	const label = `${all} experts, ${chosen} active per token${x.shared ? ", and a shared one" : ""}`;
	return figure([...fact("experts", x.n, "experts"), "; ", ...fact("active per token", x.k), ...rest, x.shared && ["; ", h("span.key.mlp"), texts.shared]], label, [room, bottom + (x.shared ? step + 6 : 2)], [...cells, x.shared && rect(1, bottom + 5, 3 * step - 3, step - 3, "mlp edge")]);
}

export const headSharing = (stage, room) => stage.heads.map((x) => (x.kind === "heads" ? heads(x, room) : experts(x, room)));
