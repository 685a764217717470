"""Windows of tokens: rows of operations that compress tokens, and attend to what they become."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....core.expr import Expr, floor_div, maximum, minimum, product
from ..node import FLOAT32, Node
from .attention_operations import save_rope
from .operation import CachedTensor, Operation, Shape
from .pair_counts import pairs_in_window, windows_seen
from .saved_tensors import (
    INT32,
    Kernels,
    Saved,
    SavedTensor,
    elements_per_token,
    estimate_mixer_inputs,
    own_tensor,
    save_tensor,
)

if TYPE_CHECKING:
    from ..recorder import GraphRecorder

add_open_window = Operation(
    name="add_open_window",
    shape=lambda selected: (*selected.shape[:2], 1, selected.shape[2] + 1),
    facts=lambda indexer: {"windows": (indexer.ratio, indexer.top_k)},
    kind="choice",
    step="windows",
    description="and the window that is not complete yet",
)


def _compressed_shape(m: GraphRecorder, compressor: Any) -> Shape:
    ratio, past = compressor.ratio, m.past_tokens
    windows = floor_div(past + m.new_tokens, ratio) - floor_div(past, ratio)
    return (m.batch, windows, 1, compressor.head_dim)


def _cached_tokens_of_windows(node: Node) -> CachedTensor:
    """Return the tokens of the next window, and those of the last one that overlaps it."""
    kv, overlap = node.inputs[0], node.attributes["overlap"]
    tokens = 2 * node.attributes["ratio"] - 1 if overlap else node.attributes["ratio"] - 1
    return CachedTensor(
        kind="conv",
        description="tokens of the next window",
        size=product((len(node.inputs), tokens, kv.shape[-1])),
    )


def _describe_compress(node: Node) -> str:
    overlap, weighted = (
        ", with those of the window before" if node.attributes["overlap"] else "",
        "weighted " * (len(node.inputs) > 1),
    )
    return f"{weighted}mean of each {int(node.attributes['ratio']):,} tokens{overlap}"


compress = Operation(
    name="compress",
    shape=_compressed_shape,
    facts=lambda compressor: {"ratio": compressor.ratio, "overlap": compressor.overlap},
    cached=_cached_tokens_of_windows,
    kind="sum",
    step="compress",
    description=_describe_compress,
    saved=estimate_mixer_inputs,
)
rope_windows = Operation(
    name="rope_windows",
    is_identity=lambda rope: rope is None,
    kind="rope",
    step="rope",
    description="rotated by the position of the window",
    saved=save_rope,
)


def _windows_shape(m: GraphRecorder, compressor: Any, x: Node) -> Shape:
    windows = floor_div(m.past_tokens + m.new_tokens, compressor.ratio)
    return (x.shape[0], windows, *x.shape[2:])


def _cached_windows(node: Node) -> CachedTensor:
    words = "keys of the indexer for windows" if node.without_gradient else "keys for windows"
    return CachedTensor(
        kind="row", description=words, size=product(node.shape[2:]), every=node.attributes["ratio"]
    )


update_windows = Operation(
    name="update_windows",
    shape=_windows_shape,
    facts=lambda compressor: {"ratio": compressor.ratio},
    cache="windows",
    cached=_cached_windows,
    kind="cache",
    step="windows",
    description="appended to the cache of windows",
)


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


def _describe_compressed_attention(node: Node) -> str:
    top_k = node.attributes["top_k"]
    windows = (
        "all complete windows" if top_k is None else (f"at most {int(top_k):,} selected windows")
    )
    return (
        f"attention to the last {int(node.attributes['window'].size):,} tokens and to "
        f"{windows}, one attention sink per head"
    )


def _save_compressed_attention(x: Node, k: Kernels) -> Iterator[Saved]:
    """Queries, keys and windows; and either the softmax of the scores, or the result and one
    number for each query.
    """
    q, key, windows, *selected = x.inputs
    ratio = int(x.attributes["ratio"])
    yield from save_tensor("queries", q, k)
    yield from save_tensor("keys", key, k)
    entries = -(-int(windows.shape[-1]) // ratio)
    yield (
        windows,
        SavedTensor(
            "windows",
            elements_per_token(product((*x.shape[:2], entries))),
            k.width,
            "sequence",
            estimated=True,
        ),
    )
    if not k.flash:
        size = product((*x.shape[:3], k.keys + floor_div(k.keys, ratio)))
        yield own_tensor(
            "softmax of scores",
            x,
            size,
            k.width if k.fused else FLOAT32,
            is_score=True,
            estimated=True,
        )
        return
    yield own_tensor("sums of softmax", x, product(x.shape[:-1]), FLOAT32)
    yield from save_tensor("output of attention", x, k)
    for y in selected:
        keys = minimum(maximum(floor_div(k.keys, ratio), 1), x.attributes["top_k"])
        yield (
            y,
            SavedTensor(
                "selected keys",
                elements_per_token(product((*y.shape[:2], keys))),
                INT32,
                "sequence",
            ),
        )


compressed_attention = Operation(
    name="compressed_attention",
    shape=lambda q: q.shape,
    facts=lambda m, mixer, selected: {
        "top_k": None if selected is None else mixer.top_k,
        "ratio": mixer.ratio,
        "window": mixer.window,
        "past_tokens": m.past_tokens,
    },
    is_attention=True,
    flops=_compressed_flops,
    mixing=True,
    kind="mix",
    step="attention",
    description=_describe_compressed_attention,
    saved=_save_compressed_attention,
)
