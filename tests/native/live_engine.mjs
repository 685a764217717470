// Runs web/src/live/engine.ts beside the native engine: `node live_engine.mjs FOLDER`, for
// test_live_engine.py. It bundles the script, and writes the numbers that it computes.
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [folder] = process.argv.slice(2);
const live = join(import.meta.dirname, "../../web/src/live");
const { build } = createRequire(join(live, "engine.ts"))("esbuild");
const { outputFiles } = await build({
  entryPoints: [join(live, "engine.ts")],
  bundle: true,
  format: "esm",
  write: false,
});
const code = Buffer.from(outputFiles[0].contents).toString("base64");
const { Engine, EngineError, EngineTrap } = await import(
  `data:text/javascript;base64,${code}`
);

const { ids, weights, names } = JSON.parse(
  readFileSync(join(folder, "task.json"), "utf8"),
);
const stored = readFileSync(join(folder, "weights.bin"));
const program = readFileSync(join(folder, "program.bin"));
const module = await WebAssembly.compile(
  readFileSync(join(live, "../../../src/llamath/web/static/engine.wasm")),
);
const source = (path) => {
  const [type, first, last] = weights[path];
  return { type, bytes: stored.subarray(first, last) };
};
const refused = (use, kind = EngineError) => {
  try {
    use();
  } catch (error) {
    if (error.constructor === kind) return error.message;
    throw error;
  }
  throw new Error("nothing was refused");
};
const load = async (bytes, of = source) => {
  try {
    await Engine.load(module, bytes, of);
  } catch (error) {
    if (error instanceof EngineError) return error.message;
    throw error;
  }
  throw new Error("nothing was refused");
};

const engine = await Engine.load(module, program, source);
const logits = [...engine.forward(ids, { all: true })];
const values = Object.fromEntries(
  engine.names.map((x) => {
    const { shape, data } = engine.values(x);
    return [x, [[...shape], [...data]]];
  }),
);
const messages = {
  id: refused(() => engine.forward([1 << 20])),
  none: refused(() => engine.forward([])),
  step: refused(() => engine.values("layers.9.attn.q")),
  truncate: refused(() => engine.truncate(ids.length + 1)),
  missing: await load(program, () => undefined),
  short: await load(program, (path) => ({
    type: "F32",
    bytes: source(path).bytes,
  })),
  dtype: await load(program, (path) => ({
    type: "F64",
    bytes: source(path).bytes,
  })),
  program: await load(program.subarray(0, -1)),
};
engine.truncate(0);
const steps = ids.flatMap((x) => [...engine.forward([x])]);
const again = [...engine.forward(ids.slice(2), { position: 2, all: true })];
const next = engine.sample(0.5);

// a trap in the module: the engine says so, and a new instance goes on
const { instantiate } = WebAssembly;
WebAssembly.instantiate = async (...given) => {
  const { exports } = await instantiate.call(WebAssembly, ...given);
  const trap = () => {
    throw new WebAssembly.RuntimeError("unreachable");
  };
  return { exports: { ...exports, live_forward: trap } };
};
const trapped = await Engine.load(module, program, source);
WebAssembly.instantiate = instantiate;
messages.trap = refused(() => trapped.forward(ids), EngineTrap);
messages.stopped = refused(() => trapped.length, EngineTrap);
await trapped.restart();
const restarted = [...trapped.forward(ids, { all: true })];

const sizes = {
  vocab: engine.vocab,
  length: engine.length,
  memory: engine.memoryBytes,
};
writeFileSync(
  join(folder, "found.json"),
  JSON.stringify({
    names,
    logits,
    values,
    steps,
    again,
    next,
    restarted,
    messages,
    sizes,
  }),
);
