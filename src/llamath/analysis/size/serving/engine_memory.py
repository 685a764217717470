"""`engine_memory`: the bytes that an engine leaves for the KV cache on each GPU, as an interval,
since its own memory is one.
"""

from __future__ import annotations

from typing import NamedTuple

from ....engines import Engine
from ....hardware import Device
from ....questions.layout import Layout
from ..memory.gpu_shards import ShardedModel
from ..memory.inference_memory import MemoryCalculator
from .rank_shapes import EngineLayout, stored_weights_of

_GIB = 2**30


class EngineMemory(NamedTuple):
    """The memory of the fullest GPU."""

    weights: int
    own: tuple[int, int]  # least and most bytes of context, activations, graphs and workspace
    available: tuple[int, int]  # least and most bytes for the cache
    limit: int  # bytes that the engine may use
    terms: tuple[str, ...]  # what the own memory is made of, with sources


def shard_layout(layout: EngineLayout) -> Layout:
    """Return the layout of the weights: experts are whole on one rank, or every one is split over
    all ranks, those of other copies of the attention included.
    """
    ranks = layout.tp * layout.dp
    if layout.whole_experts:
        return Layout(tp=layout.tp, pp=layout.pp, dp=layout.dp, ep=ranks, etp=1)
    return Layout(tp=layout.tp, pp=layout.pp, dp=layout.dp, etp=ranks if layout.dp > 1 else None)


def batched_tokens(engine: Engine, device: Device) -> tuple[int, int]:
    """Return the tokens of a step and the most sequences (of SGLang, in a CUDA graph): those that
    flags set, else the engine's own, which depend on the device's memory.
    """
    tokens, sequences = _usual_batch(engine, device)
    asked = engine.figure("asked_batched_tokens", 0)
    most = engine.figure("asked_graph_sequences", 0) or engine.figure("asked_sequences", 0)
    if not most:
        most = min(sequences, asked) if asked else sequences
    elif engine.name == "sglang" and "asked_graph_sequences" not in engine.figures:
        most = min(most, sequences)
    return asked or tokens, most


def _usual_batch(engine: Engine, device: Device) -> tuple[int, int]:
    memory = device.memory / _GIB
    rows = engine.figure("batched_tokens")
    if "a100" in device.name and engine.name == "vllm":
        rows = rows[-1:]
    for least, tokens, sequences in rows:
        if memory >= least:
            return int(tokens), int(sequences)
    raise AssertionError("the last row has no least memory")


def engine_memory(
    engine: Engine,
    calculator: MemoryCalculator,
    shards: ShardedModel,
    device: Device,
    fraction: float | None,
) -> EngineMemory:
    """Return what an engine needs and leaves on the fullest GPU."""
    weights = max(shards.weights(i) for i in range(len(shards.stages)))
    ranks = shards.layout.tp * shards.layout.pp
    if engine.name == "vllm":
        limit = int(device.memory * (fraction or engine.figure("memory_fraction")))
        own, terms = _vllm_memory(engine, calculator, device, ranks)
        own = (own[0], own[1] + _padding_of_experts(engine, calculator, weights))
    elif engine.name == "sglang":
        return _sglang_memory(engine, device, weights, ranks, fraction)
    elif engine.name == "tensorrt-llm":
        own, terms = _vllm_memory(engine, calculator, device, ranks)
        share = fraction or engine.figure("free_fraction")
        low, high = (max(int((device.memory - weights - x) * share), 0) for x in reversed(own))
        return EngineMemory(weights, own, (low, high), device.memory, terms)
    else:
        limit = int(device.memory * (fraction or 1))
        context = _gib(
            engine.figure("cuda_context_gib" if engine.runner == "llama.cpp" else "context_gib")
        )
        compute = (
            _gib(engine.figure("compute_gib"))
            if engine.runner == "llama.cpp"
            else (calculator.activations(512), calculator.activations(8192))
        )
        own = (context[0] + int(compute[0]), context[1] + int(compute[1]))
        terms = ("context and compute buffers",)
    return EngineMemory(
        weights, own, (limit - weights - own[1], limit - weights - own[0]), limit, terms
    )


def _gib(interval: list[float]) -> tuple[int, int]:
    return int(interval[0] * _GIB), int(interval[1] * _GIB)


def _vllm_memory(
    engine: Engine, calculator: MemoryCalculator, device: Device, ranks: int
) -> tuple[tuple[int, int], tuple[str, ...]]:
    """Return the context, the peak of the profile run and the CUDA graphs."""
    context = _gib(engine.figure("context_gib"))
    tokens, sequences = batched_tokens(engine, device)
    peak, logits = int(calculator.activations(tokens)), sequences * int(calculator.tree.vocab) * 4
    profile = engine.figure("profile_gib")
    if isinstance(profile[0], list):
        profile = next(x[1:] for x in profile if device.memory / _GIB >= x[0])
    least, most = _gib(profile)
    most = most * tokens // _usual_batch(engine, device)[0]  # it grows with the tokens of a step
    graphs = _gib(engine.figure("graphs_gib")) if "graphs_gib" in engine.figures else (0, 0)
    if device.memory < 40 * _GIB:
        graphs = (graphs[0], graphs[1] // 3)
    low = (
        context[0 if ranks == 1 else 1] // (1 if ranks == 1 else 2)
        + min(least, peak + logits)
        + graphs[0]
    )
    high = context[1] + max(most, peak + logits) + graphs[1]
    terms = tuple(
        f"{name}: {engine.figures[name].source}"
        for name in ("context_gib", "profile_gib", "graphs_gib")
        if name in engine.figures
    )
    return (low, high), terms


def _padding_of_experts(engine: Engine, calculator: MemoryCalculator, weights: int) -> int:
    """Return the bytes by which the rows of MXFP4 experts may be padded on a GPU."""
    to = engine.figure("mxfp4_padding")
    widths = [
        int(x.leaf.weight.shape[1])
        for x in stored_weights_of(calculator)
        if x.leaf.num_experts and x.codec == "mxfp4"
    ]
    return max((weights * (-(-n // to) * to - n) // n for n in widths), default=0)


def _sglang_memory(
    engine: Engine, device: Device, weights: int, ranks: int, fraction: float | None
) -> EngineMemory:
    """Return SGLang's memory: a share is kept free, from a formula for the size of a chunk and
    of the CUDA graphs.
    """
    context, rule = _gib(engine.figure("context_gib")), engine.figure("reserved_mib")
    tokens, graph = batched_tokens(engine, device)
    parallel = rule["of_rank"] * ranks
    before = rule["constant"] + max(tokens, 2048) * rule["of_token"] + parallel + 2 * graph
    if device.memory > 60 * _GIB:
        before = max(before, rule["at_least_above_60_gib"])
    memory = device.memory / 2**20
    shares = (
        [fraction] * 2
        if fraction
        else [round((memory - x) / memory, 3) for x in (before, rule["after_capture"] + parallel)]
    )
    free = [device.memory - x for x in reversed(context)]
    available = [int(f * share) - weights for f, share in zip(free, shares, strict=True)]
    own = (device.memory - weights - available[1], device.memory - weights - available[0])
    terms = tuple(
        f"{name}: {engine.figures[name].source}" for name in ("context_gib", "reserved_mib")
    )
    return EngineMemory(
        weights, own, (available[0], available[1]), int(device.memory * shares[1]), terms
    )
