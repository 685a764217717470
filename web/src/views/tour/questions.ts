// What the tour asks at a stop: the parameters that it adds, and the numbers, FLOPs and cached bytes
// of its steps. The answers are expressions of the page's data.
import type { ModelData } from "../../lib/data";
import { notation, sumOf, value, type Expression } from "../../lib/expressions";
import { grouped } from "../../lib/format";
import { stageAt, stagesOf, type Step } from "../plate/plate_model";
import type { TourStop } from "./tour_stops";

type Mistake = [number: bigint, says: string];
export interface Question {
	name: string;
	text: string;
	answer: bigint;
	/** In letters. */
	symbols: string;
	mistakes: Mistake[];
}

/** The tokens of a question about scores. */
const TOKENS = 1000n;
const AT = { B: 1n, T: TOKENS };
const BF16_BYTES = 2;

const wholeOf = (text: string) => BigInt(text.replaceAll(",", ""));
const isLayer = (stop: TourStop) => /^\d+$/.test(stop.place);
const grows = (x: Expression, name: string) => JSON.stringify(x).includes(`"${name}"`);
const ofTokens = (x: Expression) => grows(x, "T");
const isVariable = (x: Expression) => ofTokens(x) || grows(x, "B");

/** What an answer may name: the letters of the legend, and T where it has a value. */
export const lettersOf = (model: ModelData): Record<string, bigint> => ({
	...Object.fromEntries(model.letters.map((x) => [x.letter, BigInt(x.value)])),
	T: TOKENS,
});

function namesOf(steps: Step[]): string {
	const names = steps.map((x) => x.name.split(".").at(-1)!);
	const last = names.pop() ?? "";
	return names.length ? `${names.join(", ")} and ${last}` : last;
}

/** A product without factors that are one here, and with what a name of several terms stands for. */
function without(names: readonly string[], x: Expression): Expression {
	if (typeof x !== "object") return x;
	const [name, ...parts] = x;
	if (name === "as") return without(names, parts[1]!);
	const kept = name === "*" ? parts.filter((y) => !names.includes(y as string)) : parts;
	return [name, ...kept.map((y) => without(names, y))];
}

/** The steps of the stop, in the stage that shows it. */
function stepsOf(model: ModelData, stop: TourStop, pass: string): Step[] {
	const stages = stagesOf(model, pass);
	const stage = isLayer(stop)
		? stageAt(stages, Number(stop.place))
		: stages.find((x) => x.name === stop.place);
	return stop.steps.flatMap((name) => stage?.steps.find((x) => x.name === name) ?? []);
}

function countQuestion(model: ModelData, stop: TourStop): Question[] {
	const answer = wholeOf(stop.adds);
	if (!answer) return [];
	const { L: layers = 1n } = lettersOf(model);
	const mistakes: Mistake[] = [
		[wholeOf(stop.so_far), "this is the count of all stops up to this one"],
	];
	if (isLayer(stop) && answer % layers === 0n)
		mistakes.push([answer / layers, `this is one layer of ${grouped(layers)}`]);
	return [
		{
			name: "parameters",
			text: "How many parameters does this add?",
			answer,
			symbols: stop.symbols,
			mistakes,
		},
	];
}

/** Of scores, one for each pair of tokens; of other results, what one token has. */
function shapeQuestion(model: ModelData, stop: TourStop): Question[] {
	const step = stepsOf(model, stop, "prompt").find((x) => x.shape.some((y) => !isVariable(y)));
	if (!step) return [];
	const isOfPairs = step.shape.filter(ofTokens).length > 1;
	const sides = step.shape.filter((x) => x !== "B" && (isOfPairs || !isVariable(x)));
	const form: Expression = ["*", ...sides];
	const answer = value(form, AT);
	const { H: heads = 1n, V: vocabulary = 1n } = lettersOf(model);
	const name = namesOf([step]);
	return [
		{
			name: "shape",
			text: isOfPairs
				? `How many numbers are in ${name} of one layer, for T = ${grouped(TOKENS)} tokens?`
				: `How many numbers are in ${name} for each token?`,
			answer,
			symbols: notation(form, {}, true),
			mistakes: isOfPairs
				? [
						[TOKENS * TOKENS, "this is one head, and each has its own"],
						[answer / TOKENS, "this is one query, and each of the T tokens has one"],
					]
				: [
						[
							answer * vocabulary,
							"this is the whole table; a token reads one of its rows",
						],
						[answer / heads, "this is one head"],
						[answer * TOKENS, "these are T tokens"],
					],
		},
	];
}

function flopsQuestion(model: ModelData, stop: TourStop): Question[] {
	const steps = stepsOf(model, stop, "next").filter((x) => x.flops !== 0);
	if (!steps.length) return [];
	const isOfContext = steps.some((x) => x.kind !== "linear");
	const form = without(["B"], sumOf(steps.map((x) => x.flops)));
	const answer = value(form, AT);
	const where = isLayer(stop) ? " in one layer" : "";
	return [
		{
			name: "flops",
			text: isOfContext
				? `How many FLOPs are spent on ${namesOf(steps)} for token T = ${grouped(TOKENS)}${where}?`
				: `How many FLOPs are spent on the products with ${namesOf(steps)} for a token${where}?`,
			answer,
			symbols: notation(form, {}, true),
			mistakes: [
				[answer / 2n, "a multiplication and an addition are two FLOPs"],
				[answer * TOKENS, "these are T tokens"],
			],
		},
	];
}

function cacheQuestion(model: ModelData, stop: TourStop): Question[] {
	const kept = stepsOf(model, stop, "next").filter((x) => x.keeps !== 0);
	if (!kept.length) return [];
	const form: Expression = [
		"*",
		BF16_BYTES,
		without(["B", "T"], sumOf(kept.map((x) => x.keeps))),
	];
	const answer = value(form, AT);
	const { H: heads = 1n, K: kv = 1n, L: layers = 1n } = lettersOf(model);
	const both = `${namesOf(kept)} are kept, two bytes a number`;
	return [
		{
			name: "cache",
			text: "How many bytes does one layer cache for each token, in bf16?",
			answer,
			symbols: notation(form, {}, true),
			mistakes: [
				[answer / 2n, both],
				[answer / 4n, both],
				[(answer / kv) * heads, `only the ${grouped(kv)} KV heads are kept`],
				[answer * layers, `these are all ${grouped(layers)} layers`],
			],
		},
	];
}

export function questionsOf(model: ModelData, stop: TourStop): Question[] {
	const cached = cacheQuestion(model, stop);
	return [
		...countQuestion(model, stop),
		...cached,
		...(cached.length ? [] : shapeQuestion(model, stop)),
		...flopsQuestion(model, stop),
	];
}
