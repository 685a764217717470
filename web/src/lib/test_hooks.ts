// What the tests call in the page: the same functions by which it computes, with the data and the state.
import { data } from "./data";
import { value } from "./expressions";
import { state } from "./state";
// @ts-ignore: not typed
import { memoryPerGpu, settings } from "../legacy/gpu_memory.js";
// @ts-ignore: not typed
import { speedLimits } from "../legacy/speed.js";
// @ts-ignore: not typed
import { decodeSizes, evaluateDesign, formatPpm, parseCount } from "../legacy/design.js";
// @ts-ignore: not typed
import { isConfig, readConfig } from "../legacy/dropped_file.js";
// @ts-ignore: not typed
import { indexFormats, readHeader } from "../legacy/file_headers.js";
// @ts-ignore: not typed
import { FileError } from "../legacy/strict_json.js";

Object.assign(globalThis, {
	llamath: { data, state, value, settings, memoryPerGpu, speedLimits, evaluateDesign, decodeSizes, parseCount, formatPpm, isConfig, readConfig, readHeader, indexFormats, FileError },
});
