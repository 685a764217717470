"""What stays on a GPU from step to step: weights, gradients, the master copy, the optimiser's states, shared as ZeRO says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from ..memory_line import MemoryLine
from ..parallel_layout import Layout, WeightShard
from .lora_adapters import LinearMatrix, LoraAdapters
from .optimizers import Optimizer

MASTER_BYTES = 4
ADAPTER_BYTES = 4
"""Bytes of an adapter's number: peft keeps them in float32 beside a model in 16 bits."""

Bytes = Callable[[WeightShard], int]
"""What one copy of a piece takes."""


class PersistentState(NamedTuple):
    """What a GPU holds and trains, and how."""

    shards: list[WeightShard]  # of the model
    adapters: list[WeightShard] | None  # what is trained beside it; None: the model itself is
    weight_sizes: dict[str, tuple[int, int]]  # pattern → (bytes, numbers) of one copy of a weight
    gradient_bytes: int  # bytes of one
    master: bool
    optimizer: Optimizer
    state_bytes: int = 4  # bytes of a number in its states


def persistent_lines(held: PersistentState, layout: Layout) -> dict[str, list[MemoryLine]]:
    """The lines of each kind."""
    trained = [x for x in held.shards if not x.buffer] if held.adapters is None else held.adapters

    def each(what: str, found: Sequence[WeightShard], size: Bytes, said: str, stage: int) -> MemoryLine:
        return _line(what, found, size, said, layout if layout.zero >= stage else layout.replace(zero=0))

    title, moments = held.optimizer.title, held.optimizer.formula.format(held.state_bytes)
    weights = [each("weights", held.shards, lambda x: _weight_bytes(x, held.weight_sizes), _weight_formula(held), 3)]
    if held.adapters is not None:
        weights.append(each("adapters", trained, lambda x: ADAPTER_BYTES * prod(x.shape), f"N·{ADAPTER_BYTES}", 3))
    return {
        "weights": weights,
        "gradients": [each("gradients", trained, lambda x: held.gradient_bytes * prod(x.shape), f"N·{held.gradient_bytes}", 2)],
        "master": [each("master weights", trained, lambda x: MASTER_BYTES * prod(x.shape), f"N·{MASTER_BYTES}", 1)] if held.master else [],
        "optimizer": [each(f"optimiser states, {title}", trained, lambda x: held.optimizer.states(x, held.state_bytes), moments, 1)],
    }


def _weight_bytes(x: WeightShard, kept: dict[str, tuple[int, int]]) -> int:
    size, numbers = kept.get(x.pattern) or kept["embed.weight"]
    return -(-size * prod(x.shape) // numbers)


def _weight_formula(held: PersistentState) -> str:
    rates = {size / numbers for size, numbers in held.weight_sizes.values()}
    return f"N·{rates.pop():g}" if len(rates) == 1 else "Σ over the weights, as each is kept"


def _line(what: str, found: Sequence[WeightShard], size: Bytes, said: str, layout: Layout) -> MemoryLine:
    """All copies together, shared among replicas: dense weights among more ranks than experts."""
    sums = {dealt: sum(size(x) * x.copies for x in found if x.is_expert == dealt) for dealt in (False, True)}
    numbers = {dealt: sum(x.elements for x in found if x.is_expert == dealt) for dealt in (False, True)}
    ranks = {False: layout.replicas if layout.zero else 1, True: layout.expert_replicas if layout.zero else 1}
    parts = [f"{numbers[x]:,}" + (f"/{ranks[x]}" if ranks[x] > 1 else "") for x in (False, True) if numbers[x]]
    many = "experts " if numbers[True] and numbers[False] else ""
    text = f"{said}, N = {parts[0]}" + (f" + {many}{parts[1]}" if len(parts) > 1 else "") if parts else said
    return MemoryLine(what=what, bytes=sum(-(-sums[x] // ranks[x]) for x in sums), formula=text)


def zero3_gather_buffers(held: PersistentState, layers: Sequence[Sequence[WeightShard]], layout: Layout) -> list[MemoryLine]:
    """Under ZeRO-3, the layer that is being worked on and the next, whole again."""
    if layout.zero < 3 or layout.replicas == 1 or not layers:
        return []
    largest = max(sum(_weight_bytes(x, held.weight_sizes) * x.copies for x in layer) for layer in layers)
    said = "two layers at once, whole: one at work, the next on its way"
    return [MemoryLine(what="gathered weights", bytes=2 * largest, formula=said, exact=False)]


def adapter_shards(lora: LoraAdapters, found: Sequence[WeightShard]) -> list[WeightShard]:
    """A and B of each adapted matrix as one GPU has them, and copies of the matrices that are trained whole."""
    made = [y for matrix in lora.targets for x in _shards_of(matrix, found) for y in _adapter_pair(matrix, x, lora.rank)]
    whole = [_full_copy(matrix, x) for matrix in lora.modules_to_save for x in _shards_of(matrix, found)]
    return made + whole


def _shards_of(matrix: LinearMatrix, found: Sequence[WeightShard]) -> list[WeightShard]:
    """The pieces that a matrix begins with."""
    same = [x for x in found if x.pattern == f"{matrix.paths[0]}.weight"]
    return [x for x in same if len(matrix.paths) > 1 or prod(x.full_shape) == matrix.elements]


def _adapter_pair(matrix: LinearMatrix, x: WeightShard, rank: int) -> list[WeightShard]:
    """A `[r, in]` is cut where the matrix's inputs are, B `[out, r]` where its outputs are."""
    inputs = 0 if x.role == "lookup" else 1
    into, out = (_shard_size(n, x, axis) for n, axis in ((matrix.in_features, inputs), (matrix.out_features, 1 - inputs)))
    return [x._replace(shape=shape, role="matmul") for shape in ((rank, into), (out, rank))]


def _full_copy(matrix: LinearMatrix, x: WeightShard) -> WeightShard:
    rows = matrix.elements // x.full_shape[1]
    return x._replace(shape=(_shard_size(rows, x, 0), _shard_size(x.full_shape[1], x, 1)))


def _shard_size(n: int, x: WeightShard, axis: int) -> int:
    return -(-n * x.shape[axis] // x.full_shape[axis]) if x.axis == axis else n
