// Memory of each GPU for inference or training, evaluated from the expressions that Python sent.
import { approximate, value } from "./expressions.js";

const INFERENCE_PARTS = ["weights", "cache", "activations", "logits", "overhead"];
const TRAINING_PARTS = ["weights", "gradients", "master", "optimizer", "activations", "logits", "overhead"];

export const MAX_CONTEXT = 2n ** 32n;

const findNamed = (list, name, key = "name") => list.find((x) => x[key] === name) ?? list[0];
const integers = (texts) => Object.fromEntries(Object.entries(texts).map(([name, n]) => [name, BigInt(n)]));
const line = (what, form) => [{ what, form, says: "" }];

function inferencePlan({ sizes, dtype, split, variables }) {
	const stages = split.stages.map((x) => ({
		where: x.where,
		sums: x.sums,
		lines: {
			weights: line("weights", x.weights[dtype.name]),
			cache: x.cache,
			activations: line("activations", x.activations),
			logits: line("logits", x.logits),
			overhead: line("overhead", x.overhead),
		},
	}));
	const label = split.count === "1" ? "one GPU" : `${split.count} GPUs, ${split.layout}`;
	return { mode: "run", parts: INFERENCE_PARTS, stages, variables, label, gpus: split.count };
}

function trainingPlan({ sizes }, state) {
	const training = sizes.training;
	const chosen = Object.fromEntries(training.choices.map((x) => [x.name, findNamed(x.options, state[x.name], 0)[0]]));
	const gpus = training.gpus.includes(state.trainers) ? state.trainers : "1";
	const ranks = training.ranks.filter((x) => Number(x) <= Number(gpus));
	const tp = ranks.includes(state.tp) ? state.tp : "1";
	const staticForms = training.static[chosen.precision][tp];
	const activationForms = training.moving[`${training.kept[chosen.precision]} ${chosen.attention} ${chosen.kernels}`];
	const lines = { ...staticForms, optimizer: staticForms.optimizer[chosen.optimizer], activations: activationForms[chosen.recompute], logits: activationForms.logits };
	const dp = String(Number(gpus) / Number(tp));
	const shardedOver = Object.entries(training.zero).map(([name, stage]) => [name, Number(chosen.zero) >= Number(stage) ? dp : "1"]);
	const variables = integers({ T: state.context, B: state.batch, TP: tp, ...Object.fromEntries(shardedOver) });
	const label = gpus === "1" ? "one GPU" : `each of ${gpus} GPUs, TP ${tp} × DP ${dp}, ZeRO-${chosen.zero}`;
	return { mode: "train", parts: TRAINING_PARTS, stages: [{ where: "", lines }], variables, label, gpus, ranks, tp, chosen, tokens: training.tokens };
}

export function settings(model, state) {
	const { sizes } = model;
	const dtype = findNamed(sizes.dtypes, state.dtype);
	const kv = sizes.kvs.find((x) => x.name === state.kv) ?? findNamed(sizes.kvs, sizes.kv);
	const splits = sizes.gpus.filter((x) => x.count === state.gpus);
	const split = findNamed(splits.length ? splits : sizes.gpus, state.tp, "tp");
	const variables = integers({ T: state.context, B: state.batch, TP: split.tp, ...dtype.variables, ...kv.variables, ...split.read[dtype.name] });
	const set = { sizes, dtype, kv, split, variables };
	return { ...set, plan: state.mode === "train" ? trainingPlan(set, state) : inferencePlan(set) };
}

function stageMemory(plan, stage, variables, evaluate) {
	const result = { ...variables };
	const zero = evaluate === value ? 0n : 0;
	if (plan.tokens) result.T = evaluate(plan.tokens, variables);
	let total = zero;
	for (const part of plan.parts) {
		result[part] = stage.lines[part].reduce((sum, x) => sum + evaluate(x.form, result), zero);
		total += result[part];
	}
	return { ...result, total, stage };
}

// Memory of a GPU in each pipeline stage, and the most loaded one.
export function memoryPerGpu({ plan }, context = plan.variables.T) {
	const shares = plan.stages.map((x) => stageMemory(plan, x, { ...plan.variables, T: context }, value));
	return { shares, mostLoaded: shares.reduce((a, x) => (x.total > a.total ? x : a)) };
}

// The memory of the most loaded GPU as a float function of the context, for plots and initial guesses.
export function approximateMemory({ plan }) {
	const variables = Object.fromEntries(Object.entries(plan.variables).map(([name, n]) => [name, Number(n)]));
	return (context) => Math.max(...plan.stages.map((x) => stageMemory(plan, x, { ...variables, T: context }, approximate).total));
}

// The longest context that fits: 0n if none does, null if any does. Exact bisection around an initial guess.
export function longestContext(set, memory, guess) {
	const fits = (n) => memoryPerGpu(set, n).mostLoaded.total <= memory;
	let [low, high] = [BigInt(Math.max(Math.floor(guess), 1)), 0n];
	for (let step = 1n; !fits(low); step *= 8n) {
		if (low === 1n) return 0n;
		[high, low] = [low, low > step ? low - step : 1n];
	}
	for (let step = 1n; !high; step *= 8n) {
		if (low >= MAX_CONTEXT) return null;
		if (fits(low + step)) low += step;
		else high = low + step;
	}
	while (high - low > 1n) {
		const middle = (low + high) / 2n;
		if (fits(middle)) low = middle;
		else high = middle;
	}
	return low;
}
