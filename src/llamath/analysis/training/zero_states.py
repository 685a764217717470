"""The memory that persists from step to step: weights, gradients, master copy and optimizer states, sharded by ZeRO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from ..memory_line import MemoryLine
from ..parallel_layout import Layout, WeightShard
from .lora_adapters import LinearMatrix, LoraAdapters
from .optimizers import Optimizer

_MASTER_BYTES = 4
ADAPTER_BYTES = 4
"""Bytes per adapter parameter: peft keeps adapters in float32, even for a 16-bit model."""

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


def persistent_lines(held: PersistentState, layout: Layout) -> dict[str, list[MemoryLine]]:
    """Return the memory lines of each kind."""
    trained = [x for x in held.shards if not x.buffer] if held.adapters is None else held.adapters

    def each(what: str, found: Sequence[WeightShard], size: Bytes, note: str, stage: int) -> MemoryLine:
        return _line(what, found, size, note, layout if layout.zero >= stage else layout.replace(zero=0))

    title, moments = held.optimizer.title, held.optimizer.formula.format(held.state_bytes)
    weights = [each("weights", held.shards, lambda x: _weight_bytes(x, held.weight_sizes), _weight_formula(held), 3)]
    if held.adapters is not None:
        weights.append(each("adapters", trained, lambda x: ADAPTER_BYTES * prod(x.shape), f"N·{ADAPTER_BYTES}", 3))
    return {
        "weights": weights,
        "gradients": [each("gradients", trained, lambda x: held.gradient_bytes * prod(x.shape), f"N·{held.gradient_bytes}", 2)],
        "master": [each("master weights", trained, lambda x: _MASTER_BYTES * prod(x.shape), f"N·{_MASTER_BYTES}", 1)]
        if held.master
        else [],
        "optimizer": [each(f"optimizer states, {title}", trained, lambda x: held.optimizer.states(x, held.state_bytes), moments, 1)],
    }


def _weight_bytes(x: WeightShard, kept: dict[str, tuple[int, int]]) -> int:
    size, numbers = kept.get(x.pattern) or kept["embed.weight"]
    return -(-size * prod(x.shape) // numbers)


def _weight_formula(held: PersistentState) -> str:
    rates = {size / numbers for size, numbers in held.weight_sizes.values()}
    return f"N·{rates.pop():g}" if len(rates) == 1 else "Σ over the weights as stored"


def _line(what: str, found: Sequence[WeightShard], size: Bytes, note: str, layout: Layout) -> MemoryLine:
    """One line for all copies; ZeRO shards dense weights over more ranks than experts."""
    sums = {dealt: sum(size(x) * x.copies for x in found if x.is_expert == dealt) for dealt in (False, True)}
    numbers = {dealt: sum(x.elements for x in found if x.is_expert == dealt) for dealt in (False, True)}
    ranks = {False: layout.replicas if layout.zero else 1, True: layout.expert_replicas if layout.zero else 1}
    parts = [f"{numbers[x]:,}" + (f"/{ranks[x]}" if ranks[x] > 1 else "") for x in (False, True) if numbers[x]]
    many = "experts " if numbers[True] and numbers[False] else ""
    text = f"{note}, N = {parts[0]}" + (f" + {many}{parts[1]}" if len(parts) > 1 else "") if parts else note
    return MemoryLine(what=what, bytes=sum(-(-sums[x] // ranks[x]) for x in sums), formula=text)


def zero3_gather_buffers(held: PersistentState, layers: Sequence[Sequence[WeightShard]], layout: Layout) -> list[MemoryLine]:
    """Return the gathered weights of two layers under ZeRO-3: the current layer and the prefetched next one."""
    if layout.zero < 3 or layout.replicas == 1 or not layers:
        return []
    largest = max(sum(_weight_bytes(x, held.weight_sizes) * x.copies for x in layer) for layer in layers)
    note = "two whole layers: the current one and the prefetched next one"
    return [MemoryLine(what="gathered weights", bytes=2 * largest, formula=note, exact=False)]


def adapter_shards(lora: LoraAdapters, found: Sequence[WeightShard]) -> list[WeightShard]:
    """Return one GPU's shards of A and B for each target, and of the fully trained matrices."""
    made = [y for matrix in lora.targets for x in _shards_of(matrix, found) for y in _adapter_pair(matrix, x, lora.rank)]
    whole = [_full_copy(matrix, x) for matrix in lora.modules_to_save for x in _shards_of(matrix, found)]
    return made + whole


def _shards_of(matrix: LinearMatrix, found: Sequence[WeightShard]) -> list[WeightShard]:
    """The shards of the first part of a matrix."""
    same = [x for x in found if x.pattern == f"{matrix.paths[0]}.weight"]
    return [x for x in same if len(matrix.paths) > 1 or prod(x.full_shape) == matrix.elements]


def _adapter_pair(matrix: LinearMatrix, x: WeightShard, rank: int) -> list[WeightShard]:
    """A `[r, in]` is sharded like the inputs of the matrix, B `[out, r]` like its outputs."""
    inputs = 0 if x.role == "lookup" else 1
    into, out = (_shard_size(n, x, axis) for n, axis in ((matrix.in_features, inputs), (matrix.out_features, 1 - inputs)))
    return [x._replace(shape=shape, role="matmul") for shape in ((rank, into), (out, rank))]


def _full_copy(matrix: LinearMatrix, x: WeightShard) -> WeightShard:
    rows = matrix.elements // x.full_shape[1]
    return x._replace(shape=(_shard_size(rows, x, 0), _shard_size(x.full_shape[1], x, 1)))


def _shard_size(n: int, x: WeightShard, axis: int) -> int:
    return -(-n * x.shape[axis] // x.full_shape[axis]) if x.axis == axis else n
