"""Patches of images, and what an encoder has read: rows of operations of towers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....core.attention_facts import ScoreTransform
from ....core.expr import Expr, floor_div, product
from ..node import Node, UsedWeight
from .attention_operations import AttentionFlops, attention_shape, attention_steps, save_attention
from .elementwise_operations import save_clamped, save_scaled
from .operation import CachedTensor, Operation, Shape, StepPart, num_parts
from .shape_operations import token_positions

if TYPE_CHECKING:
    from ..recorder import GraphRecorder

ENCODED_ROWS = ("keys", "values")
"""The cached rows of an encoder's tokens."""


def _record_prepend(m: GraphRecorder, x: Node, *rows: UsedWeight) -> Node:
    learned = sum(int(y.shape[-2]) if len(y.shape) > 1 else 1 for y in rows)
    return m.add_node(prepend, (x,), (x.shape[0], x.shape[1] + learned, x.shape[2]), weights=rows)


prepend = Operation(
    name="prepend",
    record=_record_prepend,
    kind="view",
    step="prepend",
    description="learned tokens before the patches",
)
drop_tokens = Operation(
    name="drop_tokens",
    shape=lambda x, n: (x.shape[0], x.shape[1] - n, x.shape[2]),
    view=True,
    kind="view",
    step="patches_only",
    description="without the class token",
)
add_positions = Operation(name="add_positions", kind="add", description="plus learned positions")


def _merged_shape(m: GraphRecorder, x: Node, side: int, padded: bool) -> Shape:
    squares = floor_div(x.shape[1], side * side)
    if padded:
        rows, columns = m.patch_grid
        squares = Expr.const(-(-rows // side) * -(-columns // side))
    return (x.shape[0], squares, side * side * x.shape[2])


merge_patches = Operation(
    name="merge_patches",
    shape=_merged_shape,
    kind="view",
    step="merge_patches",
    description=lambda node: "the features of {0} × {0} patches joined".format(
        node.attributes["side"]
    ),
)
pool_patches = Operation(
    name="pool_patches",
    shape=lambda x, side: (x.shape[0], floor_div(x.shape[1], side * side), x.shape[2]),
    kind="sum",
    step="pool_patches",
    description=lambda node: "the average of {0} × {0} patches".format(node.attributes["side"]),
)
standardize = Operation(
    name="standardize",
    kind="multiply",
    step="{source}_standard",
    description="(x − bias) · scale",
    saved=save_scaled,
)
clip = Operation(
    name="clip",
    kind="act",
    step="{source}_clip",
    description="clamped to stored limits",
    saved=save_clamped,
)


def _pairs_in_windows(rows: int, columns: int, side: int) -> int:
    """Return the pairs of patches in the same window of side × side patches."""
    heights, widths = ([min(side, n - i) for i in range(0, n, side)] for n in (rows, columns))
    return sum(h * h for h in heights) * sum(w * w for w in widths)


def _encoder_facts(m: GraphRecorder, scale: float | None, window: int | None) -> dict[str, Any]:
    return {
        "gathers": False,
        "transform": ScoreTransform(scale=scale),
        # inside windows; None: those of all patches
        "pairs": None if window is None else _pairs_in_windows(*m.patch_grid, window),
    }


def _encoder_pairs(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    if (pairs := node.attributes["pairs"]) is not None:
        return Expr.const(pairs)
    return product((node.shape[1], node.inputs[1].shape[1]))


_FLOPS = AttentionFlops(_encoder_pairs)


def _encoder_steps(node: Node, masked: bool) -> Iterator[StepPart]:
    of_text = node.path.startswith("encoder.") or node.inputs[1].op in (keep_encoded, read_encoded)
    words = f"over all tokens of the {'encoder' if of_text else 'image'}"
    return attention_steps(node, masked, _FLOPS, words)


encoder_attention = Operation(
    name="encoder_attention",
    shape=attention_shape,
    facts=_encoder_facts,
    is_attention=True,
    flops=_FLOPS.both,
    score_flops=_FLOPS.scores,
    mixing=True,
    steps=_encoder_steps,
    saved=save_attention,
)


def _record_encoder_tokens(m: GraphRecorder) -> tuple[Node, Node] | None:
    if m.encoded:
        return None
    read = m.add_node(encoder_tokens, (), (m.batch, m.encoder_length))
    return read, m.add_node(token_positions, (), (m.encoder_length,))


def _record_keep_encoded(m: GraphRecorder, mixer: Any, *rows: Node) -> list[Node]:  # noqa: ARG001
    return [
        m.add_node(keep_encoded, (x,), x.shape, name=name)
        for x, name in zip(rows, ENCODED_ROWS, strict=True)
    ]


def _record_read_encoded(m: GraphRecorder, mixer: Any) -> list[Node]:
    shape = (m.batch, m.encoder_length, mixer.kv_heads, mixer.head_dim)
    return [m.add_node(read_encoded, (), shape, name=name) for name in ENCODED_ROWS]


def _kept_rows(node: Node) -> CachedTensor:
    size, words = product(node.shape[2:]), "keys and values of the encoder"
    return CachedTensor(
        kind="row", description=words, size=size, parts=num_parts(node), of_encoder=True
    )


encoder_tokens = Operation(
    name="encoder_tokens",
    record=_record_encoder_tokens,
    dtype="int64",
    keeps_dtype=True,
    kind="ids",
    step="ids",
    description="ids of the tokens that the encoder reads, those of images among them",
)
keep_encoded = Operation(
    name="keep_encoded",
    record=_record_keep_encoded,
    view=True,
    cache="kept",
    cached=_kept_rows,
    kind="cache",
    step="{name}",
    description="kept for all later tokens",
)
read_encoded = Operation(
    name="read_encoded",
    record=_record_read_encoded,
    cache="read",
    cached=_kept_rows,
    kind="cache",
    step="{name}",
    description="kept since the first pass",
)
