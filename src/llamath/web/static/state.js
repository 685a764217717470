// What the page shows, in its address. The address is anybody's: only values that are possible are taken from it.
const MOST = 2n ** 32n - 1n;

export function whole(text, most = MOST) {
  if (!/^[1-9]\d{0,9}$/.test(text)) return null;
  const n = BigInt(text);
  return n <= most ? n : null;
}

// name → [what it is at first, a function that takes a text from outside and gives a value or null]
export function possible(data) {
  const one = (list) => (text) => (list.includes(text) ? text : null);
  const sizes = data.models.map((x) => x.sizes);
  const names = (key) => [...new Set(sizes.flatMap((x) => x[key].map((y) => y.name ?? y.count)))];
  const views = ["a", ...(data.models.length > 1 ? ["b", "difference"] : [])];
  return {
    view: [views.at(-1) === "difference" ? "difference" : "a", one(views)],
    context: [sizes[0].own, (text) => whole(text)?.toString() ?? null],
    batch: ["1", (text) => whole(text)?.toString() ?? null],
    dtype: ["", one(names("dtypes"))],
    kv: ["", one(names("kvs"))],
    gpus: ["1", one(names("gpus"))],
    map: ["parameters", one(["parameters", "bytes", "flops", "cache"])],
    focus: ["", (text) => (/^\d{1,3}$/.test(text) ? text : null)],
    names: ["path", one(["path", "hf", "meta", "gguf"])],
    sort: ["", one(["path", "each", "total"])],
    find: ["", (text) => text.slice(0, 80)],
    theme: ["", one(["light", "dark"])],
  };
}

export function read(hash, known) {
  const found = {};
  const given = new URLSearchParams(hash.replace(/^#/, "").slice(0, 2000));
  for (const [name, [first, take]] of Object.entries(known)) {
    const text = given.get(name);
    found[name] = (text === null ? null : take(text)) ?? first;
  }
  return found;
}

export function write(state, known) {
  const said = new URLSearchParams();
  for (const [name, [first]] of Object.entries(known)) if (state[name] !== first) said.set(name, state[name]);
  const text = said.toString();
  return text ? `#${text}` : "#";
}
