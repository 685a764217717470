"""The cost of one microbatch on one GPU, layer by layer: seconds of compute and memory traffic, and bytes to communicate.

A matrix product takes its FLOPs at `MATMUL_EFFICIENCY` of the peak plus one pass of its three operands through memory, so small products
are slower. Attention products run at `ATTENTION_EFFICIENCY` of the peak. Everything else is memory-bound: saved activations are written
once and read once. A backward pass costs two forward passes; fused attention costs two and a half, since the kernel recomputes its scores
(Dao 2023, arXiv:2307.08691).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from ...core.blocks import Layer
from ...core.tree import Block, Folded, fold, fold_field
from ...hardware import Device
from ..flops.flop_count import list_flops
from ..graph.recorder import Region, record
from ..graph.saved_rules import SavedTensor
from ..inference.cache_bytes import cache_specs
from ..inference.speed_limits import find_roof
from ..parallel_layout import Layout
from ..training.pipeline_schedule import saved_bytes
from ..training.saved_activations import SavedActivations

MATMUL_EFFICIENCY = 0.70
"""The fraction of the dense peak that a large matrix product reaches; set by hand from Llama 3's table 4 (arXiv:2407.21783)."""
ATTENTION_EFFICIENCY = 0.45
"""The fraction of the dense peak that attention products reach; set by hand from the row of the same table with 131,072 tokens."""
ACTIVATION_PASSES = 2
"""The number of memory passes over saved activations besides the operands of products: one write and one read."""


class ForwardCost(NamedTuple):
    """The cost of a forward pass of one microbatch through a part of the model, on one GPU."""

    matmul: float = 0.0  # seconds in products with weights
    attention: float = 0.0  # seconds in attention products
    memory: float = 0.0  # seconds of memory-bound operations
    scores: float = 0.0  # of these, for materialized attention scores
    tensor: float = 0.0  # bytes gathered or reduced among tensor-parallel ranks
    context: float = 0.0  # bytes of keys and values gathered among context-parallel ranks
    expert: float = 0.0  # bytes sent to the ranks of other experts and back

    def scaled(self, n: int) -> ForwardCost:
        """The cost of n such parts."""
        return ForwardCost(*(n * x for x in self))


def sum_costs(parts: Iterable[ForwardCost]) -> ForwardCost:
    """Sum the costs of parts that run one after the other."""
    return ForwardCost(*map(sum, zip(*parts, strict=True)))


class _AchievedRates(NamedTuple):
    """The FLOP/s and bytes/s that a GPU reaches in practice."""

    matmul: float
    attention: float
    memory: float


def achieved_rates(device: Device, dtype: str, compute: str) -> _AchievedRates | None:
    """Return the rates of a device; None where no FLOP/s figure is published."""
    roof = find_roof(device, dtype, compute)
    return _AchievedRates(MATMUL_EFFICIENCY * roof.peak, ATTENTION_EFFICIENCY * roof.peak, roof.bandwidth) if roof.peak else None


class MicrobatchCosts:
    """The costs of a model's parts on one kind of GPU; each part is computed once per layout."""

    def __init__(self, saved: SavedActivations, rates: _AchievedRates) -> None:
        self.saved, self.rates = saved, rates
        self.tree, self.kernels, self.context = saved.tree, saved.kernels, saved.kernels.context
        self._costs: dict[tuple[object, ...], ForwardCost] = {}
        self._folded: dict[int, Sequence[Folded]] = {}
        self._graph = record(self.tree, new_tokens=self.context)
        self._regions = {id(x.block): x for x in self._graph.layers}

    def layer_cost(self, block: Block, layout: Layout) -> ForwardCost:
        """Return the cost of one layer."""
        return self._cached_cost(id(block), block, layout)

    def embedding_and_head_cost(self, layout: Layout, first: bool, last: bool) -> ForwardCost:
        """Return the cost of the embedding and the head on a stage that has them."""
        head = self._cached_cost("ends", None, layout)
        rows = self._tokens(layout) * int(self.tree.width) * self.kernels.width
        shared = ForwardCost(tensor=rows if layout.tp > 1 else 0.0)
        return sum_costs([shared] * first + [head, shared] * last) if first or last else ForwardCost()

    def _cached_cost(self, what: object, block: Block | None, layout: Layout) -> ForwardCost:
        key = (what, layout.tp, layout.cp, layout.ep, layout.expert_tp, layout.microbatch, layout.flash, layout.sequence_parallel)
        if key not in self._costs:
            self._costs[key] = self._head_cost(layout) if block is None else self._layer_cost(block, layout)
        return self._costs[key]

    def _layer_cost(self, block: Block, layout: Layout) -> ForwardCost:
        assert isinstance(block, Layer)
        leaves = self._leaves(block)
        saved = self.saved.layer(block)
        rows = self._tokens(layout) * self.kernels.width
        return ForwardCost(
            matmul=sum(self._matmul_seconds(x, layout) for x in leaves if x.weight.role == "matmul"),
            attention=self._attention_flops(self._regions[id(block)], layout) / self.rates.attention,
            memory=self._memory_seconds(saved, layout),
            scores=self._memory_seconds([x for x in saved if x.is_score], layout),
            tensor=2 * _num_parallel_regions(block, leaves, layout) * rows * int(self.tree.width) if layout.tp > 1 else 0.0,
            context=self._kv_bytes(block, layout) if layout.cp > 1 else 0.0,
            expert=2 * rows * _elements_sent_to_experts(leaves) * layout.expert_tp / layout.tp if layout.ep > 1 else 0.0,
        )

    def _leaves(self, block: Block) -> Sequence[Folded]:
        if id(block) not in self._folded:
            self._folded[id(block)] = fold(block, depth=1)
        return self._folded[id(block)]

    def _head_cost(self, layout: Layout) -> ForwardCost:
        if self.tree.head is None:
            return ForwardCost()
        leaves = fold_field(self.tree, "head")
        saved = (*self.saved.head, *self.saved.loss)
        return ForwardCost(
            matmul=sum(self._matmul_seconds(x, layout) for x in leaves if x.weight.role == "matmul"),
            memory=self._memory_seconds(saved, layout),
        )

    def _tokens(self, layout: Layout) -> int:
        """The tokens of a microbatch on one GPU, before sequence parallelism splits them."""
        return layout.microbatch * -(-self.context // layout.cp)

    def _matmul_seconds(self, x: Folded, layout: Layout) -> float:
        """Seconds of the products with all copies of a weight that are on a GPU and active for its tokens."""
        out, into = int(x.weight.shape[0]), prod(map(int, x.weight.shape[1:]))
        ranks = layout.expert_tp if x.num_experts else layout.tp
        if x.split and ranks > 1:
            parts = min(ranks, x.split.parts) if x.split.on_indivisible == "copy" else ranks
            out, into = (-(-out // parts), into) if x.split.axis == 0 else (out, -(-into // parts))
        rows, copies = float(self._tokens(layout) * int(x.active)), int(x.copies)
        if x.num_experts:
            rows, copies = rows * layout.expert_tp / layout.tp, copies // layout.ep
        bytes_moved = self.kernels.width * (rows * (out + into) + copies * out * into)
        return 2 * rows * out * into / self.rates.matmul + bytes_moved / self.rates.memory

    def _attention_flops(self, region: Region, layout: Layout) -> float:
        """FLOPs of attention and recurrence; a kernel that materializes scores also computes the masked ones."""
        flops = sum(int(x.flops) for x in list_flops(region, masked=layout.flash) if x.mixing)
        return flops * layout.microbatch / (layout.tp * layout.cp)

    def _memory_seconds(self, saved: Iterable[SavedTensor], layout: Layout) -> float:
        return ACTIVATION_PASSES * sum(saved_bytes(x, layout, self.context) for x in saved) / self.rates.memory

    def _kv_bytes(self, block: Block, layout: Layout) -> float:
        """Bytes of the keys and values of the whole context that one rank needs."""
        specs = cache_specs(self._graph, layout.tp, {id(block): 1})
        elements = sum(sum(map(int, x.rows)) * x.tokens(self.context) for x in specs)
        return layout.microbatch * elements * self.kernels.width


def _num_parallel_regions(block: Layer, leaves: Sequence[Folded], layout: Layout) -> int:
    """The number of times that a layer leaves the sequence-parallel region: once per split branch, once for parallel branches."""
    branches = {x.pattern.partition(".")[0] for x in leaves if x.split and not (x.num_experts and layout.expert_tp == 1)}
    return min(len(branches), 1) if block.parallel else len(branches)


def _elements_sent_to_experts(leaves: Sequence[Folded]) -> int:
    """The number of elements that each token sends to its experts."""
    return max((int(x.active) * int(x.weight.shape[0]) for x in leaves if x.num_experts and x.split and x.split.axis == 1), default=0)
