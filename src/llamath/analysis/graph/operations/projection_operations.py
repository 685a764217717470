"""Tables, matrix products and norms: rows of operations with a weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....core.expr import Expr, ceil_div, product
from ....core.tree import LETTERS
from ..node import FLOAT32, INT64, Node
from .elementwise_operations import act, clamped_gated, gated, multiply
from .expert_operations import combine, dispatch
from .operation import Operation
from .saved_tensors import (
    Kernels,
    Saved,
    SavedTensor,
    own_tensor,
    save_tensor,
    stored_tensor,
    within,
)
from .shape_operations import token_positions

if TYPE_CHECKING:
    from ..recorder import GraphRecorder

_FP8 = 1
ROLES = {"q": "what it looks for", "k": "what it can be found by", "v": "what it hands over"}
"""The purpose of the query, key and value of a token."""
_FIELDS = {
    "q": f"query of each token: {ROLES['q']}",
    "k": f"key of each token: {ROLES['k']}",
    "v": f"value of each token: {ROLES['v']}",
    "o": "mixes what the heads have read back into the stream",
    "out": "brings what was read back into the stream",
    "head": "logits over the vocabulary",
    "attn.query": "query of each token: what it reads from the state",
    "attn.key": "key of each token: where the state keeps its value",
    "attn.value": "value of each token: what the state takes in",
    "attn.alpha": "decides how fast the state forgets",
    "attn.beta": "decides how strongly a value is written into the state",
    "k_up": "keys decompressed from the latents",
    "kv_down": "latent of keys and values: all that is cached of them",
    "q_down": "latent of the queries",
    "q_up": "queries decompressed from the latents",
    "router": "router logits: which experts suit each token",
    "shared_gate": "decides how much of the shared expert passes",
    "v_up": "values decompressed from the latents",
} | dict.fromkeys(("attn.gate", "attn.z"), "decides how much of what was read passes")
_FFN = {
    "gate": "decides how much of each feature passes",
    "up": "features: what the layer looks for in each token",
    "down": "writes what the features stand for into the stream",
}
_FIELDS |= {
    f"{block}.{field}": text
    for block in ("dense", "mlp", "second_mlp", "shared", "{e}")
    for field, text in _FFN.items()
}
"""The purpose of each projection, by field, or by block and field."""

# Tables


def _save_ids(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """The token ids, or the positions, which all sequences share."""
    positions = x.inputs[0].op is token_positions
    one = SavedTensor(
        "token ids",
        Expr.const(1),
        INT64,
        "sequence",
        shared_by_batch=positions,
        for_weight_gradient=True,
    )
    yield x.inputs[0], one


def _record_lookup_in_parts(m: GraphRecorder, ids: Node, tables: Any) -> Node:
    weight = tables.bind(tables.stack[0], LETTERS[1]).weight
    return m.add_node(lookup_in_parts, (ids,), (*ids.shape, weight.shape[1]), weights=(weight,))


lookup = Operation(
    name="lookup",
    shape=lambda ids, weight: (*ids.shape, weight.shape[1]),
    dtype="model",
    whole=True,
    kind="lookup",
    description=lambda node: (
        "learned position embedding" if node.inputs[0].op is token_positions else "token embedding"
    ),
    saved=_save_ids,
)
lookup_in_parts = Operation(
    name="lookup_in_parts",
    record=_record_lookup_in_parts,
    dtype="model",
    kind="lookup",
    description="rows of the n-grams",
    saved=_save_ids,
)

# Matrix products


def _matmul_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    return product((2, *node.shape, node.inputs[0].shape[-1]))


def _describe_linear(node: Node) -> str:
    tied = " (tied to the embedding)" if node.weights[0].weight.tied else ""
    plain = "W x + b at each position" if len(node.weights) > 1 else "W x at each position"
    block, field = ("", *node.path.split("."))[-2:]
    return _FIELDS.get(field, _FIELDS.get(f"{block}.{field}", plain)) + tied


def _save_linear(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input, or an FP8 copy of it with its scales."""
    what = _name_of_input(x, stored_tensor(x.inputs[0], k))
    if k.fp8_scales is None or not x.path.startswith("layers.") or x.path.endswith(".router"):
        yield from save_tensor(what, x.inputs[0], k, for_weight_gradient=True)
        return
    block, width = k.fp8_scales
    for storage, tensor in save_tensor(what, x.inputs[0], k, for_weight_gradient=True):
        yield ("fp8", storage), tensor._replace(bytes=_FP8)
        if block:
            yield (
                ("scales", storage),
                tensor._replace(
                    what="scales of FP8", elements=ceil_div(tensor.elements, block), bytes=width
                ),
            )


def _name_of_input(x: Node, stored: Node) -> str:
    """Return the name of a linear layer's input."""
    if stored.op.is_cast and x.path.endswith(".router"):
        return "router"
    if stored.op is dispatch:
        return "inputs of experts"
    if x.path.endswith(".attn.out"):
        return "mixer states"
    if stored.op in (act, gated, clamped_gated):
        return within(x, "input of down")
    if stored.op.is_attention or (
        stored.op is multiply and any(y.storage.op.is_attention for y in stored.inputs)
    ):
        return "output of attention"
    if x.path.endswith(("q_up", "k_up", "v_up")):
        return "latents"
    return "latents of experts" if stored.op is combine else "inputs of linear maps"


linear = Operation(
    name="linear",
    shape=lambda x, weight: (*x.shape[:-1], weight.shape[0]),
    flops=_matmul_flops,
    kind="linear",
    description=_describe_linear,
    saved=_save_linear,
)
per_head_linear = Operation(
    name="per_head_linear",
    shape=lambda x, weight, size, transposed: (
        *x.shape[:-1],
        weight.shape[1] if transposed else size,
    ),
    flops=_matmul_flops,
    kind="linear",
    description=lambda node: (
        "query projected into the latent space"
        if node.attributes["transposed"]
        else "values decompressed from the weighted latents"
    ),
    saved=_save_linear,
)

# Norms


def _describe_rms_norm(node: Node) -> str:
    return (
        "per-head norm"
        if node.path.endswith("}")
        else "RMSNorm of each group"
        if node.attributes["grouped"]
        else "RMSNorm"
    )


def _save_norm(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input, in float32 where the steps of the norm are kernels of their own; the
    statistics; and the result before the scale.
    """
    centered, weight = x.op is layer_norm, x.weights[:1]
    read, rows = (
        x.inputs[0],
        product((*x.shape[:-1], weight[0].shape[0] if x.attributes.get("grouped") else 1)),
    )
    eager = not (k.fused or (centered and weight))
    if eager and read.width != FLOAT32:
        yield own_tensor("inputs of norms", read, x.size, FLOAT32)
    else:
        yield from save_tensor("inputs of norms", read, k)
    yield own_tensor("statistics of norms", read, rows * 2 if centered else rows, FLOAT32)
    if eager and weight:
        width = FLOAT32 if x.attributes["offset"] else k.width
        yield own_tensor(
            "normalized, before the scale", read, x.size, width, for_weight_gradient=True
        )


def _save_l2_norm(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input and one number for each head."""
    yield from save_tensor("mixer states", x.inputs[0], k)
    yield own_tensor("mixer states", x, product(x.shape[:-1]), FLOAT32)


rms_norm = Operation(name="rms_norm", kind="norm", description=_describe_rms_norm, saved=_save_norm)
layer_norm = Operation(
    name="layer_norm",
    kind="norm",
    description=lambda node: "per-head norm" if node.path.endswith("}") else "LayerNorm",
    saved=_save_norm,
)
l2_norm = Operation(
    name="l2_norm",
    kind="norm",
    step="l2_norm",
    description="divided by its norm",
    saved=_save_l2_norm,
)
