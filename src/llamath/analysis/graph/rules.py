"""`RULES`: one row for each operation of a `Graph`, from which FLOPs, caches, saved activations and
the trace are derived.

A multiply-add counts as two operations. Only matrix products, convolutions and state updates are
counted: no norms, activation functions, softmax, rotary embeddings, elementwise gates and decays,
routing decisions or lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from ...core.attention_facts import AttentionWindow
from ...core.expr import Expr, floor_div, minimum, product, total
from ...utils.record_type import Record
from . import descriptions as describe
from .node import Node, UsedWeight
from .saved_rules import (
    SavedRule,
    save_act,
    save_attention,
    save_bounded_decay,
    save_clamp,
    save_compressed_attention,
    save_dropout,
    save_expert_outputs,
    save_gated,
    save_ids,
    save_l2_norm,
    save_linear,
    save_mix_streams,
    save_mixer_inputs,
    save_multiply,
    save_norm,
    save_normalize_sum,
    save_rope,
    save_route,
    save_scale_by_expert,
    save_scale_by_weight,
    save_softcap,
    save_softmax,
    save_softplus,
)


class CachedTensor(Record):
    """What an operation keeps for later passes, for one sequence."""

    # a vector for each token; a state in float32; the last inputs of a convolution
    kind: Literal["row", "state", "conv"]
    description: str
    size: Expr  # elements, of one token for a row
    window: AttentionWindow = AttentionWindow()  # the tokens whose rows are kept
    every: int = 1  # tokens for each row
    parts: int = 1  # heads, groups or channels that tensor parallelism distributes
    of_encoder: bool = False  # a row for each token of the encoder

    def on_rank(self, tp: int) -> Expr:
        """Return the elements on one rank of tensor parallelism; there are copies if there are
        more ranks than parts.
        """
        return (
            self.size
            if min(tp, self.parts) == 1
            else product((self.size.exact_div(self.parts), max(int(self.parts) // int(tp), 1)))
        )


def cached_tokens(context: int, max_lookback: int | None) -> int:
    """Return the number of tokens whose rows are in the cache after `context` tokens."""
    return context if max_lookback is None else minimum(context, max_lookback)


class StepPart(Record):
    """One of the steps in which the trace shows an operation; each reads the one before it, and
    `inputs`.
    """

    name: str
    kind: str
    description: str
    shape: tuple[Expr, ...]
    inputs: tuple[Node, ...] = ()
    weights: tuple[UsedWeight, ...] = ()
    flops: Expr = Expr.const(0)
    cached: CachedTensor | None = None


class Rule(Record):
    """What is known about an operation."""

    # of a node; of attention only for the pairs inside the mask, if it is True
    flops: Callable[[Node, bool], Expr] | None = None
    mixing: bool = False  # whether its FLOPs combine activations with activations, without a weight
    cached: Callable[[Node], CachedTensor] | None = None
    saved: SavedRule | None = None  # for the backward pass
    # of its step in the trace; without one it has no step, and its readers are shown with its
    # inputs
    kind: str = ""
    # of its step, with {source} for the block whose result it reads; without one that of its block
    # or weight
    name: str = ""
    description: str | Callable[[Node], str] = ""  # of its step
    # instead, of an operation that is shown as several steps
    steps: Callable[[Node, bool], Iterator[StepPart]] | None = None


def _attended_pairs(node: Node, masked: bool) -> Expr:
    """Return the number of query-key pairs of an attention node, of one sequence and head."""
    new = node.shape[1]
    if "pairs" in node.attributes:
        return Expr.const(node.attributes["pairs"])
    if not masked and node.attributes.get("gathers"):
        return product((new, node.inputs[3].shape[2]))
    if not masked or node.op == "encoder_attention":
        return product((new, node.inputs[1].shape[1]))
    past, window, top_k = (
        node.attributes["past_tokens"],
        node.attributes["window"],
        node.attributes["top_k"],
    )
    if blocks := node.attributes.get("blocks"):
        return pairs_in_blocks(blocks, past + new) - pairs_in_blocks(blocks, past)
    if windows := node.attributes.get("windows"):
        return pairs_in_selected_windows(windows, new, past)
    if top_k is not None:  # as many as in a window of this size
        return pairs_in_window(AttentionWindow(size=top_k), new, past).alias("As")
    return pairs_in_window(window, new, past).alias(
        "Aw" if window.size else "Ac" if window.chunk else "A"
    )


def pairs_in_window(window: AttentionWindow, new: Expr, past: Expr) -> Expr:
    """Return the number of query-key pairs that the mask admits, for `new` queries after `past`
    tokens.
    """
    if new.terms == {(): 1}:  # one query attends to itself and earlier positions
        return _num_keys(window, past)
    if window.max_lookback is None:
        return (
            new * new + past * new
            if not window.causal
            else _pairs_of_first(window, new) + past * new
        )
    back = _pairs_of_first(window, past + new) - _pairs_of_first(window, past)
    return back if window.causal else back + _pairs_of_first(window, new) - new


def _num_keys(window: AttentionWindow, past: Expr) -> Expr:
    """Return the number of keys of one query after `past` tokens."""
    if window.chunk is not None:
        return past + 1 - window.chunk * floor_div(past, window.chunk)
    return past + 1 if window.size is None else minimum(past + 1, window.size)


def pairs_in_blocks(blocks: tuple[int, int], n: Expr) -> Expr:
    """Return the pairs of the first n positions with the earlier ones in their own block and in
    all other blocks that are selected.
    """
    size, kept = blocks
    far = n - minimum(n, size * kept)  # positions with more blocks before them than are selected
    near = n - far
    whole = floor_div(far, size)
    rest = far - size * whole
    own = whole * (size * (size + 1) // 2) + floor_div(rest * rest + rest, 2)
    return floor_div(near * near + near, 2) + far * ((kept - 1) * size) + own


def _pairs_of_first(window: AttentionWindow, n: Expr) -> Expr:
    """Return the pairs of the first n positions with themselves and the earlier ones in their
    window or chunk.
    """
    if window.chunk is not None:
        chunks = floor_div(n, window.chunk)
        rest = n - window.chunk * chunks
        return chunks * (window.chunk * (window.chunk + 1) // 2) + floor_div(rest * rest + rest, 2)
    near = n if window.size is None else minimum(n, window.size)
    return floor_div(2 * n * near - near * near + near, 2)


def score_flops(node: Node, masked: bool) -> Expr:
    """Return the FLOPs of QKᵀ in an attention node."""
    return product(
        (2, node.shape[0], node.shape[2], node.inputs[0].shape[-1], _attended_pairs(node, masked))
    )


def _matmul_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    return product((2, *node.shape, node.inputs[0].shape[-1]))


def _attention_flops(node: Node, masked: bool) -> Expr:
    """Return the FLOPs of the scores and of the weighted values."""
    sizes = total((node.inputs[0].shape[-1], node.shape[-1]))
    return product((2, node.shape[0], node.shape[2], sizes, _attended_pairs(node, masked)))


def _mix_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    return product((2, *node.shape, node.inputs[1].shape[-1]))


def _select_flops(node: Node, masked: bool) -> Expr:
    """Return the FLOPs of the scores of an indexer, and of their sum over its heads."""
    q, k, *weights = node.inputs
    new, past, window = node.shape[1], node.attributes["past_tokens"], node.attributes["window"]
    ratio = node.attributes["ratio"]
    seen = (
        pairs_in_window(window, new, past).alias("A")
        if ratio == 1
        else windows_seen(ratio, new, past, None)
    )
    pairs = seen if masked else product((new, k.shape[1]))
    return product((2, q.shape[0], q.shape[2], q.shape[3] + len(weights), pairs))


def windows_seen(ratio: int, new: Expr, past: Expr, most: int | None) -> Expr:
    """Return the pairs of `new` queries after `past` tokens and complete windows of `ratio`
    tokens, at most `most` for a query.
    """
    if new.terms == {(): 1}:
        seen = floor_div(past + 1, ratio)
        return seen if most is None else minimum(seen, most)
    return _windows_of_first(ratio, past + new, most) - _windows_of_first(ratio, past, most)


def _windows_of_first(ratio: int, n: Expr, most: int | None) -> Expr:
    """Return Σ min(⌊j / ratio⌋, most) for j from 1 to n."""
    near = n if most is None else minimum(n, ratio * most + ratio - 1)
    windows = floor_div(near, ratio)
    each = floor_div(ratio * windows * windows - ratio * windows, 2) + windows * (
        near - ratio * windows + 1
    )
    return each if most is None else each + most * (n - near)


def pairs_in_selected_windows(windows: tuple[int, int], new: Expr, past: Expr) -> Expr:
    """Return the pairs of `new` queries after `past` tokens with those of the selected windows,
    and those after the last complete one.
    """
    ratio, most = windows
    rest = pairs_in_window(AttentionWindow(), new, past) - ratio * windows_seen(
        ratio, new, past, None
    )
    return rest + ratio * windows_seen(ratio, new, past, most)


def _compressed_flops(node: Node, masked: bool) -> Expr:
    """Return the FLOPs of scores and weighted values over the last tokens and over windows."""
    q, k, windows, *_ = node.inputs
    new, past, facts = node.shape[1], node.attributes["past_tokens"], node.attributes
    pairs = product((new, k.shape[1] + windows.shape[1]))
    if masked:
        pairs = pairs_in_window(facts["window"], new, past) + windows_seen(
            facts["ratio"], new, past, facts["top_k"]
        )
    return product((4, q.shape[0], q.shape[2], q.shape[3], pairs))


def _cached_windows(node: Node) -> CachedTensor:
    words = "keys of the indexer for windows" if node.without_gradient else "keys for windows"
    return CachedTensor(
        kind="row", description=words, size=product(node.shape[2:]), every=node.attributes["ratio"]
    )


def _cached_tokens_of_windows(node: Node) -> CachedTensor:
    """Return the tokens of the next window, and those of the last one that overlaps it."""
    kv, overlap = node.inputs[0], node.attributes["overlap"]
    tokens = 2 * node.attributes["ratio"] - 1 if overlap else node.attributes["ratio"] - 1
    return CachedTensor(
        kind="conv",
        description="tokens of the next window",
        size=product((len(node.inputs), tokens, kv.shape[-1])),
    )


def _block_flops(node: Node, masked: bool) -> Expr:
    """Return the FLOPs of the scores of a block indexer."""
    q, k = node.inputs
    new, past, window = node.shape[1], node.attributes["past_tokens"], node.attributes["window"]
    pairs = pairs_in_window(window, new, past).alias("A") if masked else product((new, k.shape[1]))
    return product((2, q.shape[0], q.shape[2], q.shape[3], pairs))


def _conv_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    return product((2, *node.shape, node.weights[0].shape[1]))


def _delta_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    """Return the FLOPs of Sᵀk, the outer product added to S, and Sᵀq, in each value head."""
    return product((6, *node.shape[:-1], node.inputs[1].shape[-1], node.shape[-1]))


def _scan_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    """Return the FLOPs of the outer product added to S, and of what is read from S, in each
    head; of a channel of Mamba, S is one row.
    """
    return product((4, *node.shape, node.inputs[1].shape[-1]))


def _num_parts(node: Node) -> int:
    """Return the number of heads that tensor parallelism distributes; 1 if every rank has all of
    them.
    """
    return node.shape[2] if node.sharding == "tensor" else 1


def _cached_rows(node: Node) -> CachedTensor:
    size, window = product(node.shape[2:]), node.attributes["window"]
    words = "latent keys and values" if node.attributes["name"] == "latents" else "keys and values"
    words = "keys of the indexer" if node.without_gradient else words
    return CachedTensor(
        kind="row", description=words, size=size, window=window, parts=_num_parts(node)
    )


def _kept_rows(node: Node) -> CachedTensor:
    size, words = product(node.shape[2:]), "keys and values of the encoder"
    return CachedTensor(
        kind="row", description=words, size=size, parts=_num_parts(node), of_encoder=True
    )


def _cached_inputs(node: Node) -> CachedTensor:
    (channels, taps), split = node.weights[0].shape, node.weights[0].split
    dilation = node.attributes["dilation"]
    size = product((channels, taps if dilation == 1 else (taps - 1) * dilation))
    # in float32, or in the dtype of the cache
    kind: Literal["state", "conv"] = "state" if node.inputs[0].op == "cast" else "conv"
    return CachedTensor(
        kind=kind,
        description="short convolution's inputs",
        size=size,
        parts=split.parts if split else 1,
    )


def _cached_ids(node: Node) -> CachedTensor:
    """Return the last ids, each as large as a number of a state."""
    return CachedTensor(
        kind="state",
        description="last token ids",
        size=Expr.const(node.attributes["ngram_size"] - 1),
    )


def _delta_state(node: Node) -> CachedTensor:
    size = product((node.shape[2], node.inputs[1].shape[-1], node.shape[-1]))
    return CachedTensor(
        kind="state", description="delta rule's state", size=size, parts=_num_parts(node)
    )


def _scan_state(node: Node) -> CachedTensor:
    size = product((*node.shape[2:], node.inputs[1].shape[-1]))
    name = {
        "linear_attention": "linear attention",
        "selective_scan": "Mamba",
        "ssm_scan": "Mamba-2",
    }[node.op]
    return CachedTensor(
        kind="state", description=f"{name}'s state", size=size, parts=_num_parts(node)
    )


def _attention_steps(node: Node, masked: bool) -> Iterator[StepPart]:
    """Yield the scores, their softmax, and the weighted sum of values."""
    q, k, v, *selected = node.inputs
    keys = selected[0].shape[2] if node.attributes["gathers"] else k.shape[1]
    flops, shape = score_flops(node, masked), (node.shape[0], node.shape[2], node.shape[1], keys)
    yield StepPart(
        name="scores",
        kind="scores",
        description=describe.scores(node),
        shape=shape,
        inputs=(q, k, *selected),
        flops=flops,
    )
    yield StepPart(
        name="softmax",
        kind="softmax",
        description=describe.softmax(node),
        shape=shape,
        weights=node.weights,
    )
    rest, words = _attention_flops(node, masked) - flops, "values weighted by attention"
    yield StepPart(
        name="mix", kind="mix", description=words, shape=node.shape, inputs=(v,), flops=rest
    )


def _delta_steps(node: Node, masked: bool) -> Iterator[StepPart]:
    """Yield the states of a gated delta rule, and what is read from them."""
    shape = (node.shape[0], node.shape[2], node.inputs[1].shape[-1], node.shape[-1])
    words, flops = "one state matrix per head, updated token by token", _delta_flops(node, masked)
    yield StepPart(
        name="state",
        kind="state",
        description=words,
        shape=shape,
        inputs=node.inputs,
        flops=flops,
        cached=_delta_state(node),
    )
    yield StepPart(name="read", kind="mix", description="Sᵀ q for each token", shape=node.shape)


def _scan_steps(node: Node, masked: bool) -> Iterator[StepPart]:
    """Yield the states of Mamba or Mamba-2, and what is read from them."""
    shape = (node.shape[0], *node.shape[2:], node.inputs[1].shape[-1])
    each = "one state per channel" if node.op == "selective_scan" else "one state matrix per head"
    yield StepPart(
        name="state",
        kind="state",
        description=f"{each}, updated token by token",
        shape=shape,
        inputs=node.inputs,
        weights=node.weights,
        flops=_scan_flops(node, masked),
        cached=_scan_state(node),
    )
    words = "Sᵀ q" if node.op == "linear_attention" else "S c"
    yield StepPart(name="read", kind="mix", description=f"{words} for each token", shape=node.shape)


def _attention_rule(
    description: str | Callable[[Node], str], flops: Callable[[Node, bool], Expr], saved: SavedRule
) -> Rule:
    """Return the rule of an attention that is shown as one step."""
    return Rule(
        kind="mix", name="attention", description=description, flops=flops, mixing=True, saved=saved
    )


RULES: Mapping[str, Rule] = {
    "act": Rule(kind="act", name="{source}_act", description=describe.act, saved=save_act),
    "add": Rule(kind="add", name="{source}_add", description=describe.add),
    "add_open_window": Rule(
        kind="choice", name="windows", description="and the window that is not complete yet"
    ),
    "add_positions": Rule(kind="add", description="plus learned positions"),
    "add_sinusoids": Rule(
        kind="add", name="positions", description="sines and cosines of the position added"
    ),
    "attention": Rule(
        steps=_attention_steps, flops=_attention_flops, mixing=True, saved=save_attention
    ),
    "bounded_decay": Rule(
        kind="act", name="decay", description=describe.bounded_decay, saved=save_bounded_decay
    ),
    "cast": Rule(),
    "causal_conv": Rule(
        kind="conv",
        description=describe.causal_conv,
        flops=_conv_flops,
        cached=_cached_inputs,
        saved=save_mixer_inputs,
    ),
    "clamp": Rule(kind="act", name="{source}_clamp", description=describe.clamp, saved=save_clamp),
    "clamped_gated": Rule(
        kind="act", name="act", description=describe.clamped_gated, saved=save_gated
    ),
    "clip": Rule(
        kind="act", name="{source}_clip", description="clamped to stored limits", saved=save_clamp
    ),
    "combine": Rule(
        kind="sum",
        name="combine",
        description="weighted sum of the experts",
        saved=save_expert_outputs,
    ),
    "compress": Rule(
        kind="sum",
        name="compress",
        description=describe.compress,
        cached=_cached_tokens_of_windows,
        saved=save_mixer_inputs,
    ),
    "compressed_attention": _attention_rule(
        describe.compressed_attention, _compressed_flops, save_compressed_attention
    ),
    "concat": Rule(),
    "decay": Rule(
        kind="act",
        name="decay",
        description="decay of the state: −exp(a_log) · x",
        saved=save_mixer_inputs,
    ),
    "embeddings": Rule(),
    "encoder_ids": Rule(
        kind="ids",
        name="ids",
        description="ids of the tokens that the encoder reads, those of images among them",
    ),
    "dispatch": Rule(kind="view", name="dispatch", description=describe.dispatch),
    "drop_tokens": Rule(kind="view", name="patches_only", description="without the class token"),
    "dot": Rule(
        kind="sum", name="dot", description="product of both in each stream", saved=save_mix_streams
    ),
    "dropout": Rule(saved=save_dropout),
    "encoder_attention": Rule(
        steps=_attention_steps, flops=_attention_flops, mixing=True, saved=save_attention
    ),
    "gated": Rule(kind="act", name="act", description=describe.gated, saved=save_gated),
    "gated_delta_rule": Rule(
        steps=_delta_steps,
        flops=_delta_flops,
        mixing=True,
        cached=_delta_state,
        saved=save_mixer_inputs,
    ),
    "hash_ngrams": Rule(
        kind="choice", name="rows", description=describe.hash_ngrams, cached=_cached_ids
    ),
    "hidden_states": Rule(),
    "ids": Rule(kind="ids", name="ids", description="token ids, 0 to V − 1"),
    "keep_encoded": Rule(kind="cache", description="kept for all later tokens", cached=_kept_rows),
    "l2_norm": Rule(
        kind="norm", name="l2_norm", description="divided by its norm", saved=save_l2_norm
    ),
    "last_token": Rule(),
    "layer_norm": Rule(kind="norm", description=describe.layer_norm, saved=save_norm),
    "layer_outputs": Rule(),
    "layers": Rule(),
    "linear": Rule(
        kind="linear", description=describe.linear, flops=_matmul_flops, saved=save_linear
    ),
    "lookup": Rule(kind="lookup", description=describe.lookup, saved=save_ids),
    "lookup_in_parts": Rule(kind="lookup", description="rows of the n-grams", saved=save_ids),
    "merge_heads": Rule(kind="view", name="concat", description="heads concatenated per token"),
    "merge_patches": Rule(kind="view", name="merge_patches", description=describe.merge_patches),
    "normalize_sum": Rule(
        kind="multiply",
        name="{source}_share",
        description="divided by the sum",
        saved=save_normalize_sum,
    ),
    "mix_streams": Rule(
        kind="mix",
        description="weighted sums of the streams",
        flops=_mix_flops,
        mixing=True,
        saved=save_mix_streams,
    ),
    "multiply": Rule(
        kind="multiply", name="product", description=describe.multiply, saved=save_multiply
    ),
    "offset": Rule(kind="add", name="{source}_offset", description=describe.offset),
    "per_head_linear": Rule(
        kind="linear", description=describe.per_head_linear, flops=_matmul_flops, saved=save_linear
    ),
    "pool_patches": Rule(kind="sum", name="pool_patches", description=describe.pool_patches),
    "positions": Rule(),
    "prepend": Rule(kind="view", name="prepend", description="learned tokens before the patches"),
    "read_cache": Rule(kind="cache", description=describe.read_cache),
    "read_encoded": Rule(kind="cache", description="kept since the first pass", cached=_kept_rows),
    "reuse_selection": Rule(
        kind="choice",
        name="selection",
        description="the keys that the nearest earlier indexer selected",
    ),
    "rms_norm": Rule(kind="norm", description=describe.rms_norm, saved=save_norm),
    "rope": Rule(kind="rope", name="{source}_rope", description=describe.rope, saved=save_rope),
    "route": Rule(kind="choice", name="choice", description=describe.route, saved=save_route),
    "routing_weights": Rule(),
    "rope_windows": Rule(
        kind="rope",
        name="rope",
        description="rotated by the position of the window",
        saved=save_rope,
    ),
    "scale": Rule(kind="multiply", name="{source}_scale", description=describe.scale),
    "scale_by_expert": Rule(
        kind="multiply",
        description="times one stored number per expert",
        saved=save_scale_by_expert,
    ),
    "scale_by_position": Rule(
        kind="multiply", name="{source}_scale", description="scaled by position (temperature)"
    ),
    "scale_by_weight": Rule(
        kind="multiply", description=describe.scale_by_weight, saved=save_scale_by_weight
    ),
    "select_layer": Rule(),
    "select_blocks": Rule(
        kind="choice",
        name="selection",
        description=describe.select_blocks,
        flops=_block_flops,
        mixing=True,
    ),
    "select_keys": Rule(
        kind="choice",
        name="selection",
        description=describe.select_keys,
        flops=_select_flops,
        mixing=True,
    ),
    "linear_attention": Rule(
        steps=_scan_steps,
        flops=_scan_flops,
        mixing=True,
        cached=_scan_state,
        saved=save_mixer_inputs,
    ),
    "selective_scan": Rule(
        steps=_scan_steps,
        flops=_scan_flops,
        mixing=True,
        cached=_scan_state,
        saved=save_mixer_inputs,
    ),
    "softmax": Rule(
        kind="act", name="softmax", description="shares that sum to 1", saved=save_softmax
    ),
    "signed_root": Rule(
        kind="act",
        name="root",
        description="the root of its size, with its sign",
        saved=save_mixer_inputs,
    ),
    "sinkhorn": Rule(
        kind="act", name="sinkhorn", description=describe.sinkhorn, saved=save_mixer_inputs
    ),
    "slice": Rule(),
    "softcap": Rule(kind="act", name="softcap", description=describe.softcap, saved=save_softcap),
    "softplus": Rule(
        kind="act", name="softplus", description=describe.softplus, saved=save_softplus
    ),
    "split_heads": Rule(),
    "ssm_scan": Rule(
        steps=_scan_steps,
        flops=_scan_flops,
        mixing=True,
        cached=_scan_state,
        saved=save_mixer_inputs,
    ),
    "standardize": Rule(
        kind="multiply",
        name="{source}_standard",
        description="(x − bias) · scale",
        saved=save_scale_by_weight,
    ),
    "update_windows": Rule(
        kind="cache",
        name="windows",
        description="appended to the cache of windows",
        cached=_cached_windows,
    ),
    "update_cache": Rule(kind="cache", description=describe.update_cache, cached=_cached_rows),
}
