"""Activation functions, sums and products: rows of operations on each number by itself, and on
the streams of a token.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....core.config import ACTIVATIONS
from ....core.expr import Expr, product, written_factor
from ..node import Node
from .expert_operations import combine
from .operation import Operation
from .saved_tensors import (
    MASK,
    Kernels,
    Saved,
    estimate_mixer_inputs,
    own_tensor,
    save_mixer_inputs,
    save_tensor,
    stored_tensor,
    within,
)
from .shape_operations import select_layer


def describe_operand(node: Node) -> str:
    """Return a short name for the result of an operation."""
    while (node.is_view or node.op.is_cast) and node.inputs:
        node = node.inputs[0]
    if node.op is act:
        return _describe_act(node)
    return node.path.rpartition(".")[2] if node.weights else "x"


def _describe_act(node: Node) -> str:
    return f"{node.attributes['activation']}({describe_operand(node.inputs[0])})"


def _save_act(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input, or its result where that is enough."""
    activation, what = ACTIVATIONS[x.attributes["activation"]], _name_of_activation(x)
    if k.fused and x.inputs[0].op.fuses_activation:
        return
    yield from save_tensor(what, x if activation.needs_output_only else x.inputs[0], k)
    if not k.fused and activation.composed:
        yield own_tensor(what, x, x.size * activation.composed, x.width)


def _name_of_activation(x: Node) -> str:
    """Return the name of what an activation function outside a gated MLP saves."""
    if x.path.endswith(".attn"):
        return "gate of attention" if x.inputs[0].path.endswith(".attn.gate") else "mixer states"
    return "shared expert" if x.inputs[0].path.endswith(".shared_gate") else within(x, "MLP")


act = Operation(
    name="act", kind="act", step="{source}_act", description=_describe_act, saved=_save_act
)


def _describe_gated(node: Node) -> str:
    """Describe common ones by name (Shazeer 2020, arXiv:2002.05202)."""
    function = node.attributes["activation"]
    if node.inputs[1].op is select_layer:
        return f"{function}(gate) · per-layer embedding"
    gated = ACTIVATIONS[function].gated
    name = f"{gated}: " if gated in ("SwiGLU", "GeGLU") else ""
    return f"{name}{function}(gate) · up"


def _save_gated(x: Node, k: Kernels, steps: int = 0) -> Iterator[Saved]:
    """Gate, up and, with one kernel for each step, the tensors in between."""
    for y in x.inputs:
        yield from save_tensor(within(x, "MLP"), y, k)
    if not k.fused:
        steps = steps or 1 + ACTIVATIONS[x.attributes["activation"]].composed
        yield own_tensor(within(x, "MLP"), x, x.size * steps, x.width)


gated = Operation(
    name="gated",
    shape=lambda up: up.shape,
    kind="act",
    step="act",
    description=_describe_gated,
    saved=_save_gated,
)
clamped_gated = Operation(
    name="clamped_gated",
    shape=lambda up: up.shape,
    kind="act",
    step="act",
    description=lambda node: (
        f"(up + 1) · g · sigmoid({node.attributes['alpha']:g} · g), "
        f"g ≤ {node.attributes['limit']:g}, |up| ≤ {node.attributes['limit']:g}"
    ),
    saved=lambda x, k: _save_gated(x, k, steps=4),
)


def _describe_add(node: Node) -> str:
    """Describe a sum: mostly a residual connection."""
    if "lookup" in (node.inputs[0].op.kind, node.inputs[1].op.kind):
        return "position embedding added"
    if not node.path.endswith("{l}"):
        return "shared experts added" if node.inputs[0].op is combine else "sum of both"
    return (
        "added to the normalized x"
        if node.inputs[0].op.kind == "norm"
        else "added to the residual stream"
    )


add = Operation(name="add", kind="add", step="{source}_add", description=_describe_add)


def _save_multiply(x: Node, k: Kernels) -> Iterator[Saved]:
    """Both factors."""
    gated = any(y.storage.op.is_attention for y in x.inputs)
    what = (
        "gate of attention"
        if gated
        else "mixer states"
        if x.path.endswith(".attn")
        else "shared expert"
    )
    for y in x.inputs:
        activation = stored_tensor(y, k)
        fused = (
            k.fused
            and activation.op is act
            and not ACTIVATIONS[activation.attributes["activation"]].needs_output_only
        )
        yield from save_tensor(what, activation.inputs[0] if fused else y, k)


multiply = Operation(
    name="multiply",
    kind="multiply",
    step="product",
    description=lambda node: " · ".join(map(describe_operand, node.inputs)),
    saved=_save_multiply,
)


def _save_streams(x: Node, k: Kernels) -> Iterator[Saved]:
    """Both factors."""
    for y in x.inputs:
        yield from save_tensor("residual streams", y, k)


def _mix_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    return product((2, *node.shape, node.inputs[1].shape[-1]))


dot = Operation(
    name="dot",
    shape=lambda x: (*x.shape[:-1], 1),
    kind="sum",
    step="dot",
    description="product of both in each stream",
    saved=_save_streams,
)
mix_streams = Operation(
    name="mix_streams",
    shape=lambda x, weights: (*weights.shape[:-1], x.shape[-1]),
    flops=_mix_flops,
    mixing=True,
    kind="mix",
    description="weighted sums of the streams",
    saved=_save_streams,
)
signed_root = Operation(
    name="signed_root",
    kind="act",
    step="root",
    description="the root of its size, with its sign",
    saved=save_mixer_inputs,
)
sinkhorn = Operation(
    name="sinkhorn",
    kind="act",
    step="sinkhorn",
    description=lambda node: (
        f"rows and columns sum to 1, after {node.attributes['iterations']} steps"
    ),
    saved=estimate_mixer_inputs,
)
scale = Operation(
    name="scale",
    is_identity=lambda factor: factor == 1.0,
    kind="multiply",
    step="{source}_scale",
    description=lambda node: f"× {written_factor(node.attributes['factor'])}",
)
offset = Operation(
    name="offset",
    kind="add",
    step="{source}_offset",
    description=lambda node: f"+ {float(node.attributes['amount']):g}",
)


def _describe_scale_by_weight(node: Node) -> str:
    what = "channel" if node.weights[0].shape[0] == node.shape[-1] else "head"
    return (
        "multiplied by a stored scalar"
        if int(node.weights[0].weight.size) == 1
        else f"multiplied by one stored number per {what}"
    )


def save_scaled(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input, unless the weight is a buffer."""
    if not x.weights[0].weight.buffer:
        yield from save_tensor("mixer states", x.inputs[0], k, for_weight_gradient=True)


scale_by_weight = Operation(
    name="scale_by_weight",
    kind="multiply",
    description=_describe_scale_by_weight,
    saved=save_scaled,
)


def _save_softcap(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """The result of tanh."""
    yield own_tensor("tanh of logits", x, x.size, x.width)


def _save_normalize_sum(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input and the sum of each vector."""
    yield from save_tensor("router", x.inputs[0], k)
    yield own_tensor("router", x, product(x.shape[:-1]), x.width)


def _save_softmax(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """Its result."""
    yield own_tensor("residual streams", x, x.size, x.width)


def save_clamped(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input."""
    yield from save_tensor("inputs of clamps", x.inputs[0], k)


def _save_dropout(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """The mask."""
    yield own_tensor("dropout masks", x, x.size, MASK)


softcap = Operation(
    name="softcap",
    is_identity=lambda cap: cap is None,
    kind="act",
    step="softcap",
    description=lambda node: f"capped at {node.attributes['cap']:g}",
    saved=_save_softcap,
)
normalize_sum = Operation(
    name="normalize_sum",
    kind="multiply",
    step="{source}_share",
    description="divided by the sum",
    saved=_save_normalize_sum,
)
softmax = Operation(
    name="softmax",
    kind="act",
    step="softmax",
    description="shares that sum to 1",
    saved=_save_softmax,
)
clamp = Operation(
    name="clamp",
    kind="act",
    step="{source}_clamp",
    description=lambda node: f"clamped to ± {node.attributes['limit']:g}",
    saved=save_clamped,
)
dropout = Operation(name="dropout", is_identity=lambda m: not m.with_dropout, saved=_save_dropout)
