"""Inputs, views, casts and layers: the rows of operations that compute nothing."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from ....core.expr import total
from ..node import FLOAT32, Node
from .operation import EMBEDDINGS, HIDDEN_STATES, PER_LAYER_INPUTS, Operation

if TYPE_CHECKING:
    from ..recorder import GraphRecorder

# Inputs of a pass, and of a layer

ids = Operation(
    name="ids",
    dtype="int64",
    keeps_dtype=True,
    kind="ids",
    step="ids",
    description="token ids, 0 to V − 1",
)
token_positions = Operation(name="token_positions", shape=lambda m: (m.new_tokens,), dtype="int64")
hidden_states = Operation(name="hidden_states", stands_for=HIDDEN_STATES)
embeddings = Operation(name="embeddings", view=True, stands_for=EMBEDDINGS)
select_layer = Operation(name="select_layer", view=True, stands_for=PER_LAYER_INPUTS)
layers = Operation(name="layers", stands_for=HIDDEN_STATES)
layer_end = Operation(name="layer_end", view=True)
layer_outputs = Operation(name="layer_outputs")

# Casts

to_float32 = Operation(
    name="to_float32",
    dtype="float32",
    is_cast=True,
    is_identity=lambda x: x.width == FLOAT32,
)
to_model_dtype = Operation(
    name="to_model_dtype",
    dtype="model",
    is_cast=True,
    is_identity=lambda m, x: x.width == m.activation_bytes,
)

# Shapes

split_heads = Operation(
    name="split_heads",
    shape=lambda x, head_dim: (*x.shape[:-1], x.shape[-1].exact_div(head_dim), head_dim),
    view=True,
)
merge_heads = Operation(
    name="merge_heads",
    shape=lambda x: (*x.shape[:-2], x.shape[-2] * x.shape[-1]),
    view=True,
    kind="view",
    step="concat",
    description="heads concatenated per token",
)


def _record_split(m: GraphRecorder, x: Node, *sizes: int) -> list[Node]:
    starts = accumulate(map(int, sizes), initial=0)
    return [
        m.add_node(split, (x,), (*x.shape[:-1], size), start=start)
        for start, size in zip(starts, sizes, strict=False)
    ]


split = Operation(name="split", view=True, record=_record_split)


def _record_concat(m: GraphRecorder, *parts: Node) -> Node:
    return m.add_node(concat, parts, (*parts[0].shape[:-1], total(x.shape[-1] for x in parts)))


concat = Operation(name="concat", record=_record_concat)
last_token = Operation(
    name="last_token",
    shape=lambda x: (x.shape[0], 1, x.shape[2]),
    view=True,
    is_identity=lambda m: not m.last_only,
)
