// What the tests call in the page: the same functions by which it computes, with the data and the
// state.
import { data } from "./data";
import { value } from "./expressions";
import { shortBytes } from "./format";
import { readRestated } from "./restated";
import { state, stateWith } from "./state";
import { instantiate, variantOf } from "./template";
import { chosenHardware, customGpu, Fitter, settings, suggestions, verdict } from "./sizing/fit";
import { sizedModel } from "./sizing/form_sizes";
import { memoryPerGpu, sizedIn } from "./sizing/gpu_memory";
import { speedLimits } from "./sizing/speed_limits";
import { decodeSizes, designedModel, evaluateDesign, formatPpm, parseCount } from "./design";
import { isConfig, keptKeys, readConfig } from "./files/config";
import { indexFormats, readHeader } from "./files/headers";
import { FileError } from "./files/strict_json";

Object.assign(globalThis, {
	llamath: {
		data,
		instantiate,
		variantOf,
		readRestated,
		state,
		stateWith,
		value,
		shortBytes,
		settings,
		memoryPerGpu,
		sizedIn,
		sizedModel,
		keptKeys,
		speedLimits,
		Fitter,
		suggestions,
		verdict,
		chosenHardware,
		customGpu,
		evaluateDesign,
		decodeSizes,
		designedModel,
		parseCount,
		formatPpm,
		isConfig,
		readConfig,
		readHeader,
		indexFormats,
		FileError,
	},
});
