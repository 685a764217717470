"""Positions, caches and attention: rows of operations in which tokens meet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....core.attention_facts import AttentionWindow
from ....core.expr import Expr, as_number, ceil_div, floor_div, minimum, product, total
from ....core.positions import Rope
from ....utils.number_marks import text_if_equal
from ..node import FLOAT32, Node
from .elementwise_operations import clamp
from .operation import CachedTensor, FlopRule, Operation, Shape, StepPart, num_parts
from .pair_counts import pairs_in_blocks, pairs_in_selected_windows, pairs_in_window, windows_seen
from .projection_operations import linear
from .saved_tensors import (
    INT32,
    MASK,
    Kernels,
    Saved,
    SavedTensor,
    elements_per_token,
    own_tensor,
    save_tensor,
    stored_tensor,
)
from .shape_operations import split_heads

if TYPE_CHECKING:
    from ..recorder import GraphRecorder

OVER_CACHED_KEYS = "over all keys up to its own"

# Positions


def _describe_rope(node: Node) -> str:
    facts: Rope = node.attributes["rope"]
    size, kind = int(node.shape[-1]), facts.scaling
    split = "split into heads, " if node.inputs[0].op is split_heads else ""
    part = "" if int(facts.dim) == size else f" in {int(facts.dim)} of {size}"
    return f"{split}rotated by position{part}" + (f" ({kind})" if kind else "")


def save_rope(x: Node, k: Kernels) -> Iterator[Saved]:
    """The tables of cosines and sines, unless a fused kernel computes them on the fly; all
    layers share them.
    """
    rope = x.attributes["rope"]
    if not k.fused:
        yield (
            rope,
            SavedTensor(
                "rotary tables", Expr.const(2 * rope.dim), k.width, "sequence", shared_by_batch=True
            ),
        )


rope = Operation(
    name="rope",
    is_identity=lambda rope: rope is None,
    kind="rope",
    step="{source}_rope",
    description=_describe_rope,
    saved=save_rope,
)
scale_by_position = Operation(
    name="scale_by_position",
    is_identity=lambda temperature: temperature is None,
    kind="multiply",
    step="{source}_scale",
    description="scaled by position (temperature)",
)
add_sinusoids = Operation(
    name="add_sinusoids",
    kind="add",
    step="positions",
    description="sines and cosines of the position added",
)

# The KV cache


def _record_update_cache(m: GraphRecorder, mixer: Any, *rows: Node) -> list[Node]:
    window: AttentionWindow = mixer.window
    keys = m.visible_keys(window)
    return [
        m.add_node(update_cache, (x,), (x.shape[0], keys, *x.shape[2:]), window=window, name=name)
        for x, name in zip(rows, mixer.cached_rows[: len(rows)], strict=True)
    ]


def _record_read_cache(m: GraphRecorder, mixer: Any) -> list[Node]:
    shape = (m.batch, m.visible_keys(mixer.window))
    rows = zip(mixer.shared_rows, mixer.cached_rows, strict=True)
    return [
        m.add_node(read_cache, (), (*shape, *row), layer=mixer.kv_layer, name=name)
        for row, name in rows
    ]


def _cached_rows(node: Node) -> CachedTensor:
    size, window = product(node.shape[2:]), node.attributes["window"]
    words = "latent keys and values" if node.attributes["name"] == "latents" else "keys and values"
    words = "keys of the indexer" if node.without_gradient else words
    return CachedTensor(
        kind="row", description=words, size=size, window=window, parts=num_parts(node)
    )


def _describe_update_cache(node: Node) -> str:
    how = "appended" if int(node.shape[1]) > int(node.inputs[0].shape[1]) else "written"
    return f"{how} to the KV cache" + (
        ", shared by all heads" if node.attributes["name"] == "latents" else ""
    )


def _describe_read_cache(node: Node) -> str:
    """Describe keys and values of another layer."""
    what = "latent vectors" if node.attributes["name"] == "latents" else "keys and values"
    return f"{what} shared with layer {node.attributes['layer']}"


update_cache = Operation(
    name="update_cache",
    record=_record_update_cache,
    cache="kept",
    cached=_cached_rows,
    kind="cache",
    step="{name}",
    description=_describe_update_cache,
)
read_cache = Operation(
    name="read_cache",
    record=_record_read_cache,
    cache="read",
    kind="cache",
    step="{name}",
    description=_describe_read_cache,
)

# The choice of keys


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


def _describe_select_keys(node: Node) -> str:
    what, weight = (
        "keys" if node.attributes["ratio"] == 1 else "windows",
        "weight · " * (len(node.inputs) > 2),
    )
    return (
        f"the {int(node.attributes['top_k']):,} {what} with the highest scores Σ "
        f"{weight}relu(q · k)"
    )


def _block_flops(node: Node, masked: bool) -> Expr:
    """Return the FLOPs of the scores of a block indexer."""
    q, k = node.inputs
    new, past, window = node.shape[1], node.attributes["past_tokens"], node.attributes["window"]
    pairs = pairs_in_window(window, new, past).alias("A") if masked else product((new, k.shape[1]))
    return product((2, q.shape[0], q.shape[2], q.shape[3], pairs))


def _describe_select_blocks(node: Node) -> str:
    size, kept = map(int, node.attributes["blocks"])
    return f"{kept:,} blocks of {size:,} keys: the nearest, and those with the largest q · k"


def _record_reuse_selection(m: GraphRecorder, mixer: Any) -> Node:
    keys = m.visible_keys(mixer.window)
    if mixer.block_size == 1:
        chosen = minimum(keys, mixer.top_k)
        return m.add_node(reuse_selection, (), (m.batch, m.new_tokens, chosen))
    windows = minimum(floor_div(keys, mixer.block_size), mixer.top_k) + 1
    return m.add_node(
        reuse_selection,
        (),
        (m.batch, m.new_tokens, 1, windows),
        windows=(mixer.block_size, mixer.top_k),
    )


select_keys = Operation(
    name="select_keys",
    shape=lambda indexer, q, k: (*q.shape[:2], minimum(k.shape[1], indexer.top_k)),
    dtype="int64",
    facts=lambda m, indexer: {
        "past_tokens": m.past_tokens,
        "window": indexer.window,
        "top_k": indexer.top_k,
        "ratio": indexer.ratio,
    },
    flops=_select_flops,
    mixing=True,
    kind="choice",
    step="selection",
    description=_describe_select_keys,
)
select_blocks = Operation(
    name="select_blocks",
    shape=lambda indexer, q, k: (
        *q.shape[:3],
        minimum(ceil_div(k.shape[1], indexer.block_size), indexer.top_blocks),
    ),
    dtype="int64",
    facts=lambda m, indexer: {
        "past_tokens": m.past_tokens,
        "window": indexer.window,
        "blocks": (indexer.block_size, indexer.top_blocks),
    },
    flops=_block_flops,
    mixing=True,
    kind="choice",
    step="selection",
    description=_describe_select_blocks,
)
reuse_selection = Operation(
    name="reuse_selection",
    record=_record_reuse_selection,
    dtype="int64",
    kind="choice",
    step="selection",
    description="the keys that the nearest earlier indexer selected",
)

# Attention


def _attended_pairs(node: Node, masked: bool) -> Expr:
    """Return the number of query-key pairs of an attention node, of one sequence and head."""
    new, facts = node.shape[1], node.attributes
    if not masked:
        keys = node.inputs[3].shape[2] if facts["gathers"] else node.inputs[1].shape[1]
        return product((new, keys))
    past, window, top_k = facts["past_tokens"], facts["window"], facts["top_k"]
    if blocks := facts["blocks"]:
        return pairs_in_blocks(blocks, past + new) - pairs_in_blocks(blocks, past)
    if windows := facts["windows"]:
        return pairs_in_selected_windows(windows, new, past)
    if top_k is not None:  # as many as in a window of this size
        return pairs_in_window(AttentionWindow(size=top_k), new, past).alias("As")
    return pairs_in_window(window, new, past).alias(
        "Aw" if window.size else "Ac" if window.chunk else "A"
    )


class AttentionFlops:
    """The FLOPs of an attention whose pairs are counted by `pairs`."""

    def __init__(self, pairs: FlopRule) -> None:
        self._pairs = pairs

    def scores(self, node: Node, masked: bool) -> Expr:
        """Return those of q kᵀ."""
        return self._of(node, node.inputs[0].shape[-1], masked)

    def both(self, node: Node, masked: bool) -> Expr:
        """Return those of the scores and of the weighted values."""
        return self._of(node, total((node.inputs[0].shape[-1], node.shape[-1])), masked)

    def _of(self, node: Node, sizes: Expr, masked: bool) -> Expr:
        return product((2, node.shape[0], node.shape[2], sizes, self._pairs(node, masked)))


def attention_shape(q: Node, v: Node) -> Shape:
    """Return the shape of the weighted values."""
    return (*q.shape[:-1], v.shape[-1])


def _scaling_text(node: Node) -> str:
    """Return the scaling of the scores: ` / √128`, ` × 0.1147`."""
    scale, head_dim = node.attributes["transform"].scale, node.attributes.get("head_dim")
    if scale is None:
        return f" / √{as_number(head_dim or node.inputs[0].shape[-1])}"
    if scale == 1:
        return ""
    square = round(scale**-2)
    return f" / √{square}" if abs(square * scale**2 - 1) < 1e-9 else f" × {scale:.4g}"


def attention_steps(
    node: Node, masked: bool, flops: AttentionFlops, softmax: str
) -> Iterator[StepPart]:
    """Yield the scores, their softmax, and the weighted sum of values."""
    q, k, v, *selected = node.inputs
    keys = selected[0].shape[2] if node.attributes["gathers"] else k.shape[1]
    scores, shape = flops.scores(node, masked), (node.shape[0], node.shape[2], node.shape[1], keys)
    groups = as_number(node.shape[2]) // as_number(k.shape[2])
    yield StepPart(
        name="scores",
        kind="scores",
        description=f"q · k{_scaling_text(node)} of every pair"
        + text_if_equal(groups, 1, "", f"; {groups} query heads per KV head"),
        shape=shape,
        inputs=(q, k, *selected),
        flops=scores,
    )
    yield StepPart(
        name="softmax", kind="softmax", description=softmax, shape=shape, weights=node.weights
    )
    rest, words = flops.both(node, masked) - scores, "values weighted by attention"
    yield StepPart(
        name="mix", kind="mix", description=words, shape=node.shape, inputs=(v,), flops=rest
    )


def _describe_softmax(node: Node) -> Iterator[str]:
    """Yield the mask of attention, and the transforms of its scores."""
    window, transform = node.attributes["window"], node.attributes["transform"]
    if window.size is not None:
        yield (
            f"over the last {window.size:,} keys"
            if window.causal
            else (f"over keys less than {window.size:,} away, including later ones")
        )
    elif window.chunk is not None:
        yield f"over the keys of its chunk of {window.chunk:,}"
    elif node.attributes["windows"]:
        ratio, most = map(int, node.attributes["windows"])
        yield (
            f"over the keys of at most {most:,} selected windows of {ratio:,}, and those after "
            "the last complete one"
        )
    else:
        all_keys = OVER_CACHED_KEYS if window.causal else "over all keys, including later ones"
        yield (
            all_keys
            if node.attributes["top_k"] is None
            else (f"over at most {int(node.attributes['top_k']):,} selected keys")
        )
    if transform.softcap is not None:
        yield f"capped at {transform.softcap:g}"
    if transform.alibi is not None:
        yield "ALiBi bias added"
    if node.weights:
        yield "one attention sink per head"


def save_attention(x: Node, k: Kernels) -> Iterator[Saved]:
    """Queries, keys and values; and either the scores, or the result and one number for each
    query.
    """
    q, key, value, *others = x.inputs
    for what, y in zip(("keys", "values"), (key, value), strict=True):
        yield from (
            _repeated_heads(what, x, y, k) if not (k.fused or k.flash) else save_tensor(what, y, k)
        )
    yield from _fused_qkv(x, k)
    yield from save_tensor("queries", q, k)
    if k.flash:
        yield own_tensor("sums of softmax", x, product(x.shape[:-1]), FLOAT32)
        yield from save_tensor("output of attention", x, k)
        for y in others:
            if y.op.kind != "choice":
                yield from save_tensor("biases of scores", y, k)
                continue
            if y.op is select_blocks:
                size, kept = x.attributes["blocks"]
                blocks = product((*y.shape[:3], minimum(ceil_div(k.keys, size), kept)))
                yield (
                    y,
                    SavedTensor("selected blocks", elements_per_token(blocks), INT32, "sequence"),
                )
                continue
            if windows := x.attributes["windows"]:
                ratio, most = windows
                chosen = product((*y.shape[:2], minimum(floor_div(k.keys, ratio), most) + 1))
                yield (
                    y,
                    SavedTensor("selected windows", elements_per_token(chosen), INT32, "sequence"),
                )
                continue
            keys = minimum(k.keys, x.attributes["top_k"])
            yield (
                y,
                SavedTensor(
                    "selected keys",
                    elements_per_token(product((*y.shape[:2], keys))),
                    INT32,
                    "sequence",
                ),
            )
    else:
        yield from _scores(x, k)


def _repeated_heads(what: str, x: Node, y: Node, k: Kernels) -> Iterator[Saved]:
    """Keys or values: transformers' `repeat_kv` copies them for every query head."""
    if int(y.shape[2]) == int(x.shape[2]):
        yield from save_tensor(what, y, k)
    else:
        yield own_tensor(what, x, product((*x.shape[:3], y.shape[-1])), y.width)


def _fused_qkv(x: Node, k: Kernels) -> Iterator[Saved]:
    """The queries and keys before the rotation, which share the storage of the values where
    transformers has one matrix for all three.
    """
    q, key, *_ = x.inputs
    rotated = stored_tensor(key, k)
    if (
        k.fused_qkv
        and k.flash
        and not k.fused
        and rotated.op is rope
        and stored_tensor(rotated.inputs[0], k).op in (linear, clamp)
    ):
        size = product((*x.shape[:2], total((q.shape[2], key.shape[2])), x.shape[3]))
        yield own_tensor("values, as part of q, k and v", q, size, k.width)


def _scores(x: Node, k: Kernels) -> Iterator[Saved]:
    """The tensors that attention saves between its two products."""
    size = product((*x.shape[:3], k.keys))
    yield own_tensor("softmax of scores", x, size, k.width if k.fused else FLOAT32, is_score=True)
    if not k.fused and k.width != FLOAT32:
        yield own_tensor("softmax of scores, rounded", x, size, k.width, is_score=True)
    if x.attributes["transform"].softcap:
        yield own_tensor("tanh of scores", x, size, k.width, is_score=True)
    if k.dropout:
        yield own_tensor("dropout mask of scores", x, size, MASK, is_score=True)
        yield own_tensor("softmax after dropout", x, size, k.width, is_score=True)


def _attention_facts(m: GraphRecorder, mixer: Any, selected: Node | None) -> dict[str, Any]:
    by_key = selected is not None and len(selected.shape) == 3
    return {
        "top_k": mixer.top_k if by_key else None,
        "gathers": by_key and m.decode,
        # size and number of the selected blocks
        "blocks": None if selected is None else selected.attributes.get("blocks"),
        # the same of windows before the query's own
        "windows": None if selected is None else selected.attributes.get("windows"),
        "window": mixer.window,
        "past_tokens": m.past_tokens,
        "transform": mixer.score_transform,
    }


_FLOPS = AttentionFlops(_attended_pairs)

attention = Operation(
    name="attention",
    shape=attention_shape,
    facts=_attention_facts,
    is_attention=True,
    flops=_FLOPS.both,
    score_flops=_FLOPS.scores,
    mixing=True,
    steps=lambda node, masked: attention_steps(
        node, masked, _FLOPS, ", ".join(_describe_softmax(node))
    ),
    saved=save_attention,
)
