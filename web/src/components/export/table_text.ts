// The tables of a part of the page as text, Markdown and CSV.
export interface CellText {
	text: string;
	isNumber: boolean;
}

export interface TableText {
	title: string;
	rows: CellText[][];
}

const OMITTED = ".hidden, svg, .no-export";

/** What is read of an element: its text without what is written for screen readers only. */
export function visibleText(cell: Element): string {
	const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
	let text = "";
	let last: Element | null = null;
	while (walker.nextNode()) {
		const { parentElement, data } = walker.currentNode as Text & { parentElement: Element };
		if (parentElement.closest(OMITTED)) continue;
		const isApart =
			last && parentElement !== last && getComputedStyle(parentElement).display !== "inline";
		text += (isApart ? " " : "") + data;
		last = parentElement;
	}
	return text.replace(/\s+/g, " ").trim();
}

export function tablesIn(part: Element): TableText[] {
	const isShown = (x: Element) => x.getClientRects().length > 0;
	return [...part.querySelectorAll("table")].filter(isShown).map((table) => {
		const rows = [...table.rows]
			.filter((x) => !x.ariaHidden)
			.map((row) =>
				[...row.cells].flatMap((x): CellText[] => [
					{ text: visibleText(x), isNumber: x.classList.contains("n") },
					...Array.from({ length: x.colSpan - 1 }, () => ({ text: "", isNumber: false })),
				]),
			);
		const columns = [...Array(Math.max(0, ...rows.map((x) => x.length))).keys()].filter((i) =>
			rows.some((x) => x[i]?.text),
		);
		return {
			title: table.caption?.textContent ?? "",
			rows: rows.map((x) => columns.map((i) => x[i] ?? { text: "", isNumber: false })),
		};
	});
}

export function asText(tables: TableText[]): string {
	return tables
		.map(({ title, rows }) => {
			const widths = (rows[0] ?? []).map((_, i) =>
				Math.max(...rows.map((x) => x[i]!.text.length)),
			);
			const lines = rows.map((x) =>
				x
					.map((cell, i) =>
						cell.isNumber
							? cell.text.padStart(widths[i]!)
							: cell.text.padEnd(widths[i]!),
					)
					.join("  ")
					.trimEnd(),
			);
			return [title, ...lines].filter(Boolean).join("\n");
		})
		.join("\n\n");
}

export function asMarkdown(tables: TableText[]): string {
	const escaped = (text: string) =>
		text.replace(/[\\`*|[\]]|<(?=[A-Za-z/!?])|&(?=[#A-Za-z])/g, (y) => `&#${y.charCodeAt(0)};`);
	const cells = (row: CellText[]) => `| ${row.map((x) => escaped(x.text)).join(" | ")} |`;
	return tables
		.map(({ title, rows: [head = [], ...rest] }) =>
			[
				...(title ? [escaped(title), ""] : []),
				cells(head),
				`|${head.map((x) => (x.isNumber ? " ---: " : " --- ")).join("|")}|`,
				...rest.map(cells),
			].join("\n"),
		)
		.join("\n\n");
}

export const csvField = (text: string): string =>
	/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
/** Text that a spreadsheet would take for a formula gets an apostrophe. */
export const csvText = (text: string): string => (/^[=+@\-\t]/.test(text) ? `'${text}` : text);

/** A number without its groups, or text. */
function csvCell(text: string): string {
	const isNumber = /^[−+]?\d{1,3}(,\d{3})*(\.\d+)?$/.test(text);
	return csvField(isNumber ? text.replaceAll(",", "").replace("−", "-") : csvText(text));
}

export const asCsv = (tables: TableText[]): string =>
	tables
		.map(({ rows }) => rows.map((row) => row.map((x) => csvCell(x.text)).join(",")).join("\n"))
		.join("\n\n");
