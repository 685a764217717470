"""The memory and the speed limits of inference as expressions of context, batch and dtypes, for each number of GPUs and each layout."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...analysis.fit.serving_layouts import choose_layout
from ...analysis.inference.cache_bytes import CacheSpec, KVFormat, kv_format
from ...analysis.inference.gpu_shards import BATCH, TOKENS, ElementSizes, ShardedModel, WeightRead
from ...analysis.inference.inference_memory import AS_STORED, MAX_TOKENS, MemoryCalculator, MemoryRequest, declared_dtype
from ...analysis.inference.speed_limits import compute_dtypes, decode_work, prefill_work
from ...analysis.inference.weight_bytes import stored_weights
from ...analysis.memory_line import overhead_bytes
from ...analysis.parallel_layout import Layout
from ...checkpoint.formats.dtypes import DTYPES
from ...core.expr import Expr, Json, floor_div, minimum, total
from ...hardware import DTYPES as RATE_DTYPES
from ...hardware import Device, devices
from ...model import Model
from ...utils.errors import LlamathError, UnknownQuantization
from .checkpoint_data import CheckpointModel
from .device_facts import memory
from .device_facts import rates as published_rates

_WEIGHTS = ("fp32", "bf16", "fp16", "fp8", "mxfp4", "awq", "q8_0", "q4_k_m", "q2_k")
_KEPT = ("fp32", "bf16", "fp16", "fp8", "q8_0", "q4_0")
GPUS, RANKS, DEEPEST = (1, 2, 4, 8, 16), (1, 2, 4, 8), 4
"""The choices of GPU count and tensor parallelism, and the largest pipeline."""
_NODE = 8
"""The GPUs of a node."""
_CARDS = ("rtx-4060-ti-16gb", "rtx-4090", "rtx-5090", "l40s", "a100-80gb", "h100-sxm", "h200", "b200", "mi300x")


def variable(symbol: str) -> Expr:
    """Return a variable to which the page gives a value."""
    return Expr.variable(symbol, 1)


SIZES = ElementSizes(KVFormat(variable("kv_block"), variable("kv_bytes"), variable("conv_bytes")), variable("act_bytes"))
"""The settings of the dtypes."""


def _roof() -> Mapping[str, Json]:
    """Return tokens per 10⁹ seconds, FLOP/s, FLOPs per 10⁹ bytes, and whether memory bounds them (1) or arithmetic (0)."""
    tokens, read, work, peak, bandwidth = map(variable, ("tokens", "bytes", "FLOPs", "peak", "bandwidth"))
    by_bytes, by_flops = floor_div(10**9 * tokens * bandwidth, read), floor_div(10**9 * tokens * peak, work)
    found = {
        "rate": minimum(by_bytes, by_flops),
        "reached": minimum(floor_div(work * bandwidth, read), peak),
        "intensity": floor_div(10**9 * work, read),
        "bound": minimum(floor_div(read * peak, work * bandwidth), 1),
    }
    return {name: x.to_expression_json() for name, x in found.items()}


ROOF = _roof()


def rated_gpus() -> list[dict[str, Any]]:
    """Return every device of the catalog with a FLOP/s figure."""
    return [
        {"name": x.name, "title": x.title, "memory": str(x.memory), "bandwidth": str(x.bandwidth), "source": x.source}
        | {"flops": {dtype: str(x.flops[dtype]) for dtype in RATE_DTYPES if dtype in x.flops}, "facts": published_rates(x)}
        for x in devices()
        if {"bf16", "fp16", "fp32"} & set(x.flops)
    ]


def kept_as(model: Model) -> dict[str, MemoryCalculator]:
    """Return the model under each possible dtype, the config's first."""
    try:
        names = dict.fromkeys((declared := declared_dtype(model), *_WEIGHTS))
    except UnknownQuantization:  # the page offers formats to choose from
        names, declared = dict.fromkeys(_WEIGHTS), ""
    own = {AS_STORED: MemoryCalculator(model, MemoryRequest(), stored_weights(model.listing))} if isinstance(model, CheckpointModel) else {}
    return own | {name: found for name in names if (found := _sizes(model, "" if name == declared else name)) is not None}


def sizes(model: Model, made: Mapping[str, MemoryCalculator]) -> dict[str, Any]:
    """Return the choices of the sliders, and the memory of each stage for each GPU count."""
    first, start = next(iter(made.items()))
    return {
        "context": str(start.context),
        "own": str(model.tree.context or start.context),
        "most": str(MAX_TOKENS - 1),
        "dtype": first,
        "kv": start.kv_dtype,
        "dtypes": [_dtype(name, x) for name, x in made.items()],
        "kvs": [_kv(name) for name in dict.fromkeys((start.kv_dtype, *_KEPT))],
        "gpus": list(_splits(model, made)),
        "work": {
            "decode": start.decode_flops.at(P=TOKENS - 1).to_expression_json(),
            "prefill": start.prefill_flops.at(P=Expr.const(0)).to_expression_json(),
        },
    }


def cards() -> list[dict[str, Any]]:
    """Return the GPUs whose memory is drawn as a line."""
    known = {x.name: x for x in devices()}
    return [_card(known[name]) for name in _CARDS]


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
        "variables": {"act_bytes": str(DTYPES[found.packer.compute_dtype].bytes)},
        "rates": list(compute_dtypes(found.packer.name, found.packer.compute_dtype)),
    }


def _codecs(found: MemoryCalculator) -> dict[str, str]:
    """Return the bytes of a weight of n elements, or of an out × in matrix, by storage format."""
    used = {} if found.storage is None else dict.fromkeys(x.codec for x in found.storage.weights)
    formulas = {} if found.storage is None else found.storage.formulas
    return {
        x: f"{DTYPES[x].bytes}·n" + (f"/{DTYPES[x].block}" if DTYPES[x].block > 1 else "") if x in DTYPES else formulas[x] for x in used
    }


def _kv(name: str) -> dict[str, Any]:
    found = kv_format(name)
    values = {"kv_block": found.block, "kv_bytes": found.bytes, "conv_bytes": found.conv_state_bytes}
    return {"name": name, "variables": {symbol: str(n) for symbol, n in values.items()}}


def _splits(model: Model, made: Mapping[str, MemoryCalculator]) -> Iterator[dict[str, Any]]:
    """Return the layouts for each GPU count, the one chosen by `fit` first."""
    for count in GPUS:
        layouts = [x for x in (_layout(model, count, tp) for tp in (None, *reversed(RANKS))) if x is not None]
        yield from (_split(x, made) for x in dict.fromkeys(layouts))


def _layout(model: Model, count: int, tp: int | None) -> Layout | None:
    try:
        layout = choose_layout(model.tree, count, _NODE, tp, count // tp if tp else None)
    except LlamathError:
        return None
    return layout if tp is None or layout.pp <= DEEPEST else None


def _split(layout: Layout, made: Mapping[str, MemoryCalculator]) -> dict[str, Any]:
    first = ShardedModel(next(iter(made.values())), layout.replace(tp=Expr.variable("TP", layout.tp)))
    shards = {name: first.with_dtype_of(x) for name, x in made.items()}
    stages: dict[str, dict[str, Any]] = {}
    reads, all_reads = list[list[WeightRead]](), list[list[WeightRead]]()
    values = {name: dict[str, str]() for name in made}
    for i in range(layout.pp):
        found, numbers = _reads(shards, i, len(stages))
        stage = _stage(first, i) | {"weights": {name: str(x.weights(i)) for name, x in shards.items()}}
        stage["sums"] = {name: _summed(x, i) for name, x in shards.items()}
        key = json.dumps([stage, [[*x.values()] for x in numbers.values()]])
        if key not in stages:
            stages[key] = stage | {"where": []}
            reads.append(found)
            values = {name: x | numbers[name] for name, x in values.items()}
        stages[key]["where"].append(_where(first, i))
        all_reads.append(reads[list(stages).index(key)])
    work, caches = variable("work"), [first.cache_bytes(i, SIZES.cache) for i in range(layout.pp)]
    passes = {
        "decode": decode_work(all_reads, caches, work, first.layout, BATCH),
        "prefill": prefill_work(reads, work, first.layout, BATCH * TOKENS),
    }
    return {
        "count": str(layout.gpus),
        "tp": str(layout.tp),
        "layout": "one GPU" if layout.gpus == 1 else f"TP {layout.tp}" + (f" × PP {layout.pp}" if layout.pp > 1 else ""),
        "stages": [x | {"where": "; ".join(x["where"])} for x in stages.values()],
        "speed": {
            name: {key: Expr.const(n).to_expression_json() for key, n in (("tokens", x.tokens), ("bytes", x.bytes), ("FLOPs", x.flops))}
            for name, x in passes.items()
        },
        "read": values,
    }


def _reads(made: Mapping[str, ShardedModel], i: int, place: int) -> tuple[list[WeightRead], dict[str, dict[str, str]]]:
    """Return what a pass reads on one GPU of a stage: `W` in full, `R…` and `X…` in part; and the values of these under each dtype."""
    columns = list(zip(*(x.reads[i] for x in made.values()), strict=True))
    partial = Counter(x for x in columns if x[0].rows or x[0].missed)
    mark = str(place or "")
    values = {dtype: {f"W{mark}": str(sum(x[j].of(1) for x in columns if x not in partial))} for j, dtype in enumerate(made)}
    reads = [WeightRead(variable(f"W{mark}"))]
    for letter, (column, times) in zip("abcdefghijklmnopqrstuvwxyz", partial.items(), strict=False):
        name = f"{'R' if column[0].rows else 'X'}{mark}{letter}"
        whole = all(x.unit == 1 for x in column)
        reads += [column[0]._replace(size=variable(name), unit=1 if whole else variable(f"{name}'"))] * times
        for dtype, read in zip(made, column, strict=True):
            values[dtype] |= {name: str(read.size)} | ({} if whole else {f"{name}'": str(read.unit)})
    return reads, values


def _stage(shards: ShardedModel, i: int) -> dict[str, Any]:
    """Return the memory of one GPU of a stage without its weights."""
    found = shards.memory_of_stage(i, SIZES)
    return {
        "cache": [{"what": x.kind, "form": cache_expression(x)} for x in shards.stage_cache_specs(i)],
        "activations": Expr.const(found.activations).to_expression_json(),
        "logits": Expr.const(found.logits).to_expression_json(),
        "overhead": overhead_bytes(total(map(variable, ("cache", "activations", "logits")))).to_expression_json(),
    }


def cache_expression(x: CacheSpec) -> Json:
    """Return the cache bytes of one kind of mixer in all its layers."""
    return total((x.growing_bytes(TOKENS, BATCH, SIZES.cache), x.fixed_bytes(BATCH, SIZES.cache))).to_expression_json()


def _summed(shards: ShardedModel, i: int) -> str:
    """Return the weight elements on one GPU, with their bytes."""
    found = [(n, each) for each, n in shards.elements_by_size(i).items() if n]
    text = " + ".join(f"{n:,}·{each.numerator:,}" + (f"/{each.denominator:,}" if each.denominator > 1 else "") for n, each in found)
    whole = sum(n * each for n, each in found)
    return text if whole == int(whole) else f"round({text})"


def _where(shards: ShardedModel, i: int) -> str:
    spans = (str(a) if a == b - 1 else f"{a}–{b - 1}" for a, b in shards.stages[i].runs)
    return f"layers {', '.join(spans)}"
