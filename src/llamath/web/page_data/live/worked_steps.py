"""`worked_steps`: stops of the tour in numbers of a model small enough to follow by hand.

Its numbers are those of a pass with torch; a test compares them, and writes them anew.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import exp, log1p, sqrt, tanh
from pathlib import Path
from typing import Any

from ....analysis.learn.tour.stop_places import OTHER
from ....analysis.learn.tour.tour import Stop
from ....utils.number_marks import own_text
from .example_numbers import TEMPERATURES, degrees, list_numbers, percent, short, softmax

_SHOWN = 4
"""The most numbers of a row."""
WORKED_FILE = Path(__file__).with_name("worked_steps.json")
_BESIDE_FORMULA = {"gate_up", "norm", "post_norm", "state", "positions", "mixer_out"}
"""Stops whose title does not say what is computed."""
_RULES = {"scores": ("tanh", "+"), "logits": ("tanh",), "embedding": ("√d",)}
"""What of a formula makes the numbers others."""
_BIASES = r" \+ (?:b_\w+|A_\w+ A_\w+ x)"
_SAYS = {
    "embedding": "the row of the token's id, which is 3",
    "positions": "the row of its position is added to the row of its id",
    "norm": "what is left of x when its size is divided out, and times the weight",
    "post_norm": "what the branch returns, before it is added",
    "biases": "the first of these matrices",
    "qk_norm": "the first head of q, and of k",
    "compress": "kv_down makes c, two numbers, and four more that RoPE turns for the key; only "
    "these are cached",
    "expand": "every head makes its own key and value of the same two numbers c",
    "shared": "the shared expert reads the same x as the chosen ones, and both results are added",
    "next_layer": "what the branch returns is added to the stream that it has read",
    "parallel": "x already has the result of attention; that of the FFN is added to it",
    "cache": "one row for each token so far; the next token adds a row, and reads those that the "
    "mask leaves",
    "mixer_in": "each matrix reads the same x",
    "conv": "each channel mixes its number of this token with that of the token before",
    "mixer_out": "what was read from the state, on its way back into the stream",
    "attention_gate": "each number that the heads have read is multiplied by one between 0 and 1",
    "gate_up": "each number by itself",
    "down": "back to the four numbers of the stream",
    "attention_out": "the heads' results, mixed",
    OTHER: "its steps, one after the other",
    "qkv": "the first head of each",
    "indexer": "short queries and keys; the keys with the largest products are read",
    "per_layer": "the token's second, narrow row",
    "logits": "one logit for each of four tokens",
}

Table = Mapping[str, Any]
Rows = Iterator[Sequence[str]]


def leaf(name: str) -> str:
    """Return the last part of a step's name."""
    return name.rpartition(".")[2]


def kind_of(stop: Stop) -> str:
    """Return what is computed at a stop, without dimensions."""
    title = own_text(stop.title).partition(",")[0]
    pairs = "of neighbors" if "neighboring" in stop.what else ""
    beside = own_text(stop.formula) if stop.name in _BESIDE_FORMULA else ""
    rule = own_text(stop.what).partition("chosen:")[2] if stop.name == "router" else ""
    if stop.name in _RULES:
        rule = " ".join(x for x in _RULES[stop.name] if x in stop.formula)
    says = re.sub(_BIASES, "", f"{title} {pairs} {beside} {rule}").replace("swish", "silu")
    return re.sub(r"[\d.,]+", "", says).strip()


def worked_steps(stops: Sequence[Stop], model_type: str) -> dict[str, Table]:
    """Return the tables of stops at which the same is computed: of the model that has most of them,
    one of the same type if several have, else with the same first word, else with the steps that
    are most like a stop's own; of what it lacks, those of another.
    """
    fits: dict[str, dict[str, tuple[int, int]]] = {}
    for stop in stops:
        own = {leaf(x) for x in stop.steps}
        for model, worked in _worked().items():
            found = worked.get(stop.name)
            if found is not None and found["kind"] == kind_of(stop):
                fits.setdefault(stop.name, {})[model] = (
                    _kinship(worked["type"], model_type),
                    -len(own ^ set(found["steps"].split())),
                )
    count, likeness = Counter[str](), Counter[str]()
    kinship: dict[str, int] = {}
    for of_stop in fits.values():
        for model, (kin, like) in of_stop.items():
            count[model] += 1
            likeness[model] += like
            kinship[model] = kin
    best = max(count, key=lambda x: (count[x], kinship[x], likeness[x]), default="")
    chosen = {
        name: best if best in of_stop else max(of_stop, key=lambda x: of_stop[x])
        for name, of_stop in fits.items()
    }
    return {name: _table(model, name, _worked()[model][name]) for name, model in chosen.items()}


def _kinship(a: str, b: str) -> int:
    """Return 2 of one model type, 1 of types with one first word (gemma2, gemma3_text), else 0."""
    first, other = (re.split("[^a-z]", x, maxsplit=1)[0] for x in (a, b))
    return 2 if a == b else int(first == other)


@cache
def _worked() -> Mapping[str, Mapping[str, Any]]:
    """Return the type of each small model, and its numbers by stop."""
    found: Mapping[str, Mapping[str, Any]] = json.loads(WORKED_FILE.read_text(encoding="utf-8"))
    return found


def _table(model: str, stop: str, found: Mapping[str, Any]) -> Table:
    kept = found.get("recorded")
    columns: Sequence[str]
    if kept is None:
        rows = _named(found)
        longest = max((x for _, x in rows), key=len)
        cells: Iterable[Sequence[str]] = [
            (name, *map(short, x[:_SHOWN]), *_more(x)) for name, x in rows
        ]
        says = _SAYS.get(stop, "")
        columns = [*_places(longest[:_SHOWN]), *[""] * len(_more(longest))]
    elif stop == "state":
        says, columns, cells = _STATES[kept["scan"]](kept)
    else:
        make = _MADE.get(stop, _head)
        says, columns, cells = make(kept)
        says = says or _HEADS["chunk" if kept.get("chunk") else stop].format_map(kept)
    return {
        "in": f"a tiny {model} of width 4",
        "layer": found.get("layer"),
        "says": says,
        "columns": columns,
        "rows": [list(x) for x in cells],
        "product": _product(found["product"]) if "product" in found else "",
    }


def _more(numbers: Sequence[float]) -> Sequence[str]:
    return ("…",) if len(numbers) > _SHOWN else ()


def _named(found: Mapping[str, Any]) -> Sequence[tuple[str, Sequence[float]]]:
    """Return the rows by the letters of the stop's formula: what is gated is y, what a product
    reads is x, and what a result is added to the stream.
    """
    rows, product = list(found["rows"]), found.get("product")
    gated = next((i for i, (x, _) in enumerate(rows) if x.startswith(("norm · ", "x · "))), None)
    if gated is None:
        return rows
    name, numbers = rows[gated]
    if name.startswith("x · "):
        return [*rows[:gated], (f"y{name.removeprefix('x')}", numbers), *rows[gated + 1 :]]
    rows[gated] = (f"y = {name}", numbers)
    named = [(_LATER.get(x, x), y) for x, y in rows]
    if product is not None and product["in"] == "x":
        return [("x, normed", product["x"]), *named]
    return named


_LATER = {"out = W product": "out = W y", "x": "stream"}


def _product(x: Mapping[str, Any]) -> str:
    terms = (f"{_sign(w)}{abs(w):g}·{_factor(y)}" for w, y in zip(x["row"], x["x"], strict=True))
    bias = f" {_sign(x['bias'])}{abs(x['bias']):g}" if x["bias"] else ""
    written = re.sub("^([+−]) ", lambda m: "−" if m[1] == "−" else "", " ".join(terms))
    return f"{x['of']}[0] = {written}{bias} = {short(x['y'])}"


def _sign(x: float) -> str:
    return "− " if x < 0 else "+ "


def _factor(x: float) -> str:
    return f"({short(x)})" if short(x).startswith("−") else short(x)


Part = tuple[str, Sequence[str], Iterable[Sequence[str]]]


def _router(x: Mapping[str, Any]) -> Part:
    logits, scoring, correction = x["logits"], x["scoring"], x["correction"]
    scores = softmax(logits) if scoring == "softmax" else [_SCORES[scoring](y) for y in logits]
    ranked = [a + b for a, b in zip(scores, correction, strict=True)] if correction else scores
    weights = dict(zip(x["chosen"], x["weights"], strict=True))
    says = [f"{scoring} makes a score of each logit"]
    if correction:
        says.append("a learned bias is added for the choice only")
    if x["groups"]:
        count, kept = x["groups"]
        says.append(
            f"of {count} groups of {len(logits) // count} experts, the best {kept} take part"
        )
    shares = ", divided by their sum" if x["normed"] else ""
    factor = f", times {x['factor']:g}" if x["factor"] != 1 else ""
    chosen = " and ".join(f"{e}" for e in sorted(weights))
    says.append(f"experts {chosen} win, and their scores{shares}{factor}, are their weights")
    rows = (
        (
            f"{e}",
            short(logits[e]),
            short(scores[e]),
            *([short(ranked[e])] if correction else ()),
            short(weights[e]) if e in weights else "–",
        )
        for e in range(len(logits))
    )
    with_bias = ["with bias"] if correction else []
    return "; ".join(says), ["expert", "logit", scoring, *with_bias, "weight"], rows


_SCORES = {
    "sigmoid": lambda x: 1 / (1 + exp(-x)),
    "sqrtsoftplus": lambda x: sqrt(log1p(exp(x))),
}


def _experts(x: Mapping[str, Any]) -> Part:
    each = x["each"]
    total = " + ".join(f"{short(w)}·{_expert(e)}" for e, w, _ in each)

    def rows() -> Rows:
        yield "x", *map(short, x["x"])
        for e, _, y in each:
            yield f"{_expert(e)}(x)", *map(short, y)
        yield f"y = {total}", *map(short, x["sum"])

    says = "each chosen expert reads x by itself; y is their sum, each times the router's weight"
    return says, _places(x["x"]), rows()


def _expert(e: int) -> str:
    return f"expert{e}"


def _places(numbers: Sequence[float]) -> list[str]:
    return ["", *(f"[{i}]" for i in range(len(numbers)))]


def _scaled(x: Mapping[str, Any], products: Sequence[float]) -> list[float]:
    return [y * (x["scale"] or 1 / sqrt(x["dim"])) for y in products]


def _capped(scores: Sequence[float], cap: float | None) -> list[float]:
    return [cap * tanh(y / cap) for y in scores] if cap else list(scores)


def _scores(x: Mapping[str, Any]) -> Part:
    """Return the keys of a head with the parts of their scores, and the shares if no later stop
    changes them.
    """
    cap, parts, factor = x["softcap"], x["parts"], x["scale"]
    is_root = not factor or abs(factor * sqrt(x["dim"]) - 1) < 1e-6
    scaled = _scaled(x, x["products"])
    scores = _capped(scaled, cap)
    names = ["without position", "with RoPE"] if len(parts) > 1 else []
    columns = ["key of", *names, "q·k", f"/ √{x['dim']}" if is_root else f"× {factor:.3g}"]
    columns += [f"capped at ±{cap:g}"] if cap else []

    is_last = all(x[y] is None for y in ("slope", "sink", "window", "chunk"))
    shares = _shares(x, x["products"]) if is_last else []

    def rows() -> Rows:
        for i, product in enumerate(x["products"]):
            own = [y[i] for y in parts] if names else []
            numbers = (*own, product, scaled[i], *([scores[i]] if cap else ()))
            yield f"token {i}", *map(short, numbers), *shares[i : i + 1]

    says = "the first head of the last token"
    says += "; q·k is the sum of two products" if names else ""
    return says, [*columns, *(["softmax"] if is_last else ())], rows()


def _head(x: Mapping[str, Any]) -> Part:
    """Return the keys of a head with their scores and shares."""
    slope, sink = x["slope"], x["sink"]
    scores = _capped(_scaled(x, x["products"]), x["softcap"])
    shares = _shares(x, x["products"])
    columns = ["key of", "score", *(["distance", "lowered"] if slope else ()), "share"]

    def rows() -> Rows:
        for i, score in enumerate(scores):
            n = len(scores) - 1 - i
            far = (f"{n}", short(score - slope * n)) if slope else ()
            yield f"token {i}", short(score), *far, shares[i]
        if sink is not None:
            yield "sink", short(sink), shares[-1]

    return "", columns, rows()


def _shares(x: Mapping[str, Any], products: Sequence[float]) -> list[str]:
    """Return what a query reads of each key, and the share of the sink if there is one."""
    window, chunk, sink = x["window"], x["chunk"], x["sink"]
    last = len(products) - 1
    scores = _capped(_scaled(x, products), x["softcap"])
    lowered = [y - (x["slope"] or 0) * (last - i) for i, y in enumerate(scores)]
    first = last // chunk * chunk if chunk else 0
    seen = [i >= first and (window is None or last - i < window) for i in range(last + 1)]
    kept = [y for y, is_seen in zip(lowered, seen, strict=True) if is_seen]
    shares = iter(softmax([*kept, sink] if sink is not None else kept))
    found = [percent(next(shares)) if is_seen else "masked" for is_seen in seen]
    return [*found, *map(percent, shares)]


def _softmax(x: Mapping[str, Any]) -> Part:
    """Return what each token reads."""
    tokens = [f"token {i}" for i in range(len(x["rows"]))]

    def rows() -> Rows:
        for token, products in zip(tokens, x["rows"], strict=True):
            shares = _shares(x, products)[: len(products)]
            yield token, *shares, *["masked"] * (len(tokens) - len(products))

    return "the first head: what a row reads", ["", *tokens], rows()


def _mix(x: Mapping[str, Any]) -> Part:
    """Return the values of a head with their shares, and their sum."""
    shares = _shares(x, x["products"])

    def rows() -> Rows:
        for i, value in enumerate(x["values"]):
            yield f"token {i}", shares[i], *map(short, value)
        yield "all: y", "", *map(short, x["y"])

    columns = ["value of", "share", *(f"[{i}]" for i in range(len(x["y"])))]
    return "the first head", columns, rows()


def _rope(x: Mapping[str, Any]) -> Part:
    pairs = ((f"{i}, {k}", degrees(angle), *map(list_numbers, y)) for i, k, angle, *y in x["pairs"])
    scaled = f", scaled by {x['scaling']}" if x["scaling"] else ""
    turned = turned_by(x["position"], x["theta"], x["dim"])
    return f"the first head: pairs of q, {turned}{scaled}", ROPE_COLUMNS, pairs


def turned_by(position: int, theta: float, dim: int) -> str:
    """Return by which angles channels are turned, in the numbers of their own formula."""
    return (
        f"turned by position {position}, with θ = {theta:,.10g} over {dim} channels, whole turns "
        "left out"
    )


ROPE_COLUMNS = ("channels", "angle", "before", "after")


def _token(x: Mapping[str, Any]) -> Part:
    rows = ((f"token {i}", str(y)) for i, y in enumerate(x["ids"]))
    return "three tokens of a vocabulary of four", ("token", "id"), rows


def _next_token(x: Mapping[str, Any]) -> Part:
    shares = [softmax([y / t for y in x["logits"]]) for t in TEMPERATURES]
    rows = ((f"id {i}", *(percent(y[i]) for y in shares)) for i in range(len(x["logits"])))
    columns = ("next", *(f"temperature {t:g}" for t in TEMPERATURES))
    return "softmax(logits / temperature)", columns, rows


_MADE = {
    "token": _token,
    "rope": _rope,
    "router": _router,
    "experts": _experts,
    "scores": _scores,
    "softmax": _softmax,
    "mix": _mix,
    "next_token": _next_token,
}


_HEADS = {
    "alibi": "the first head, whose slope is {slope:g}: a score loses that for each token between",
    "sinks": "the sink takes its share, and has no value to hand over",
    "window": "a window of {window}: older keys have no share",
    "chunk": "chunks of {chunk} tokens: this one begins a chunk, and reads itself alone",
    "no_positions": "a score depends on the two vectors alone; at any distance it would be the "
    "same",
}


def _matrix_rows(name: str, state: Sequence[Sequence[float]]) -> Sequence[str]:
    return (name, *map(list_numbers, state))


_STATE_COLUMNS = ("", "S[0]", "S[1]")


def _delta(x: Mapping[str, Any]) -> Part:
    before, after, k, q, v, beta = (x[y] for y in ("before", "after", "k", "q", "v", "beta"))
    decays = [exp(y) for y in (x["g"] if isinstance(x["g"], list) else [x["g"]] * len(k))]
    faded = [[a * y for y in row] for a, row in zip(decays, before, strict=True)]
    held = [sum(a * row[j] for a, row in zip(k, faded, strict=True)) for j in range(len(v))]
    new = [beta * (a - b) for a, b in zip(v, held, strict=True)]

    def rows() -> Rows:
        yield _matrix_rows("S before", before)
        yield "e^g", *map(short, decays)
        yield _matrix_rows("e^g S", faded)
        yield "k", *map(short, k)
        yield "Sᵀk: held for k", list_numbers(held), ""
        yield "v", list_numbers(v), ""
        yield f"u = {short(beta)}·(v − Sᵀk)", list_numbers(new), ""
        yield _matrix_rows("S + k ⊗ u", after)
        yield "q", *map(short, q)
        yield "y = Sᵀq", list_numbers(x["y"]), ""

    says = (
        "one head with a state of 2 × 2: it fades, what it holds for k is replaced by v in part "
        f"(β = {short(beta)}), and q reads it"
    )
    return says, _STATE_COLUMNS, rows()


def _linear(x: Mapping[str, Any]) -> Part:
    def rows() -> Rows:
        yield _matrix_rows("S before", x["before"])
        yield "k", *map(short, x["k"])
        yield "v", list_numbers(x["v"]), ""
        yield _matrix_rows("S faded + k ⊗ v", x["after"])
        yield "q", *map(short, x["q"])
        yield "y = Sᵀq", list_numbers(x["y"]), ""

    says = "one head with a state of 2 × 2: it fades, v is added where k points, and q reads it"
    return says, _STATE_COLUMNS, rows()


def _ssm(x: Mapping[str, Any]) -> Part:
    decay = exp(-exp(x["a_log"]) * x["dt"])

    def rows() -> Rows:
        yield _matrix_rows("S before", x["before"])
        yield _matrix_rows(f"× {short(decay)}", [[decay * y for y in row] for row in x["before"]])
        yield f"{short(x['dt'])}·x", *(short(x["dt"] * y) for y in x["x"])
        yield "b", list_numbers(x["b"]), ""
        yield _matrix_rows("S + dt x ⊗ b", x["after"])
        yield "c", list_numbers(x["c"]), ""
        yield "y = S c", *map(short, x["y"])

    says = (
        f"one head with a state of 2 × 2; dt = {short(x['dt'])} decides both how much it fades and "
        "how much of x is written"
    )
    return says, _STATE_COLUMNS, rows()


def _selective(x: Mapping[str, Any]) -> Part:
    dt, u = x["dt"], x["x"]
    decays = [exp(-exp(a) * dt) for a in x["a_log"]]

    def rows() -> Rows:
        yield "s before", *map(short, x["before"])
        yield "e^(−e^a dt)", *map(short, decays)
        yield "s faded", *(short(a * y) for a, y in zip(decays, x["before"], strict=True))
        yield "dt·x·b", *(short(dt * u * y) for y in x["b"])
        yield "s", *map(short, x["after"])
        yield "c", *map(short, x["c"])
        yield f"y = s·c + {short(x['skip'])}·x", short(x["y"]), ""

    says = (
        f"one channel with a state of two numbers; x = {short(u)}, and dt = {short(dt)} decides "
        "both how much fades and how much of x is written"
    )
    return says, ("", "s[0]", "s[1]"), rows()


_STATES = {
    "gated_delta_rule": _delta,
    "linear_attention": _linear,
    "ssm_scan": _ssm,
    "selective_scan": _selective,
}
