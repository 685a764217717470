"""The cost of one microbatch on one GPU, layer by layer: seconds of compute and memory traffic, and
bytes to communicate.

A matrix product takes its FLOPs at the share of the peak that large products reach, plus one pass
of its three operands through memory, so small products are slower. The rows of each expert are
padded to blocks of `EXPERT_BLOCK`. A backward pass has two such products. A fused attention kernel
runs at the share of the peak that it reaches for heads of this size and sequences of this length,
forward and backward; without one, the products of attention are matrix products whose scores pass
through memory. Everything else is memory-bound: saved activations are written once and read once.
The shares are published benchmarks of kernels (`hardware/kernels.json`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, prod
from typing import NamedTuple

from ....core.blocks import Layer
from ....core.tree import Block, Folded, fold, fold_field
from ....hardware import Device
from ....hardware.kernel_rates import BACKWARD_FLOPS, KernelRates
from ....questions.layout import Layout
from ...graph.node import Node
from ...graph.operations.saved_tensors import SavedTensor
from ...graph.recorder import Region, record
from ..memory.cache_bytes import cache_specs
from ..memory.speed_limits import find_roof
from ..training.fp8_recipes import Fp8Recipe, runs_in_fp8
from ..training.loss_memory import FLOAT32_BYTES, Loss, head_chunks
from ..training.pipeline_schedule import saved_bytes
from ..training.saved_activations import SavedActivations

ACTIVATION_PASSES = 2
"""The number of memory passes over saved activations besides the operands of products: one write
and one read."""
EXPERT_BLOCK = 128
"""The rows of an expert are padded to a multiple of this: the blocks of MegaBlocks (Gale et al.
2022, arXiv:2211.15841, §5.1) and the alignment of DeepGEMM's grouped products."""
_RECURRENCE_KEYS = 1024
"""Recurrences are computed in chunks, by products as small as those of attention over so many
tokens: an assumption."""


class PassCost(NamedTuple):
    """The cost of one microbatch in a part of the model, on one GPU: seconds of computation, and
    bytes to communicate in one pass.
    """

    forward: float = 0.0
    backward: float = 0.0
    again: float = 0.0  # computed again under full recomputation
    again_scores: float = 0.0  # under selective recomputation
    again_ops: float = 0.0  # under recomputation by operation
    tensor: float = 0.0  # bytes gathered or reduced among tensor-parallel ranks
    context: float = 0.0  # bytes of keys and values gathered among context-parallel ranks
    expert: float = 0.0  # bytes sent to the ranks of other experts and back
    fp8_weights: float = 0.0  # bytes moved to convert weights to FP8, once in a step

    def scaled(self, n: int) -> PassCost:
        """The cost of n such parts."""
        return PassCost(*(n * x for x in self))

    def seconds(self, recompute: str) -> float:
        """The computation of both passes under a recomputation policy."""
        return (
            self.forward
            + self.backward
            + {"full": self.again, "selective": self.again_scores, "op": self.again_ops}.get(
                recompute, 0.0
            )
        )


def sum_costs(parts: Iterable[PassCost]) -> PassCost:
    """Sum the costs of parts that run one after the other."""
    return PassCost(*map(sum, zip(*parts, strict=True)))


def _gathers_weights(layout: Layout) -> bool:
    return layout.zero == 3 and layout.replicas > 1


class AchievedRates(NamedTuple):
    """The FLOP/s and bytes/s of a GPU, and the shares of them that kernels reach."""

    peak: int  # FLOP/s of 16-bit products, or of those in the dtype of the weights
    fp8: int  # FLOP/s of FP8 products; 0: none
    memory: float  # bytes per second, reached
    matmul: float  # FLOP/s, reached
    matmul_fp8: float
    kernels: KernelRates


def achieved_rates(
    device: Device, dtype: str, compute: str, attention: str = "flash"
) -> AchievedRates | None:
    """Return the rates of a device; None where no FLOP/s figure is published."""
    roof, kernels = find_roof(device, dtype, compute), KernelRates(device, attention)
    if not roof.peak:
        return None
    fp8 = device.flops.get("fp8", 0)
    memory = kernels.memory * roof.bandwidth
    return AchievedRates(
        roof.peak,
        fp8,
        memory,
        kernels.matmul(roof.dtype) * roof.peak,
        kernels.matmul("fp8") * fp8,
        kernels,
    )


class _Product(NamedTuple):
    """The products with all copies of a weight that are on a GPU and active for its tokens, by
    one rank.
    """

    rows: float
    out: int
    into: int
    copies: int
    padded: float  # rows with those that fill the blocks of each expert

    @property
    def flops(self) -> float:
        """The FLOPs of one pass."""
        return 2 * self.padded * self.out * self.into


class MicrobatchCosts:
    """The costs of a model's parts on one kind of GPU; each part is computed once per layout."""

    def __init__(
        self,
        saved: SavedActivations,
        rates: AchievedRates,
        recipe: Fp8Recipe | None = None,
        loss: Loss = Loss(),  # noqa: B008
    ) -> None:
        self.saved, self.rates, self.recipe, self.loss = saved, rates, recipe, loss
        self.tree, self.kernels, self.context = saved.tree, saved.kernels, saved.kernels.context
        self._costs: dict[tuple[object, ...], PassCost] = {}
        self._folded: dict[int, Sequence[Folded]] = {}
        self._graph = record(self.tree, new_tokens=self.context)
        self._regions = {id(x.block): x for x in self._graph.layers}

    def key(self, layout: Layout) -> tuple[object, ...]:
        """The parts of a layout that decide the cost of a microbatch."""
        degrees = (layout.tp, layout.cp, layout.ep, layout.expert_tp, layout.microbatch)
        gathers = self.recipe is not None and _gathers_weights(layout)
        return (*degrees, layout.flash, layout.sequence_parallel, gathers)

    def layer_cost(self, block: Block, layout: Layout) -> PassCost:
        """Return the cost of one layer."""
        return self._cached_cost(id(block), block, layout)

    def embedding_and_head_cost(self, layout: Layout, first: bool, last: bool) -> PassCost:
        """Return the cost of the embedding and the head on a stage that has them."""
        head = self._cached_cost("ends", None, layout)
        rows = self._tokens(layout) * int(self.tree.width) * self.kernels.width
        shared = PassCost(tensor=rows if layout.tp > 1 else 0.0)
        return sum_costs([shared] * first + [head, shared] * last) if first or last else PassCost()

    def _cached_cost(self, what: object, block: Block | None, layout: Layout) -> PassCost:
        key = (what, *self.key(layout))
        if key not in self._costs:
            self._costs[key] = (
                self._head_cost(layout) if block is None else self._layer_cost(block, layout)
            )
        return self._costs[key]

    def _layer_cost(self, block: Block, layout: Layout) -> PassCost:
        assert isinstance(block, Layer)
        leaves = self._leaves(block)
        saved = self.saved.layer(block)
        rows = self._tokens(layout) * self.kernels.width
        products = [
            (x, *self._product_seconds(x, layout)) for x in leaves if x.weight.role == "matmul"
        ]
        matmul = sum(forward for _, forward, _, _ in products)
        attention, attention_backward = self._attention_seconds(self._regions[id(block)], layout)
        memory, scores = (
            self._memory_seconds(saved, layout),
            self._memory_seconds([x for x in saved if x.is_score], layout),
        )
        kept = self.saved.kept_products(block)
        return PassCost(
            forward=matmul + attention + memory,
            backward=sum(backward for _, _, backward, _ in products)
            + attention_backward
            + 2 * memory,
            again=matmul + attention + memory,
            again_scores=attention + scores,
            again_ops=sum(forward for x, forward, _, _ in products if x.pattern not in kept)
            + memory,
            tensor=2 * _num_parallel_regions(block, leaves, layout) * rows * int(self.tree.width)
            if layout.tp > 1
            else 0.0,
            context=self._kv_bytes(block, layout) if layout.cp > 1 else 0.0,
            expert=2 * rows * _elements_sent_to_experts(leaves) * layout.expert_tp / layout.tp
            if layout.ep > 1
            else 0.0,
            fp8_weights=sum(once for _, _, _, once in products),
        )

    def _leaves(self, block: Block) -> Sequence[Folded]:
        if id(block) not in self._folded:
            self._folded[id(block)] = fold(block, depth=1)
        return self._folded[id(block)]

    def _head_cost(self, layout: Layout) -> PassCost:
        """The cost of the final norm, the head and the loss."""
        if self.tree.head is None:
            return PassCost()
        leaves = [x for x in fold_field(self.tree, "head") if x.weight.role == "matmul"]
        around = self._memory_seconds(self.saved.head, layout)
        forward, backward = self._loss_seconds(layout)
        for x in leaves:
            product = self._product(x, layout)
            chunks = head_chunks(
                self.loss, self.saved.loss, int(self.tree.width), layout, self.context
            )
            product = product._replace(copies=product.copies * chunks)
            each = self._plain_seconds(product)
            # every chunk after the first adds its gradient of the weight to that of the others
            width = FLOAT32_BYTES if self.loss.kind == "liger" else self.kernels.width
            added = (chunks - 1) * 3 * width * product.out * product.into / self.rates.memory
            forward, backward = forward + each, backward + 2 * each + added
        return PassCost(forward=forward + around, backward=backward + 2 * around)

    def _loss_seconds(self, layout: Layout) -> tuple[float, float]:
        """Seconds in which the loss moves logits through memory, forward and backward."""
        # one kernel reads the logits, and one writes their gradients
        if self.loss.kind in ("fused", "liger"):
            logits = (
                self._memory_seconds(
                    [self.saved.loss[0]._replace(bytes=self.kernels.width)], layout
                )
                / ACTIVATION_PASSES
            )
            return logits, 2 * logits
        memory = self._memory_seconds(self.saved.loss, layout)
        return memory, 2 * memory

    def _tokens(self, layout: Layout) -> int:
        """The tokens of a microbatch on one GPU, before sequence parallelism splits them."""
        return layout.microbatch * -(-self.context // layout.cp)

    def _product(self, x: Folded, layout: Layout) -> _Product:
        out, into = int(x.weight.shape[0]), prod(map(int, x.weight.shape[1:]))
        ranks = layout.expert_tp if x.num_experts else layout.tp
        if x.split and ranks > 1:
            parts = min(ranks, x.split.parts) if x.split.on_indivisible == "copy" else ranks
            out, into = (-(-out // parts), into) if x.split.axis == 0 else (out, -(-into // parts))
        rows, copies = float(self._tokens(layout) * int(x.active)), int(x.copies)
        if not x.num_experts:
            return _Product(rows, out, into, copies, rows)
        rows, copies = rows * layout.expert_tp / layout.tp, copies // layout.ep
        return _Product(
            rows, out, into, copies, copies * EXPERT_BLOCK * ceil(rows / copies / EXPERT_BLOCK)
        )

    def _plain_seconds(self, x: _Product) -> float:
        """Seconds of a product in the dtype of the activations."""
        bytes_moved = self.kernels.width * (x.rows * (x.out + x.into) + x.copies * x.out * x.into)
        return x.flops / self.rates.matmul + bytes_moved / self.rates.memory

    def _product_seconds(self, leaf: Folded, layout: Layout) -> tuple[float, float, float]:
        """Seconds of the products with a weight, forward and backward, and the bytes moved once
        in a step to convert it.
        """
        x, recipe = self._product(leaf, layout), self.recipe
        if recipe is None or not runs_in_fp8(leaf.pattern):
            return (each := self._plain_seconds(x)), 2 * each, 0.0
        inputs, outputs, weights = x.rows * x.into, x.rows * x.out, x.copies * x.out * x.into
        wide = self.kernels.width
        # each rank converts its shard before it is gathered
        in_shards = recipe.gathers_fp8 and _gathers_weights(layout)
        again = 0.0 if recipe.once or in_shards else recipe.weight * weights
        forward = recipe.input_forward * inputs + again + inputs + weights + wide * outputs
        backward = recipe.input_backward * inputs + recipe.gradient * outputs + again
        backward += outputs + weights + wide * inputs + outputs + inputs + wide * weights
        flops, memory = x.flops / self.rates.matmul_fp8, self.rates.memory
        return (
            flops + forward / memory,
            2 * flops + backward / memory,
            recipe.weight * weights if recipe.once else 0.0,
        )

    def _attention_seconds(self, region: Region, layout: Layout) -> tuple[float, float]:
        """Seconds of attention and recurrence, forward and backward."""
        forward = backward = 0.0
        for node in region.nodes:
            if node.op.mixing:
                first, second = (self._fused_seconds if layout.flash else self._eager_seconds)(node)
                forward, backward = (
                    forward + first,
                    backward + (0.0 if node.without_gradient else second),
                )
        shared = layout.microbatch / (layout.tp * layout.cp)
        return forward * shared, backward * shared

    def _fused_seconds(self, node: Node) -> tuple[float, float]:
        rule = node.op.flops
        assert rule is not None
        flops, rates = int(rule(node, True)), self.rates
        if not node.op.is_attention:
            share = rates.kernels.attention(128, _RECURRENCE_KEYS, causal=True)
            return flops / (share.forward * rates.peak), 2 * flops / (share.backward * rates.peak)
        whole, sizes = int(rule(node, False)), int(node.inputs[0].shape[-1]) + int(node.shape[-1])
        pairs = flops / (2 * int(node.shape[0]) * int(node.shape[2]) * sizes)
        share = rates.kernels.attention(
            sizes // 2, pairs / int(node.shape[1]), causal=flops < whole
        )
        return flops / (share.forward * rates.peak), BACKWARD_FLOPS * flops / (
            share.backward * rates.peak
        )

    def _eager_seconds(self, node: Node) -> tuple[float, float]:
        """Seconds of matrix products whose scores are written to memory and read."""
        rule = node.op.flops
        assert rule is not None
        if not node.op.is_attention:
            return self._fused_seconds(node)
        flops, sizes = int(rule(node, False)), int(node.inputs[0].shape[-1]) + int(node.shape[-1])
        scores, vectors = flops / (2 * sizes), int(node.size) + int(node.inputs[0].size)
        seconds = (
            flops / self.rates.matmul
            + self.kernels.width * (2 * scores + 2 * vectors) / self.rates.memory
        )
        return seconds, 2 * seconds

    def _memory_seconds(self, saved: Iterable[SavedTensor], layout: Layout) -> float:
        return (
            ACTIVATION_PASSES
            * sum(saved_bytes(x, layout, self.context) for x in saved)
            / self.rates.memory
        )

    def _kv_bytes(self, block: Block, layout: Layout) -> float:
        """Bytes of the keys and values of the whole context that one rank needs."""
        specs = cache_specs(self._graph, layout.tp, {id(block): 1})
        elements = sum(sum(map(int, x.rows)) * x.tokens(self.context) for x in specs)
        return layout.microbatch * elements * self.kernels.width


def _num_parallel_regions(block: Layer, leaves: Sequence[Folded], layout: Layout) -> int:
    """The number of times that a layer leaves the sequence-parallel region: once per split
    branch, once for parallel branches.
    """
    branches = {
        x.pattern.partition(".")[0]
        for x in leaves
        if x.split and not (x.num_experts and layout.expert_tp == 1)
    }
    return min(len(branches), 1) if block.parallel else len(branches)


def _elements_sent_to_experts(leaves: Sequence[Folded]) -> int:
    """The number of elements that each token sends to its experts."""
    return max(
        (
            int(x.active) * int(x.weight.shape[0])
            for x in leaves
            if x.num_experts and x.split and x.split.axis == 1
        ),
        default=0,
    )
