"""Routers and experts: rows of operations that choose one of many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....core.expr import Expr, product, total
from ..node import FLOAT32, INT64, Node, UsedWeight
from .operation import Operation
from .saved_tensors import Kernels, Saved, own_tensor, save_tensor

if TYPE_CHECKING:
    from ..recorder import GraphRecorder


def _record_choice(
    m: GraphRecorder, op: Operation, logits: Node, weight: UsedWeight | None, moe: Any
) -> tuple[Node, Node]:
    shape = (*logits.shape[:-1], Expr.const(moe.top_k))
    chosen = m.add_node(op, (logits,), shape, weights=(weight,), moe=moe.block)
    return chosen, m.add_node(routing_weights, (logits, chosen), shape)


def _record_route(
    m: GraphRecorder, logits: Node, correction: UsedWeight | None, moe: Any
) -> tuple[Node, Node]:
    return _record_choice(m, route, logits, correction, moe)


def _record_route_by_token(
    m: GraphRecorder, logits: Node, table: UsedWeight, moe: Any
) -> tuple[Node, Node]:
    return _record_choice(m, route_by_token, logits, table, moe)


def _describe_route(node: Node) -> str:
    moe, choice = (
        node.attributes["moe"],
        f"top {Expr.const(node.shape[-1])} of {Expr.const(node.inputs[0].shape[-1]):,} experts",
    )
    groups = (
        f", from the best {moe.expert_groups.kept} of {moe.expert_groups.groups} groups"
        if moe.expert_groups
        else ""
    )
    return f"{choice} with their weights ({moe.scoring}){groups}"


def _save_route(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """Probabilities, the chosen ones before and after normalization, their sum; and indices of
    tokens and experts.
    """
    each = product(x.shape[:-1])
    size = each * total((x.inputs[0].shape[-1], 2 * x.shape[-1], 1))
    yield own_tensor("router", x, size, FLOAT32)
    yield own_tensor("router", x, 4 * x.size, INT64)


def _save_scale_by_expert(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """The factors of the chosen experts."""
    yield own_tensor("router", x, x.size, FLOAT32)


def _save_expert_outputs(x: Node, k: Kernels) -> Iterator[Saved]:
    """The outputs of the experts; their weights count with the router."""
    yield from save_tensor("outputs of experts", x.inputs[0], k)


routing_weights = Operation(name="routing_weights", dtype="float32")
route = Operation(
    name="route",
    record=_record_route,
    second_result=routing_weights,
    dtype="int64",
    kind="choice",
    step="choice",
    description=_describe_route,
    saved=_save_route,
)
route_by_token = Operation(
    name="route_by_token",
    record=_record_route_by_token,
    second_result=routing_weights,
    dtype="int64",
    kind="choice",
    step="choice",
    description=_describe_route,
    saved=_save_route,
)
scale_by_expert = Operation(
    name="scale_by_expert",
    kind="multiply",
    description="times one stored number per expert",
    saved=_save_scale_by_expert,
)
dispatch = Operation(
    name="dispatch",
    experts="enter",
    kind="view",
    step="dispatch",
    description=lambda node: (
        "tokens dispatched to their experts"
        + (", scaled by the router" if node.attributes["moe"].routing == "input" else "")
    ),
)
combine = Operation(
    name="combine",
    experts="leave",
    whole=True,
    kind="sum",
    step="combine",
    description="weighted sum of the experts",
    saved=_save_expert_outputs,
)
