"""Upper bounds on speed as expressions: the results of `speed_limits` for decode and prefill at any context and batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...analysis.graph.old_counts import list_matmuls
from ...analysis.inference.gpu_shards import ALL_EXPERTS_TOKENS, ShardedModel, WeightRead
from ...analysis.inference.inference_memory import MemoryCalculator
from ...analysis.inference.speed_limits import compute_dtypes
from ...analysis.parallel_layout import Layout
from ...core.blocks import Decoder
from ...core.expr import Expr, total
from ...core.forward_pass import AttentionBase, AttentionWindow, ForwardPass, Mixer
from ...core.tree import fold_blocks
from ...hardware import DTYPES, devices
from .device_facts import rates as published
from .forms import Form, number, sum_of, times_of

NANO = "1000000000"
MEMORY, COMPUTE = ["*", "bytes", "peak"], ["*", "FLOPs", "bandwidth"]
ROOF: dict[str, Form] = {
    "bound": [">=", MEMORY, COMPUTE, "1", "0"],
    "rate": [
        ">=",
        MEMORY,
        COMPUTE,
        ["floor", ["*", NANO, "tokens", "bandwidth"], "bytes"],
        ["floor", ["*", NANO, "tokens", "peak"], "FLOPs"],
    ],
    "reached": [">=", MEMORY, COMPUTE, ["floor", ["*", "FLOPs", "bandwidth"], "bytes"], "peak"],
    "intensity": ["floor", ["*", NANO, "FLOPs"], "bytes"],
}
"""Memory-bound (1) or compute-bound, tokens per 10⁹ seconds, FLOP/s, and FLOPs per 10⁹ bytes."""


def gpus() -> list[dict[str, Any]]:
    """Return every device of the catalog with a FLOP/s figure."""
    return [
        {"name": x.name, "title": x.title, "memory": str(x.memory), "bandwidth": str(x.bandwidth), "source": x.source}
        | {"flops": {dtype: str(x.flops[dtype]) for dtype in DTYPES if dtype in x.flops}, "facts": published(x)}
        for x in devices()
        if {"bf16", "fp16", "fp32"} & set(x.flops)
    ]


def rates(found: MemoryCalculator) -> list[str]:
    """Return the dtypes that products may run in, best first."""
    return list(compute_dtypes(found.packer.name, found.packer.compute_dtype))


def work(tree: Decoder) -> dict[str, Form]:
    """Return the FLOPs of decoding one token of B sequences, and of prefilling B prompts of T tokens."""
    return {"decode": _work(tree, "1", "T", True), "prefill": _work(tree, "T", "T", False)}


def _work(tree: Decoder, tokens: Form, context: Form, absorbed: bool) -> Form:
    parts: dict[str, list[Expr]] = {"each": [], "once": []}
    mixing: list[Form] = []
    for x in list_matmuls(tree, ForwardPass.decode(1)):
        if not x.mixing:
            parts["once" if x.group == "head" else "each"].append(x.flops)
    for y in fold_blocks(tree):
        if isinstance(y.block, Mixer):
            each = number(y.block.mixing_flops(ForwardPass.decode(1, absorbed=absorbed)), _met(y.block, tokens, context))
            mixing.append(times_of(number(y.active), each))
    weights = [times_of(tokens, number(total(parts["each"])))]
    head = [number(total(parts["once"]))] if parts["once"] else []
    return times_of("B", sum_of(*weights, *head, *_alike(mixing)))


def _alike(forms: Sequence[Form]) -> list[Form]:
    """Merge equal terms, with their multiplicity."""
    made: dict[str, tuple[Form, int]] = {}
    for x in forms:
        made[str(x)] = (x, made.get(str(x), (x, 0))[1] + 1)
    return [times_of(str(n), x) for x, n in made.values()]


def _met(block: Mixer, tokens: Form, context: Form) -> Mapping[str, Form]:
    """Return the expression for a letter of a mixer's formula: tokens or query-key pairs."""
    if not isinstance(block, AttentionBase):
        return {"T": tokens}
    met = _one(block.window, context) if tokens == "1" else _pairs(block.window, context)
    return {block.window.pairs_symbol: ["as", block.window.pairs_symbol, met]}


def _one(reach: AttentionWindow, context: Form) -> Form:
    """Return the keys that the last position attends to."""
    if reach.chunk is None:
        return context if reach.size is None else ["min", context, str(reach.size)]
    before: Form = ["-", context, "1"]
    return ["+", ["-", before, ["*", str(reach.chunk), ["floor", before, str(reach.chunk)]]], "1"]


def _pairs(reach: AttentionWindow, context: Form) -> Form:
    """Return the query-key pairs of a whole prompt."""
    if reach.chunk is not None:
        whole: Form = ["floor", context, str(reach.chunk)]
        rest: Form = ["-", context, ["*", str(reach.chunk), whole]]
        return ["+", ["*", whole, str(reach.chunk * (reach.chunk + 1) // 2)], _triangle(rest)]
    near: Form = context if reach.size is None else ["min", context, str(reach.size)]
    back = _triangle(near) if reach.size is None else ["+", _triangle(near), ["*", ["-", context, near], near]]
    return back if reach.causal else ["-", ["*", "2", back], context]


def _triangle(n: Form) -> Form:
    return ["floor", ["*", n, ["+", n, "1"]], "2"]


class Term(NamedTuple):
    """Weights that a pass reads in the same way: the name of their bytes, the divisor, how they are read, and how many there are."""

    name: str
    over: str
    read: WeightRead
    times: int


def reading(made: Mapping[str, ShardedModel], i: int, place: int) -> tuple[list[Term], dict[str, dict[str, str]]]:
    """Return the bytes read on one GPU of a stage: `W`, read in full, and the other terms, with their bytes under each dtype."""
    columns = list(zip(*(x.reads(i) for x in made.values()), strict=True))
    kinds = Counter(x for x in columns if x[0].rows or x[0].active != 1)
    plain = [x for x in columns if not x[0].rows and x[0].active == 1]
    mark = str(place or "")
    values = {dtype: {f"W{mark}": str(sum(x[j].of(1) for x in plain))} for j, dtype in enumerate(made)}
    terms: list[Term] = []
    for letter, (column, times) in zip("abcdefghijklmnopqrstuvwxyz", kinds.items(), strict=False):
        name = f"{'R' if column[0].rows else 'X'}{mark}{letter}"
        over = "1" if all(x.bytes.denominator == 1 for x in column) else f"{name}'"
        for dtype, read in zip(made, column, strict=True):
            values[dtype] |= {name: str(read.bytes.numerator)} | ({} if over == "1" else {over: str(read.bytes.denominator)})
        terms.append(Term(name, over, column[0], times))
    assert len(terms) == len(kinds)
    return terms, values


def streamed(terms: Sequence[Term], place: int, tokens: Form) -> Form:
    """Return the weight bytes of a stage that a number of tokens read."""
    return sum_of(f"W{place or ''}", *(times_of(str(x.times), _read(x, tokens)) for x in terms))


def _read(x: Term, tokens: Form) -> Form:
    if x.read.rows:
        return ["round", ["*", x.name, ["min", tokens, str(x.read.rows)]], times_of(str(x.read.rows), x.over)]
    miss, of = (1 - x.read.active).as_integer_ratio()
    whole: Form = ["^", str(of), tokens]
    some: Form = ["round", ["*", x.name, ["-", whole, ["^", str(miss), tokens]]], times_of(whole, x.over)]
    return [">=", tokens, str(ALL_EXPERTS_TOKENS), ["round", x.name, x.over], some]


def passes(stages: Sequence[Mapping[str, Any]], terms: Sequence[Sequence[Term]], layout: Layout) -> dict[str, Any]:
    """Return the bytes of both passes: decode runs the stages one after the other, prefill runs them concurrently."""
    prompts: Form = ["*", "B", "T"]
    one = list(_turns(stages, terms))
    every = [streamed(x, i, prompts) for i, x in enumerate(terms)]
    return {
        "decode": {"tokens": "B", "bytes": sum_of(*one), "FLOPs": ["floor", "work", str(layout.tp)]},
        "prefill": {
            "tokens": prompts,
            "bytes": every[0] if len(every) == 1 else ["max", *every],
            "FLOPs": ["floor", "work", str(layout.tp * layout.pp)],
        },
    }


def _turns(stages: Sequence[Mapping[str, Any]], terms: Sequence[Sequence[Term]]) -> Iterator[Form]:
    for i, (stage, found) in enumerate(zip(stages, terms, strict=True)):
        kept = sum_of(*(x["form"] for x in stage["cache"]))
        yield times_of(stage["times"], sum_of(streamed(found, i, "B"), *([kept] if kept != "0" else [])))
