// The columns of the table, which are also the rows of a comparison and the axes of the plot.
import { csvField, csvText } from "../../components/export/table_text";
import { grouped, shortBytes, shortFileSize, shortTokens, threeDigits } from "../../lib/format";
import type { Entry, Int } from "./entries";

export interface Column {
	key: string;
	name: string;
	isNumber: boolean;
	/** Whether it is shown before columns are chosen. */
	isInitial: boolean;
	show: (value: unknown, x: Entry) => string;
}

const COUNT_UNITS: [number, string][] = [
	[1e12, "T"],
	[1e9, "B"],
	[1e6, "M"],
	[1e3, "K"],
];
/** A count to three digits: 8.03B, 671B. */
export function count(value: Int): string {
	const n = Number(value);
	const [unit, letter] = COUNT_UNITS.find((x) => n >= x[0] * 0.9995) ?? [1, ""];
	return letter
		? `${(n / unit).toFixed(n / unit < 9.995 ? 2 : n / unit < 99.95 ? 1 : 0)}${letter}`
		: String(n);
}
const FLOP_UNITS: [number, string][] = [
	[1e15, "P"],
	[1e12, "T"],
	[1e9, "G"],
	[1e6, "M"],
];
export const flops = (value: Int): string => {
	const [unit, letter] = FLOP_UNITS.find((x) => Number(value) >= x[0]) ?? [1, ""];
	return `${threeDigits(Number(value) / unit)} ${letter}FLOPs`;
};
const text = (value: unknown): string => String(value);
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
export const month = (value: string): string =>
	`${MONTHS[Number(value.slice(5, 7)) - 1]} ${value.slice(0, 4)}`;

type Row = [
	key: string,
	name: string,
	show: (value: never, x: Entry) => string,
	isInitial?: boolean,
];
const NUMBERS: Row[] = [
	["total", "Parameters", count, true],
	["active", "Active", count, true],
	["embeddingless", "Without embeddings", count],
	["layers", "Layers", grouped, true],
	["width", "Hidden size", grouped],
	["heads", "Heads", grouped],
	["kv_heads", "KV heads", grouped],
	["head_dim", "Head dim", grouped],
	["window", "Window", shortTokens as (x: Int) => string],
	["ffn", "FFN size", grouped],
	["experts", "Experts", grouped, true],
	["active_experts", "Active experts", grouped],
	["shared_experts", "Shared experts", grouped],
	["expert_width", "Expert FFN size", grouped],
	["context", "Context", shortTokens as (x: Int) => string, true],
	["vocabulary", "Vocabulary", grouped],
	["kv", "KV per token", shortBytes as (x: Int) => string, true],
	["kv_full", "KV at full context", shortBytes as (x: Int) => string],
	["flops", "FLOPs per token", flops],
	["flops_full", "FLOPs at full context", flops],
	["bf16", "bf16", shortFileSize],
	["fp8", "fp8", shortFileSize],
	["four_bits", "4 bits", shortFileSize],
];
const TEXTS: Row[] = [
	["organization", "Organization", text, true],
	["released", "Released", month, true],
	["kinds", "Kind", (x: string[]) => x.map((y) => (y === "moe" ? "MoE" : y)).join(", "), true],
	["attention", "Attention", text, true],
	["pattern", "Pattern", text],
	["positions", "Positions", text],
	["activation", "Activation", text],
	["released_dtype", "Released as", text],
	["runs_on", "Runs on", text],
	["license", "License", text, true],
	["family", "Family", text],
	["id", "Id", text],
];
const ORDER =
	"total active organization released kinds attention pattern layers width heads kv_heads head_dim window positions ffn activation experts active_experts shared_experts expert_width context vocabulary kv kv_full flops flops_full embeddingless bf16 fp8 four_bits released_dtype runs_on license family id".split(
		" ",
	);

const made = new Map(
	[...NUMBERS.map((x) => [true, x] as const), ...TEXTS.map((x) => [false, x] as const)].map(
		([isNumber, [key, name, show, isInitial]]): [string, Column] => [
			key,
			{ key, name, isNumber, isInitial: Boolean(isInitial), show: show as Column["show"] },
		],
	),
);
export const COLUMNS: Column[] = ORDER.map((key) => made.get(key)!);
export const columnOf = (key: string): Column | undefined => made.get(key);

export function shown(x: Entry, column: Column): string {
	const value = x[column.key];
	return value === null || value === undefined || value === "" ? "" : column.show(value, x);
}

const ON_PHONES: readonly string[] = ["total", "active"];

/** The columns that are named, else the initial ones: the first two on a phone. */
export function chosenColumns(columns: string, isPhone: boolean): Column[] {
	const keys = new Set(columns.split(",").filter(Boolean));
	return COLUMNS.filter((x) =>
		columns ? keys.has(x.key) : isPhone ? ON_PHONES.includes(x.key) : x.isInitial,
	);
}

/** Values as they are, exact; a text that a spreadsheet would read as a formula is quoted. */
export function toCsv(models: Entry[], columns: Column[]): string {
	const cell = (value: unknown): string => {
		const written =
			value === null || value === undefined
				? ""
				: Array.isArray(value)
					? value.join(" ")
					: String(value);
		return csvField(typeof value === "string" ? csvText(written) : written);
	};
	const lines = [
		["name", ...columns.map((x) => x.key)],
		...models.map((x) => [x.name, ...columns.map((y) => x[y.key])]),
	];
	return lines.map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}
