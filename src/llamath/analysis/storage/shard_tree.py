"""`shard_tree`: the weights of one rank under tensor parallelism.

Weights are cut as their blocks declare (`Block.cuts`), as vLLM and Megatron load them: heads and
channels by rank, key/value heads copied where there are more ranks, embedding and head cut by rows,
with rows of zeros appended where the ranks do not divide them. Everything else is a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from ...checkpoint.tensor_parallel_shard import TensorParallelShard, parse_shard
from ...core.blocks import TOWER_FIELDS, Attention, Decoder
from ...core.expr import Expr
from ...core.mixers import GatedDeltaNet, Mamba2
from ...core.tree import Block, Split, Stack, Weight
from ...model import FamilyModel
from ...questions.layout import Layout
from ...utils.errors import Call, LlamathError, Name, safe
from .parallel_layout import check_layout

_CONVOLVED = {GatedDeltaNet: ("query", "key", "value"), Mamba2: ("x", "b", "c")}
"""Mixers whose convolution has the channels of several projections, one after another."""


class WeightCut(NamedTuple):
    """The part of a weight on one rank: half-open ranges along an axis, and rows of zeros after
    them.
    """

    axis: int
    ranges: tuple[tuple[int, int], ...]
    appended: int = 0

    @property
    def size(self) -> int:
        """The length of the axis on this rank."""
        return sum(b - a for a, b in self.ranges) + self.appended


def shard_of(model: FamilyModel) -> TensorParallelShard | None:
    """Return the shard that a config describes; None if it describes a whole checkpoint."""
    return parse_shard(model.config.data, model.config.source)


def reject_shard(model: FamilyModel, path: str) -> None:
    """Raise if a checkpoint is one rank's part of a model."""
    if (shard := shard_of(model)) is not None:
        raise LlamathError(
            f"{safe(path)} is {shard}",
            hint="join the ranks: "
            f"{Call('convert', Name('source'), Name('target'), edit='join_shards=yes')}",
        )


def check_shardable(tree: Decoder, ranks: int) -> None:
    """Raise if a model cannot be cut for a number of ranks."""
    check_layout(tree, Layout(tp=ranks))
    blocks = (x for layer, _ in tree.layers.distinct() for x in (getattr(layer, "attn", None),))
    if any(
        isinstance(x, Attention) and (isinstance(x.q_norm, Stack) or isinstance(x.k_norm, Stack))
        for x in blocks
    ):
        raise LlamathError("tensor parallelism is not supported for per-head norms")


def weight_cuts(
    block: Block, shard: TensorParallelShard, prefix: str = "", depth: int = 0
) -> dict[str, WeightCut]:
    """Return the cuts of the weights of a block by path pattern; in stacks inside it, `{e}` stands
    for the number.

    Every rank has the towers of a multimodal model whole.
    """
    cuts: dict[str, WeightCut] = {}
    for name in block.fields:
        if name in TOWER_FIELDS and isinstance(block, Decoder):
            continue
        child = getattr(block, name)
        path = f"{prefix}{name}"
        if isinstance(child, Weight):
            cuts |= _cut_weight(path, block, name, child, shard)
        elif isinstance(child, Block):
            cuts |= weight_cuts(child, shard, f"{path}.", depth)
            for leaf in child.fields:
                if isinstance(weight := getattr(child, leaf), Weight):
                    cuts |= _cut_weight(f"{path}.{leaf}", block, name, weight, shard)
        elif isinstance(child, Stack) and not (isinstance(block, Decoder)):
            for inner, _ in child.distinct():
                cuts |= weight_cuts(inner, shard, f"{path}.{{e}}.", depth + 1)
    return cuts


def shard_tree(tree: Decoder, shard: TensorParallelShard) -> Decoder:
    """Return the tree with the shapes of the weights on one rank; its facts stay those of the
    whole model.
    """
    memo: dict[int, Block] = {}

    def cut_block(block: Block) -> Block:
        if id(block) not in memo:
            memo[id(block)] = _with_cuts(block, weight_cuts(block, shard), "")
        return memo[id(block)]

    changes = {
        name: stack.with_blocks(cut_block)
        for name in ("layers", "mtp")
        if isinstance(stack := getattr(tree, name), Stack)
    }
    cut = _with_cuts(tree, weight_cuts(tree, shard), "")
    assert isinstance(cut, Decoder)
    return cut.replace(**changes)


def _with_cuts(block: Block, cuts: Mapping[str, WeightCut], prefix: str) -> Block:
    changes: dict[str, Any] = {}
    for name in block.fields:
        child = getattr(block, name)
        path = f"{prefix}{name}"
        if isinstance(child, Weight) and (cut := cuts.get(path)):
            shape = list(child.shape)
            shape[cut.axis] = Expr.const(cut.size)
            changes[name] = child.replace(shape=tuple(shape))
        elif isinstance(child, Block):
            changes[name] = _with_cuts(child, cuts, f"{path}.")
        elif isinstance(child, Stack) and not isinstance(block, Decoder):
            changes[name] = child.with_blocks(
                partial(_with_cuts, cuts=cuts, prefix=f"{path}.{{e}}.")
            )
    return block.replace(**changes) if changes else block


def _cut_weight(
    path: str, block: Block, name: str, weight: Weight, shard: TensorParallelShard
) -> dict[str, WeightCut]:
    split = block.split(name, weight)
    if split is None:
        return {}
    parts = _CONVOLVED.get(type(block), ()) if name == "conv" else ()
    if not parts:
        return {
            path: WeightCut(split.axis, *_rank_range(split, int(weight.shape[split.axis]), shard))
        }
    ranges: list[tuple[int, int]] = []
    start = 0
    for part in parts:
        projection = getattr(block, part).weight
        own = block.split(part, projection)
        assert own is not None and own.axis == 0
        for first, last in _rank_range(own, int(projection.shape[0]), shard)[0]:
            ranges.append((start + first, start + last))
        start += int(projection.shape[0])
    return {path: WeightCut(0, tuple(ranges))}


def _rank_range(
    split: Split, size: int, shard: TensorParallelShard
) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return the part of an axis on one rank, and the number of rows of zeros after it."""
    rank, ranks = shard
    if split.on_indivisible == "pad":
        step = -(-size // ranks)
        first, last = min(rank * step, size), min((rank + 1) * step, size)
        return (((first, last),) if first < last else ()), step - (last - first)
    shards = min(ranks, split.parts)  # with fewer units than ranks, neighbouring ranks hold copies
    each, at = size // shards, rank * shards // ranks
    return ((at * each, (at + 1) * each),), 0
