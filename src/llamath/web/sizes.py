"""What each GPU holds, as forms of the context, the batch and what numbers are kept in: the terms of `views.cache` and `views.shards`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..dims import Dim
from ..errors import LlamathError
from ..formats.dtypes import DTYPES
from ..hardware import devices
from ..model import Model
from ..views.cache import Remembered, kinds, kv_dtype, plain
from ..views.fit import chosen
from ..views.memory import CONTEXT, FIXED, MOST, PART, MemoryRequest, Sizes, declared
from ..views.shards import Shards
from .forms import Form, number, sum_of, times_of

WEIGHTS = ("fp32", "bf16", "fp16", "fp8", "mxfp4", "awq", "q8_0", "q4_k_m", "q2_k")
KEPT = ("fp32", "bf16", "fp16", "fp8", "q8_0", "q4_0")
GPUS = (1, 2, 4, 8, 16)
NODE = 8
"""A node of so many GPUs is meant, as most have."""
CARDS = ("rtx-4060-ti-16gb", "rtx-4090", "rtx-5090", "l40s", "a100-80gb", "h100-sxm", "h200", "b200", "mi300x")


def kept_as(model: Model) -> dict[str, Sizes]:
    """The model under each dtype that it can be kept in, first what its configuration says."""
    names = dict.fromkeys((declared(model), *WEIGHTS))
    return {name: found for name in names if (found := _sizes(model, name)) is not None}


def sizes(model: Model, made: Mapping[str, Sizes]) -> dict[str, Any]:
    """The choices of the sliders, and for each number of GPUs what one of each stage holds."""
    first, start = next(iter(made.items()))
    return {
        "context": str(start.context),
        "own": str(model.tree.context or CONTEXT),
        "most": str(MOST - 1),
        "dtype": first,
        "kv": start.kv,
        "dtypes": [_dtype(name, x) for name, x in made.items()],
        "kvs": [_kv(name) for name in dict.fromkeys((start.kv, *KEPT))],
        "gpus": list(_splits(model, made)),
        "letters": {"C": str(start.request.chunk)},
    }


def cards() -> list[dict[str, str]]:
    """Cards whose memory is drawn as a line."""
    known = {x.name: x for x in devices()}
    return [{"name": name, "title": known[name].title, "memory": str(known[name].memory)} for name in CARDS]


def _sizes(model: Model, dtype: str) -> Sizes | None:
    """The model under a dtype; None where it cannot be kept so."""
    try:
        found = Sizes(model, MemoryRequest(dtype=dtype))
        return found if found.weights else None
    except LlamathError:
        return None


def _dtype(name: str, found: Sizes) -> dict[str, Any]:
    return {
        "name": name,
        "bytes": str(sum(x.bytes for x in found.weights)),
        "lines": [{"what": x.what, "bytes": str(x.bytes), "formula": x.formula} for x in found.weights],
        "variables": {"a": str(DTYPES[found.packer.compute].bytes)},
    }


def _kv(name: str) -> dict[str, Any]:
    kept = kv_dtype(name)
    return {"name": name, "variables": {"q": str(kept.block), "s": str(kept.bytes), "p": str(plain(kept))}}


def _splits(model: Model, made: Mapping[str, Sizes]) -> Iterator[dict[str, Any]]:
    for count in GPUS:
        try:
            layout = chosen(model.tree, count, NODE)
        except LlamathError:
            continue
        shards = {name: Shards(x, layout) for name, x in made.items()}
        weights = {name: [y.weights for y in x.shares(1, 1)] for name, x in shards.items()}
        one = next(iter(shards.values()))
        yield {
            "count": str(count),
            "layout": "one GPU" if count == 1 else f"TP {layout.tp}" + (f" × PP {layout.pp}" if layout.pp > 1 else ""),
            "stages": [
                {
                    "where": _where(one, i),
                    "weights": {name: str(each[i]) for name, each in weights.items()},
                    "cache": [{"what": x.kind, "form": remembered(x)} for x in (kinds(model.tree) if count == 1 else one.kinds_of(i))],
                    "activations": passing(one),
                    "logits": times_of("4", "B", ["let", "V", str(int(model.tree.vocab))]) if one.stages[i].last else "0",
                    "overhead": ["+", str(FIXED), ["floor", ["+", "cache", "activations", "logits"], str(PART)]],
                }
                for i in range(len(one.stages))
            ],
        }


def _where(shards: Shards, i: int) -> str:
    spans = (str(a) if a == b - 1 else f"{a}–{b - 1}" for a, b in shards.stages[i].runs)
    return f"layers {', '.join(spans)}"


def remembered(x: Remembered) -> Form:
    """The bytes of one kind of mixer in all its layers: what grows with the tokens, and what does not."""
    layers, parts = number(x.layers), list[Form]()
    if x.rows:
        each: list[Form] = [["*", ["ceil", number(row), "q"], "s"] for row in x.rows]
        rows = times_of(str(len(each)), each[0]) if len(set(x.rows)) == 1 else sum_of(*each)
        tokens: Form = "T" if x.span is None else ["min", "T", number(x.span)]
        parts.append(times_of(layers, rows, tokens, "B"))
    if x.state or x.taps:
        fixed = [times_of(number(n), each) for n, each in ((x.state, "4"), (x.taps, "p")) if n]
        parts.append(times_of(layers, "B", sum_of(*fixed)))
    return sum_of(*parts)


def passing(shards: Shards) -> Form:
    """The activations of the tokens that are read at once."""
    width, d = shards.sizes.peak.width, Dim.const(shards.tree.width)
    around = 2 * d if 2 * d <= width else width
    inside = width - around
    tp = shards.layout.tp
    each = number(width) if tp == 1 or not inside else sum_of(number(around), ["ceil", number(inside), str(tp)])
    tokens: Form = ["min", ["*", "B", "T"], ["max", ["let", "C", str(shards.sizes.request.chunk)], "B"]]
    return times_of(tokens, each, "a")
