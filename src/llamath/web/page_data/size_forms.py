"""The memory of each GPU as expressions of context, batch and dtypes: the terms of `cache_bytes` and `gpu_shards`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...analysis.graph.recorder import record
from ...analysis.inference.cache_bytes import CacheSpec, cache_specs, conv_state_bytes, parse_kv_dtype
from ...analysis.inference.fit_report import choose_layout
from ...analysis.inference.gpu_shards import ShardedModel
from ...analysis.inference.inference_memory import (
    AS_STORED,
    DEFAULT_CONTEXT,
    MAX_TOKENS,
    MemoryCalculator,
    MemoryRequest,
    declared_dtype,
)
from ...analysis.inference.weight_bytes import stored_weights
from ...analysis.parallel_layout import Layout
from ...checkpoint.formats.dtypes import DTYPES
from ...checkpoint.quantization.recipes import UnknownQuantization
from ...core.errors import LlamathError
from ...core.expr import Expr
from ...hardware import Device, devices
from ...model import Model
from .checkpoint_data import CheckpointModel
from .device_facts import memory
from .forms import Form, number, overhead_form, sum_of, times_of
from .speed_forms import Term, passes, rates, reading, work
from .training_forms import training

WEIGHTS = ("fp32", "bf16", "fp16", "fp8", "mxfp4", "awq", "q8_0", "q4_k_m", "q2_k")
KEPT = ("fp32", "bf16", "fp16", "fp8", "q8_0", "q4_0")
GPUS, RANKS, DEEPEST = (1, 2, 4, 8, 16), (1, 2, 4, 8), 4
"""The choices of GPU count and tensor parallelism, and the largest pipeline."""
NODE = 8
"""The GPUs of a node."""
CARDS = ("rtx-4060-ti-16gb", "rtx-4090", "rtx-5090", "l40s", "a100-80gb", "h100-sxm", "h200", "b200", "mi300x")


def kept_as(model: Model) -> dict[str, MemoryCalculator]:
    """Return the model under each possible dtype, the config's first."""
    try:
        names = dict.fromkeys((declared := declared_dtype(model), *WEIGHTS))
    except UnknownQuantization:  # the page offers formats to choose from
        names, declared = dict.fromkeys(WEIGHTS), ""
    own = {AS_STORED: MemoryCalculator(model, MemoryRequest(), stored_weights(model.listing))} if isinstance(model, CheckpointModel) else {}
    return own | {name: found for name in names if (found := _sizes(model, "" if name == declared else name)) is not None}


def sizes(model: Model, made: Mapping[str, MemoryCalculator]) -> dict[str, Any]:
    """Return the choices of the sliders, and the memory of each stage for each GPU count."""
    first, start = next(iter(made.items()))
    return {
        "context": str(start.context),
        "own": str(model.tree.context or DEFAULT_CONTEXT),
        "most": str(MAX_TOKENS - 1),
        "dtype": first,
        "kv": start.kv_dtype,
        "dtypes": [_dtype(name, x) for name, x in made.items()],
        "kvs": [_kv(name) for name in dict.fromkeys((start.kv_dtype, *KEPT))],
        "gpus": list(_splits(model, made)),
        "letters": {"C": str(start.request.chunk)},
        "work": work(model.tree),
        "training": training(model),
    }


def cards() -> list[dict[str, Any]]:
    """Return the GPUs whose memory is drawn as a line."""
    known = {x.name: x for x in devices()}
    return [_card(known[name]) for name in CARDS]


def _card(x: Device) -> dict[str, Any]:
    return {"name": x.name, "title": x.title, "memory": str(x.memory), "facts": memory(x), "source": x.source}


def _sizes(model: Model, dtype: str) -> MemoryCalculator | None:
    """Return the model under a dtype; None if it cannot be stored that way."""
    try:
        found = MemoryCalculator(model, MemoryRequest(dtype=dtype))
        return found if found.weights else None
    except LlamathError:
        return None


def _dtype(name: str, found: MemoryCalculator) -> dict[str, Any]:
    return {
        "name": name,
        "bytes": str(sum(x.bytes for x in found.weights)),
        "of": [" + ".join(x.what for x in found.weights), " + ".join(x.formula for x in found.weights)],
        "codecs": _codecs(found),
        "variables": {"a": str(DTYPES[found.packer.compute_dtype].bytes)},
        "rates": rates(found),
    }


def _codecs(found: MemoryCalculator) -> dict[str, str]:
    """Return the bytes of a weight of n elements, or of an out × in matrix, by storage format."""
    used = {} if found.storage is None else dict.fromkeys(x.codec for x in found.storage.weights)
    formulas = {} if found.storage is None else found.storage.formulas
    return {
        x: f"{DTYPES[x].bytes}·n" + (f"/{DTYPES[x].block}" if DTYPES[x].block > 1 else "") if x in DTYPES else formulas[x] for x in used
    }


def _kv(name: str) -> dict[str, Any]:
    kept = parse_kv_dtype(name)
    return {"name": name, "variables": {"q": str(kept.block), "s": str(kept.bytes), "p": str(conv_state_bytes(kept))}}


def _splits(model: Model, made: Mapping[str, MemoryCalculator]) -> Iterator[dict[str, Any]]:
    """Return the layouts for each GPU count, the one chosen by `fit` first."""
    for count in GPUS:
        layouts = [x for x in (_layout(model, count, tp) for tp in (None, *reversed(RANKS))) if x is not None]
        yield from (_split(x, made) for x in dict.fromkeys(layouts))


def _layout(model: Model, count: int, tp: int | None) -> Layout | None:
    try:
        layout = choose_layout(model.tree, count, NODE, tp, count // tp if tp else None)
    except LlamathError:
        return None
    return layout if tp is None or layout.pp <= DEEPEST else None


def _split(layout: Layout, made: Mapping[str, MemoryCalculator]) -> dict[str, Any]:
    first = ShardedModel(next(iter(made.values())), layout)
    shards = {name: first.with_dtype_of(x) for name, x in made.items()}
    stages: dict[str, dict[str, Any]] = {}
    terms, read = list[list[Term]](), {name: dict[str, str]() for name in made}
    for i in range(layout.pp):
        found, values = reading(shards, i, len(stages))
        stage = _stage(first, i) | {"weights": {name: str(x.weights(i)) for name, x in shards.items()}}
        stage["sums"] = {name: _summed(x, i) for name, x in shards.items()}
        key = json.dumps([stage, [[*x.values()] for x in values.values()]])
        if key not in stages:
            stages[key] = stage | {"where": [], "times": 0}
            terms.append(found)
            read = {name: x | values[name] for name, x in read.items()}
        stages[key]["where"].append(_where(first, i))
        stages[key]["times"] += 1
    stages_data = [x | {"where": "; ".join(x["where"]), "times": str(x["times"])} for x in stages.values()]
    return {
        "count": str(layout.gpus),
        "tp": str(layout.tp),
        "layout": "one GPU" if layout.gpus == 1 else f"TP {layout.tp}" + (f" × PP {layout.pp}" if layout.pp > 1 else ""),
        "stages": stages_data,
        "speed": passes(stages_data, terms, layout),
        "read": read,
    }


def _stage(shards: ShardedModel, i: int) -> dict[str, Any]:
    """Return the memory of one GPU of a stage without its weights."""
    tree = shards.tree
    specs = cache_specs(record(tree)) if shards.layout.gpus == 1 else shards.stage_cache_specs(i)
    return {
        "cache": [{"what": x.kind, "form": cache_bytes_form(x)} for x in specs],
        "activations": passing(shards),
        "logits": times_of("4", "B", ["let", "V", str(int(tree.vocab))]) if shards.stages[i].last else "0",
        "overhead": overhead_form("cache", "activations", "logits"),
    }


def _summed(shards: ShardedModel, i: int) -> str:
    """Return the weight elements on one GPU, with their bytes."""
    found = [(n, each) for each, n in shards.elements_by_size(i).items() if n]
    text = " + ".join(f"{n:,}·{each.numerator:,}" + (f"/{each.denominator:,}" if each.denominator > 1 else "") for n, each in found)
    whole = sum(n * each for n, each in found)
    return text if whole == int(whole) else f"round({text})"


def _where(shards: ShardedModel, i: int) -> str:
    spans = (str(a) if a == b - 1 else f"{a}–{b - 1}" for a, b in shards.stages[i].runs)
    return f"layers {', '.join(spans)}"


def cache_bytes_form(x: CacheSpec) -> Form:
    """Return the cache bytes of one kind of mixer in all its layers: growing with the tokens, and fixed."""
    layers, parts = number(x.layers), list[Form]()
    if x.rows:
        each: list[Form] = [["*", ["ceil", number(row), "q"], "s"] for row in x.rows]
        rows = times_of(str(len(each)), each[0]) if len(set(x.rows)) == 1 else sum_of(*each)
        tokens: Form = "T" if x.window is None else ["min", "T", number(x.window)]
        parts.append(times_of(layers, rows, tokens, "B"))
    if x.state or x.conv_state:
        fixed = [times_of(number(n), each) for n, each in ((x.state, "4"), (x.conv_state, "p")) if n]
        parts.append(times_of(layers, "B", sum_of(*fixed)))
    return sum_of(*parts)


def passing(shards: ShardedModel) -> Form:
    """Return the activations of a prefill chunk."""
    width, d = shards.calculator.peak.width, Expr.const(shards.tree.width)
    around = 2 * d if 2 * d <= width else width
    inside = width - around
    tp = shards.layout.tp
    each = number(width) if tp == 1 or not inside else sum_of(number(around), ["ceil", number(inside), str(tp)])
    tokens: Form = ["min", ["*", "B", "T"], ["max", ["let", "C", str(shards.calculator.request.chunk)], "B"]]
    return times_of(tokens, each, "a")
