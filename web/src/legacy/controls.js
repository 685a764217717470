// A whole number as a slider and a text field.
import { texts } from "./expressions.js";
import { h } from "./dom.js";
import { parseWhole } from "./url_state.js";

// A text input and a slider for a whole number; `at` maps the number to a slider position, `from` maps it back.
export function numberInput(id, name, scale, value, move, toPosition = String, toNumber = BigInt) {
	const note = h("span", { id: `${id}-note`, class: "faint", role: "status" });
	const number = h("input", { id, type: "text", inputmode: "numeric", maxlength: "13", value: String(value), "aria-describedby": note.id });
	const range = h("input", { type: "range", ...scale, value: toPosition(value), "aria-label": `${name}, slider` });
	const update = (n) => {
		note.textContent = n ? "" : texts.whole;
		number.setAttribute("aria-invalid", String(!n));
		if (n) move(n);
		return n;
	};
	number.addEventListener("input", () => {
		const n = update(parseWhole(number.value.replaceAll(/[ ,_]/g, "")));
		if (n) range.value = toPosition(n);
	});
	range.addEventListener("input", () => (number.value = String(update(toNumber(range.value)))));
	return [range, number, note];
}
