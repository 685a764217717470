"""`Node`: one operation of a graph with its result, and `UsedWeight`: a weight that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ...core.expr import Expr, as_number, product
from ...core.tree import Split, Weight
from ...utils.record_type import Record

if TYPE_CHECKING:
    from .operations.operation import Operation

Sharding = Literal["", "tensor", "expert"]
FLOAT32, INT64 = 4, 8
"""Bytes of an element that has this dtype whatever the dtype of the model."""


class UsedWeight(Record):
    """A weight that an operation uses: `path` has `{l}` for the layer and `{e}` for the expert."""

    path: str
    weight: Weight
    group: str = ""  # under which it is counted
    split: Split | None = None  # how tensor parallelism shards it

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Its dimensions, output first."""
        return self.weight.shape


class Node:
    """One operation with its result. A view shares the storage of its first input."""

    __slots__ = (
        "attributes",
        "group",
        "in_expert",
        "inputs",
        "max_parts",
        "op",
        "path",
        "shape",
        "sharding",
        "storage",
        "weights",
        "width",
        "without_gradient",
    )

    def __init__(
        self,
        op: Operation,
        path: str,
        group: str,
        inputs: tuple[Node, ...],
        shape: tuple[Expr, ...],
        width: int,
        weights: tuple[UsedWeight, ...],
        attributes: Mapping[str, Any],
    ) -> None:
        self.op = op
        self.path = path  # of the block whose forward it is part of
        self.group = weights[0].group if weights else group  # under which its FLOPs are counted
        self.inputs = inputs
        self.shape = shape
        self.width = width  # bytes of an element
        self.weights = weights
        self.attributes = attributes
        self.storage: Node = inputs[0].storage if op.view else self
        self.without_gradient = False
        in_expert = op.experts == "enter"
        sharded: Node | None = None
        for x in inputs:
            in_expert = in_expert or x.in_expert
            if sharded is None and x.sharding == "tensor":
                sharded = x
        self.in_expert: bool = in_expert and op.experts != "leave"
        self.sharding: Sharding = ""
        self.max_parts = 0
        if not op.whole:
            self.sharding, self.max_parts = _sharding(sharded, weights, in_expert)

    @property
    def size(self) -> Expr:
        """The number of elements."""
        return product(self.shape)

    @property
    def is_view(self) -> bool:
        """Whether it shares the storage of its input."""
        return self.storage is not self

    def __repr__(self) -> str:
        return f"Node({self.op.name} {self.path} [{', '.join(x.symbol for x in self.shape)}])"


def _sharding(
    sharded: Node | None, weights: tuple[UsedWeight, ...], in_expert: bool
) -> tuple[Sharding, int]:
    """Return how tensor parallelism shards a result, and the largest number of shards (0: any).

    A column-parallel weight shards its result; a row-parallel one makes it whole again. The rows of
    experts are those that were routed to the experts of a rank. Without such a weight the result is
    sharded like an input that is.
    """
    whole: Sharding = "expert" if in_expert else ""
    for weight in weights:
        if (split := weight.split) is not None and len(weights[0].shape) > 1:
            return (
                ("tensor", as_number(split.parts) if split.on_indivisible == "copy" else 0)
                if split.axis == 0
                else (whole, 0)
            )
    return (whole, 0) if sharded is None else ("tensor", sharded.max_parts)
