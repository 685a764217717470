"""`RULES`: one row for each operation of a `Graph`, from which FLOPs, caches, saved activations and the trace are derived.

A multiply-add counts as two operations. Only matrix products, convolutions and state updates are counted: no norms, activation functions,
softmax, rotary embeddings, elementwise gates and decays, routing decisions or lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from ...core.expr import Expr, floor_div, minimum, product, total
from ...core.forward_pass import AttentionWindow
from ...core.record_type import Record
from .recorder import Node


class CachedTensor(Record):
    """What an operation keeps for later passes, for one sequence."""

    kind: Literal["row", "state", "conv"]  # a vector for each token; a state in float32; the last inputs of a convolution
    description: str
    size: Expr  # elements, of one token for a row
    window: AttentionWindow = AttentionWindow()  # the tokens whose rows are kept
    parts: int = 1  # heads, groups or channels that tensor parallelism distributes

    def on_rank(self, tp: int) -> Expr:
        """Return the elements on one rank of tensor parallelism; there are copies if there are more ranks than parts."""
        return self.size if min(tp, self.parts) == 1 else Expr.const(int(self.size) // self.parts * max(self.parts // tp, 1))


class Rule(Record):
    """What is known about an operation."""

    flops: Callable[[Node, bool], Expr] | None = None  # of a node; of attention only for the pairs inside the mask, if it is True
    mixing: bool = False  # whether its FLOPs combine activations with activations, without a weight
    cached: Callable[[Node], CachedTensor] | None = None


def attended_pairs(node: Node, masked: bool) -> Expr:
    """Return the number of query-key pairs of an attention node, of one sequence and head."""
    new, past, window = node.shape[1], node.attributes["past_tokens"], node.attributes["window"]
    if not masked:
        return product((new, node.inputs[1].shape[1]))
    return pairs_in_window(window, new, past).alias("Aw" if window.size else "Ac" if window.chunk else "A")


def pairs_in_window(window: AttentionWindow, new: Expr, past: Expr) -> Expr:
    """Return the number of query-key pairs that the mask admits, for `new` queries after `past` tokens."""
    if new.terms == {(): 1}:  # one query attends to itself and earlier positions
        return _num_keys(window, past)
    if window.max_lookback is None:
        return new * new + past * new if not window.causal else _pairs_of_first(window, new) + past * new
    back = _pairs_of_first(window, past + new) - _pairs_of_first(window, past)
    return back if window.causal else back + _pairs_of_first(window, new) - new


def _num_keys(window: AttentionWindow, past: Expr) -> Expr:
    """Return the number of keys of one query after `past` tokens."""
    if window.chunk is not None:
        return past + 1 - window.chunk * floor_div(past, window.chunk)
    return past + 1 if window.size is None else minimum(past + 1, window.size)


def _pairs_of_first(window: AttentionWindow, n: Expr) -> Expr:
    """Return the pairs of the first n positions with themselves and the earlier ones in their window or chunk."""
    if window.chunk is not None:
        chunks = floor_div(n, window.chunk)
        rest = n - window.chunk * chunks
        return chunks * (window.chunk * (window.chunk + 1) // 2) + floor_div(rest * rest + rest, 2)
    near = n if window.size is None else minimum(n, window.size)
    return floor_div(2 * n * near - near * near + near, 2)


def score_flops(node: Node, masked: bool) -> Expr:
    """Return the FLOPs of QKᵀ in an attention node."""
    return product((2, node.shape[0], node.shape[2], node.inputs[0].shape[-1], attended_pairs(node, masked)))


def _matmul_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    return product((2, *node.shape, node.inputs[0].shape[-1]))


def _attention_flops(node: Node, masked: bool) -> Expr:
    """Return the FLOPs of the scores and of the weighted values."""
    sizes = total((node.inputs[0].shape[-1], node.shape[-1]))
    return product((2, node.shape[0], node.shape[2], sizes, attended_pairs(node, masked)))


def _conv_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    return product((2, *node.shape, node.weights[0].shape[1]))


def _delta_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    """Return the FLOPs of Sᵀk, the outer product added to S, and Sᵀq, in each value head."""
    return product((6, *node.shape[:-1], node.inputs[1].shape[-1], node.shape[-1]))


def _scan_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    """Return the FLOPs of the outer product added to S, and of S c, in each head."""
    return product((4, *node.shape, node.inputs[1].shape[-1]))


def _num_parts(node: Node) -> int:
    """Return the number of heads that tensor parallelism distributes; 1 if every rank has all of them."""
    return int(node.shape[2]) if node.sharding == "tensor" else 1


def _cached_rows(node: Node) -> CachedTensor:
    size, window = product(node.shape[2:]), node.attributes["window"]
    return CachedTensor(kind="row", description="keys and values", size=size, window=window, parts=_num_parts(node))


def _cached_inputs(node: Node) -> CachedTensor:
    split, size = node.weights[0].split, product(node.weights[0].shape)
    return CachedTensor(kind="conv", description="short convolution's inputs", size=size, parts=split.parts if split else 1)


def _delta_state(node: Node) -> CachedTensor:
    size = product((node.shape[2], node.inputs[1].shape[-1], node.shape[-1]))
    return CachedTensor(kind="state", description="delta rule's state", size=size, parts=_num_parts(node))


def _scan_state(node: Node) -> CachedTensor:
    size = product((*node.shape[2:], node.inputs[1].shape[-1]))
    return CachedTensor(kind="state", description="Mamba-2's state", size=size, parts=_num_parts(node))


RULES: Mapping[str, Rule] = {
    "act": Rule(),
    "add": Rule(),
    "attention": Rule(flops=_attention_flops, mixing=True),
    "cast": Rule(),
    "causal_conv": Rule(flops=_conv_flops, cached=_cached_inputs),
    "clamp": Rule(),
    "clamped_gated": Rule(),
    "combine": Rule(),
    "concat": Rule(),
    "decay": Rule(),
    "dispatch": Rule(),
    "dropout": Rule(),
    "gated": Rule(),
    "gated_delta_rule": Rule(flops=_delta_flops, mixing=True, cached=_delta_state),
    "hidden_states": Rule(),
    "ids": Rule(),
    "l2_norm": Rule(),
    "last_token": Rule(),
    "layer_norm": Rule(),
    "layers": Rule(),
    "linear": Rule(flops=_matmul_flops),
    "lookup": Rule(),
    "merge_heads": Rule(),
    "multiply": Rule(),
    "per_head_linear": Rule(flops=_matmul_flops),
    "positions": Rule(),
    "read_cache": Rule(),
    "rms_norm": Rule(),
    "rope": Rule(),
    "route": Rule(),
    "routing_weights": Rule(),
    "scale": Rule(),
    "scale_by_expert": Rule(),
    "scale_by_position": Rule(),
    "scale_by_weight": Rule(),
    "select_layer": Rule(),
    "slice": Rule(),
    "softcap": Rule(),
    "softplus": Rule(),
    "split_heads": Rule(),
    "ssm_scan": Rule(flops=_scan_flops, mixing=True, cached=_scan_state),
    "update_cache": Rule(cached=_cached_rows),
}
