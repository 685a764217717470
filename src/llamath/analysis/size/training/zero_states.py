"""The memory that persists from step to step: weights, gradients, master copy and optimizer
states, sharded by ZeRO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import NamedTuple

from ....core.expr import Expr, larger, minimum, product, total, written_ceil_div
from ....questions.layout import Layout
from ...storage.memory_line import MemoryLine
from ...storage.parallel_layout import WeightShard
from .fp8_recipes import Fp8Recipe, runs_in_fp8
from .lora_adapters import LinearMatrix, LoraAdapters
from .optimizers import Optimizer

_MASTER_BYTES = 4
ADAPTER_BYTES = 4
"""Bytes per adapter parameter: peft keeps adapters in float32, even for a 16-bit model."""

ZERO_STAGES = {"weights": 3, "gradients": 2, "master": 1, "optimizer": 1}
"""The ZeRO stage from which each part is sharded over data-parallel ranks."""
_GATHERED_LAYERS = "the current layer and the prefetched next one, whole"
Bytes = Callable[[WeightShard], int]
"""The bytes of one copy of a shard."""


class PersistentState(NamedTuple):
    """The weights that a GPU stores and trains."""

    shards: list[WeightShard]  # of the model
    adapters: list[WeightShard] | None  # trained instead of the model; None: the model is trained
    weight_sizes: dict[str, tuple[int, int]]  # pattern → (bytes, elements) of one copy of a weight
    gradient_bytes: int  # per element
    master: bool
    optimizer: Optimizer
    state_bytes: int = 4  # per element of the optimizer states
    adapter_bytes: int = ADAPTER_BYTES  # per element of an adapter
    recipe: Fp8Recipe | None = None  # of products in FP8


def persistent_lines(state: PersistentState, layout: Layout) -> dict[str, list[MemoryLine]]:
    """Return the memory lines of each kind."""
    trained = _trained(state)

    def line(
        kind: str, what: str, shards: Sequence[WeightShard], size: Bytes | int, note: str = ""
    ) -> MemoryLine:
        return _line(what, shards, size, note, _sharding(layout, kind))

    weights = [line("weights", "weights", state.shards, *_weight_rate(state))]
    if state.adapters is not None:
        weights.append(line("weights", "adapters", trained, state.adapter_bytes))
    if (
        (recipe := state.recipe) is not None
        and recipe.weight_copies
        and layout.zero < ZERO_STAGES["weights"]
    ):
        converted = [
            x
            for x in state.shards
            if x.role == "matmul" and x.pattern.startswith("layers.") and runs_in_fp8(x.pattern)
        ]
        note = f"{recipe.weight_copies} copies with their scales: as it is, and transposed"
        weights.append(
            line(
                "weights",
                "FP8 copies of weights",
                converted,
                lambda x: _copied_bytes(x, recipe),
                note,
            )
        )
    return {
        "weights": weights,
        "gradients": [line("gradients", "gradients", trained, state.gradient_bytes)],
        "master": [line("master", "master weights", trained, _MASTER_BYTES)]
        if state.master
        else [],
        "optimizer": [optimizer_line(state, layout)],
    }


def optimizer_line(state: PersistentState, layout: Layout) -> MemoryLine:
    """Return the memory line of the optimizer's states."""
    optimizer = state.optimizer
    states = (
        optimizer.per_element * state.state_bytes
        if optimizer.per_element is not None
        else lambda x: optimizer.states(x, state.state_bytes)
    )
    rule = "" if optimizer.per_element is not None else optimizer.formula.format(state.state_bytes)
    what = f"optimizer states, {optimizer.title}"
    return _line(what, _trained(state), states, rule, _sharding(layout, "optimizer"))


def _trained(state: PersistentState) -> list[WeightShard]:
    if state.adapters is not None:
        return state.adapters
    return [x for x in state.shards if not x.buffer]


def _sharding(layout: Layout, kind: str) -> Layout:
    """Return the layout for a kind of memory, which a ZeRO stage below its own does not shard."""
    return layout if layout.zero >= ZERO_STAGES[kind] else layout.replace(zero=0)


def _copied_bytes(x: WeightShard, recipe: Fp8Recipe) -> int:
    n = prod(x.shape)
    scales = (
        recipe.scale_bytes * -(-n // recipe.scale_block ** (1 if recipe.blackwell else 2))
        if recipe.scale_block
        else 0
    )
    return recipe.weight_copies * (n + scales)


def _weight_bytes(x: WeightShard, weight_sizes: dict[str, tuple[int, int]]) -> int:
    size, elements = weight_sizes.get(x.pattern) or weight_sizes["embed.weight"]
    return -(-size * prod(x.shape) // elements)


def _weight_rate(state: PersistentState) -> tuple[Bytes | int, str]:
    """Return the bytes of an element of every weight, or the bytes of each weight where they
    differ, with a note.
    """
    rates = {divmod(size, elements) for size, elements in state.weight_sizes.values()}
    if len(rates) == 1 and not (rate := rates.pop())[1]:
        return rate[0], ""
    return lambda x: _weight_bytes(x, state.weight_sizes), "Σ over the weights as stored"


def _line(
    what: str, shards: Sequence[WeightShard], size: Bytes | int, note: str, layout: Layout
) -> MemoryLine:
    """One line for all copies; ZeRO shards dense weights over more ranks than experts."""
    ranks = {
        False: layout.replicas if layout.zero else 1,
        True: layout.expert_replicas if layout.zero else 1,
    }
    parts = []
    for is_expert, over in ranks.items():
        same = [x for x in shards if x.is_expert == is_expert]
        if callable(size):
            whole = total(size(x) * x.copies for x in same)
        else:
            whole = product(
                (total(x.elements for x in same).written_as_number(), Expr.factor(size))
            )
        parts.append(written_ceil_div(whole, over) if whole else whole)
    notes = [*([note] if note else []), *(["the second of experts"] if all(parts) else [])]
    return MemoryLine(what=what, bytes=total(parts), note=", ".join(notes))


def zero3_gather_buffers(
    state: PersistentState, layers: Sequence[Sequence[WeightShard]], layout: Layout
) -> list[MemoryLine]:
    """Return what ZeRO-3 gathers: the current layer and the prefetched next one, and the weights
    outside of the layers.

    Those are one group of FSDP's root module, which frees them after the backward pass, not after
    the forward pass.
    """
    if layout.zero < 3 or layout.replicas == 1 or not layers:
        return []
    sizes = [[_weight_bytes(x, state.weight_sizes) * x.copies for x in layer] for layer in layers]
    kinds = {tuple(map(int, each)): sum(each) for each in sizes}
    largest = reduce(larger, kinds.values())
    outside = sum(
        _weight_bytes(x, state.weight_sizes) * x.copies
        for x in state.shards
        if not x.pattern.startswith("layers.")
    )
    gathers = minimum(layout.replicas - 1, 1)  # a single replica gathers nothing
    lines = [
        (
            "gathered weights",
            product((2, Expr.const(largest).alias("largest layer"), gathers)),
            _GATHERED_LAYERS,
        )
    ]
    if outside:
        root = product((Expr.const(outside).alias("embedding, last norm, head"), gathers))
        lines.append(
            ("gathered root group", root, "the weights outside of the layers, which stay gathered")
        )
    return [MemoryLine(what=what, bytes=size, note=note, exact=False) for what, size, note in lines]


def adapter_shards(lora: LoraAdapters, shards: Sequence[WeightShard]) -> list[WeightShard]:
    """Return one GPU's shards of A and B for each target, and of the fully trained matrices."""
    adapters = [
        y
        for matrix in lora.targets
        for x in _shards_of(matrix, shards)
        for y in _adapter_pair(matrix, x, matrix.ranks * lora.rank)
    ]
    fully_trained = [
        _full_copy(matrix, x) for matrix in lora.modules_to_save for x in _shards_of(matrix, shards)
    ]
    return adapters + fully_trained


def _shards_of(matrix: LinearMatrix, shards: Sequence[WeightShard]) -> list[WeightShard]:
    """The shards of the first part of a matrix."""
    same = [x for x in shards if x.pattern == f"{matrix.paths[0]}.weight"]
    return [x for x in same if len(matrix.paths) > 1 or prod(x.full_shape) == matrix.elements]


def _adapter_pair(matrix: LinearMatrix, x: WeightShard, rank: int) -> list[WeightShard]:
    """A `[r, in]` is sharded like the inputs of the matrix, B `[out, r]` like its outputs."""
    inputs = 0 if x.role == "lookup" else 1
    into, out = (
        _shard_size(n, x, axis)
        for n, axis in ((matrix.in_features, inputs), (matrix.out_features, 1 - inputs))
    )
    return [x._replace(shape=shape, role="matmul") for shape in ((rank, into), (out, rank))]


def _full_copy(matrix: LinearMatrix, x: WeightShard) -> WeightShard:
    rows = matrix.elements // x.full_shape[1]
    return x._replace(shape=(_shard_size(rows, x, 0), _shard_size(x.full_shape[1], x, 1)))


def _shard_size(n: int, x: WeightShard, axis: int) -> int:
    return -(-n * x.shape[axis] // x.full_shape[axis]) if x.axis == axis else n
