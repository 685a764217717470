// Forms from Python, evaluated and written in whole numbers; see web/forms.py.
const KINDS = {
  "+": (xs) => xs.reduce((a, b) => a + b, 0n),
  "*": (xs) => xs.reduce((a, b) => a * b, 1n),
  min: (xs) => xs.reduce((a, b) => (b < a ? b : a)),
  max: (xs) => xs.reduce((a, b) => (b > a ? b : a)),
  floor: ([a, b]) => a / b,
  ceil: ([a, b]) => (a + b - 1n) / b,
};

export function value(form, variables) {
  if (typeof form === "string") return /^-?\d+$/.test(form) ? BigInt(form) : variables[form];
  if (form[0] === "let") return BigInt(form[2]);
  return KINDS[form[0]](form.slice(1).map((x) => value(x, variables)));
}

// The form with letters, or with numbers in their place.
export function written(form, variables, letters, inside = "") {
  if (typeof form === "string") {
    const plain = /^-?\d+$/.test(form);
    return plain ? grouped(BigInt(form)) : letters ? form : grouped(variables[form]);
  }
  const [kind, ...parts] = form;
  if (kind === "let") return letters ? parts[0] : grouped(BigInt(parts[1]));
  const said = (x) => written(x, variables, letters, kind);
  if (kind === "ceil" && value(parts[1], variables) === 1n) return written(parts[0], variables, letters, inside);
  if (kind === "floor") return `⌊${said(parts[0])} / ${said(parts[1])}⌋`;
  if (kind === "ceil") return `⌈${said(parts[0])} / ${said(parts[1])}⌉`;
  if (kind === "min" || kind === "max") return `${kind}(${parts.map(said).join(", ")})`;
  const text = parts.map(said).join(kind === "+" ? " + " : "·");
  return (kind === "+" && inside === "*") || (kind === "+" && (inside === "floor" || inside === "ceil")) ? `(${text})` : text;
}

export function grouped(n) {
  const text = String(n < 0n ? -n : n).replace(/\B(?=(\d{3})+$)/g, ",");
  return n < 0n ? `−${text}` : text;
}

export function signed(n) {
  return n > 0n ? `+${grouped(n)}` : grouped(n);
}

// The largest number from 1 to `most` that fits; 0n: none, null: every one.
export function largest(fits, most) {
  if (!fits(1n)) return 0n;
  let low = 1n;
  let high = 2n;
  while (fits(high)) {
    if (high >= most) return null;
    [low, high] = [high, 2n * high];
  }
  while (high - low > 1n) {
    const middle = (low + high) / 2n;
    if (fits(middle)) low = middle;
    else high = middle;
  }
  return low;
}

// n over a unit to two decimals, halves away from zero.
export function over(n, unit) {
  const hundredths = (n * 200n + unit) / (2n * unit);
  return `${grouped(hundredths / 100n)}.${String(hundredths % 100n).padStart(2, "0")}`;
}

export const gigabytes = (n) => `${over(n, 10n ** 9n)} GB`;
export const gibibytes = (n) => `${over(n, 2n ** 30n)} GiB`;

export function percent(n, whole) {
  if (!whole) return "–";
  return n > 0n && n * 20_000n < whole ? "<0.01%" : `${over(n * 100n, whole)}%`;
}

export function short(n) {
  for (const [power, letter] of [[12n, "T"], [9n, "B"], [6n, "M"], [3n, "K"]]) {
    if (n >= 10n ** power) return `${over(n, 10n ** power)}${letter}`;
  }
  return grouped(n);
}
