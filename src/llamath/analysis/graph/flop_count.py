"""The FLOPs of a forward pass and of a training step, summed over the operations of a graph.

A multiply-add counts as two operations. Only matrix products, convolutions and state updates are
counted, by the rows in `analysis.graph.operations`. Counts are exact, as expressions over the
model's dimensions, B sequences, T new tokens and P earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

from ...core.expr import Expr, product, total
from ...utils.record_type import Record
from .recorder import Graph, Region

Recompute = Literal["none", "selective", "full"]


class Flops(Record):
    """The FLOPs of a pass by group: products with weights, and the mixing of tokens (attention
    scores and values, recurrent states).
    """

    weights: Mapping[str, Expr]
    mixing: Mapping[str, Expr]

    @cached_property
    def total(self) -> Expr:
        """The total."""
        return total((*self.weights.values(), *self.mixing.values()))

    @cached_property
    def mixing_total(self) -> Expr:
        """The FLOPs of mixing: attention scores and values, and recurrent states."""
        return total(self.mixing.values())

    @property
    def by_group(self) -> Mapping[str, Mapping[str, int]]:
        """FLOPs of weights and of mixing, by group."""
        names = dict.fromkeys((*self.weights, *self.mixing))
        return {
            x: {"weights": self.weights.get(x, 0), "mixing": self.mixing.get(x, 0)} for x in names
        }

    def of(self, group: str) -> int:
        """Return the FLOPs of a group, including mixing."""
        return self.weights.get(group, 0) + self.mixing.get(group, 0)


class TrainingFlops(Record):
    """The FLOPs of one training step of all weights."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "forward",
        "backward",
        "recomputed",
        "rescored",
        "hardware",
    )

    forward: Expr
    backward: Expr  # 2 · forward: each product has a gradient product for either factor
    recomputed: Expr  # by activation checkpointing
    rescored: Expr  # QKᵀ recomputed in the backward pass of a fused attention kernel

    @property
    def model(self) -> Expr:
        """Model FLOPs: 3 · forward, regardless of recomputation."""
        return self.forward + self.backward

    @property
    def hardware(self) -> Expr:
        """Hardware FLOPs: model FLOPs and recomputation."""
        return self.model + self.recomputed + self.rescored


class OperationFlops(NamedTuple):
    """The FLOPs of one operation, in one layer: a product with the weight at `path`, or the
    mixing of the block at `path`.
    """

    path: str
    group: str
    mixing: bool
    flops: Expr
    without_gradient: bool = False  # there is no backward pass: an indexer's operation


def list_flops(region: Region, masked: bool = True) -> Iterator[OperationFlops]:
    """Yield every operation of a region that has FLOPs; attention counts the pairs inside the
    mask, or all pairs.
    """
    for node in region.nodes:
        op = node.op
        if op.flops is not None:
            path = node.path if op.mixing else node.weights[0].path
            yield OperationFlops(
                path, node.group, op.mixing, op.flops(node, masked), node.without_gradient
            )


def forward_flops(graph: Graph, masked: bool = True) -> Flops:
    """Count the FLOPs of a pass; attention counts the pairs inside the mask, or all pairs."""
    return _sum_regions((*graph.layers, graph.regions[0]), masked)


def layer_flops(graph: Graph, masked: bool = True) -> Flops:
    """Count the FLOPs of the layers alone, without the head."""
    return _sum_regions(graph.layers, masked)


def train_flops(
    graph: Graph, masked: bool = True, recompute: Recompute = "none", flash: bool = False
) -> TrainingFlops:
    """Count the FLOPs of a training step: forward, backward and recomputation.

    The backward pass takes exactly twice the forward pass: each of the two factors of a product
    gets its gradient by a product of the same size. This holds for the first layer, too, because
    the embedding is trained; the lookup itself has no product. An indexer has no backward pass,
    because the loss of the model does not reach it. `selective` recomputes the mixing (Korthikanti
    et al. 2022, arXiv:2205.05198, §4), `full` the layers but not the head. A fused attention kernel
    (`flash`) recomputes the scores in its backward pass (Dao et al. 2022, arXiv:2205.14135): five
    products instead of four.
    """
    whole = forward_flops(graph, masked)
    recomputed = {
        "none": Expr.const(0),
        "selective": whole.mixing_total,
        "full": layer_flops(graph, masked).total,
    }
    scores = (
        product((region.times, rule(node, masked)))
        for region, node in graph.nodes()
        if (rule := node.op.score_flops) is not None
    )
    return TrainingFlops(
        forward=whole.total,
        backward=2 * (whole.total - _without_gradient(graph, masked)),
        recomputed=recomputed[recompute],
        rescored=total(scores) if flash else Expr.const(0),
    )


def _without_gradient(graph: Graph, masked: bool) -> Expr:
    """Return the FLOPs of operations that have no backward pass: those of indexers."""
    parts = [
        (region.times, rule(x, masked))
        for region, x in graph.nodes()
        if x.without_gradient and (rule := x.op.flops)
    ]
    return total(map(product, parts))


def _sum_regions(regions: Iterable[Region], masked: bool) -> Flops:
    found: tuple[dict[str, list[Expr]], dict[str, list[Expr]]] = {}, {}
    for region in regions:
        for x in list_flops(region, masked):
            found[x.mixing].setdefault(x.group, []).append(product((region.times, x.flops)))
    weights, mixing = ({group: total(each) for group, each in parts.items()} for parts in found)
    return Flops(weights=weights, mixing=mixing)
