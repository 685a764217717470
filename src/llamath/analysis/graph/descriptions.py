"""Descriptions of operations in the trace."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.positions import Rope
from .node import Node

OVER_CACHED_KEYS = "over all previous keys"
_VIEWS = frozenset(("cast", "embeddings", "merge_heads", "select_layer", "slice", "split_heads"))
_FIELDS = {
    "head": "logits over the vocabulary",
    "k_up": "keys decompressed from the latents",
    "router": "router logits",
    "v_up": "values decompressed from the latents",
}
"""The results of projections with a name of their own, by field."""


def lookup(node: Node) -> str:
    """Describe a table by its ids."""
    return "learned position embedding" if node.inputs[0].op == "positions" else "token embedding"


def hash_ngrams(node: Node) -> str:
    """Describe the rows of a table for n-grams."""
    return (
        f"{int(node.shape[2])} hashes of the "
        f"{' and '.join(str(n) for n in range(2, node.attributes['ngram_size'] + 1))}-grams"
    )


def linear(node: Node) -> str:
    """Describe a projection."""
    tied = " (tied to the embedding)" if node.weights[0].weight.tied else ""
    plain = "W x + b at each position" if len(node.weights) > 1 else "W x at each position"
    return _FIELDS.get(_field(node), plain) + tied


def per_head_linear(node: Node) -> str:
    """Describe a projection that absorbed latent attention applies to each head."""
    return (
        "query projected into the latent space"
        if node.attributes["transposed"]
        else ("values decompressed from the weighted latents")
    )


def rms_norm(node: Node) -> str:
    """Describe a root-mean-square norm."""
    return (
        "per-head norm"
        if node.path.endswith("}")
        else "RMSNorm of each group"
        if node.attributes["grouped"]
        else "RMSNorm"
    )


def layer_norm(node: Node) -> str:
    """Describe a layer norm."""
    return "per-head norm" if node.path.endswith("}") else "LayerNorm"


def act(node: Node) -> str:
    """Describe an activation function."""
    return f"{node.attributes['name']}({_operand(node.inputs[0])})"


def gated(node: Node) -> str:
    """Describe a gated activation; common ones by name (Shazeer 2020, arXiv:2002.05202)."""
    function = node.attributes["name"]
    if node.inputs[1].op == "select_layer":
        return f"{function}(gate) · per-layer embedding"
    name = (
        "SwiGLU: "
        if function in ("silu", "swish")
        else "GeGLU: "
        if function.startswith("gelu")
        else ""
    )
    return f"{name}{function}(gate) · up"


def clamped_gated(node: Node) -> str:
    """Describe GPT-OSS's activation."""
    return (
        f"(up + 1) · g · sigmoid({node.attributes['alpha']:g} · g), both within "
        f"{node.attributes['limit']:g}"
    )


def add(node: Node) -> str:
    """Describe a sum: mostly a residual connection."""
    if "lookup" in (node.inputs[0].op, node.inputs[1].op):
        return "position embedding added"
    if not node.path.endswith("{l}"):
        return "shared experts added" if node.inputs[0].op == "combine" else "sum of both"
    return (
        "added to the normalized x"
        if node.inputs[0].op.endswith("norm")
        else ("added to the residual stream")
    )


def multiply(node: Node) -> str:
    """Describe an elementwise product."""
    return " · ".join(map(_operand, node.inputs))


def scale(node: Node) -> str:
    """Describe a constant factor."""
    return f"× {node.attributes['factor']:g}"


def compress(node: Node) -> str:
    """Describe windows of tokens."""
    overlap, weighted = (
        ", with those of the window before" if node.attributes["overlap"] else "",
        "weighted " * (len(node.inputs) > 1),
    )
    return f"{weighted}mean of each {int(node.attributes['ratio']):,} tokens{overlap}"


def compressed_attention(node: Node) -> str:
    """Describe attention to the last tokens and to windows."""
    top_k = node.attributes["top_k"]
    windows = (
        "all complete windows" if top_k is None else (f"at most {int(top_k):,} selected windows")
    )
    return (
        f"attention to the last {int(node.attributes['window'].size):,} tokens and to "
        f"{windows}, one attention sink per head"
    )


def sinkhorn(node: Node) -> str:
    """Describe a doubly stochastic matrix."""
    return f"rows and columns sum to 1, after {node.attributes['iterations']} steps"


def offset(node: Node) -> str:
    """Describe a constant that is added."""
    return f"+ {node.attributes['amount']:g}"


def scale_by_weight(node: Node) -> str:
    """Describe a stored factor."""
    what = "channel" if node.weights[0].shape[0] == node.shape[-1] else "head"
    return (
        "multiplied by a stored scalar"
        if int(node.weights[0].weight.size) == 1
        else f"multiplied by one stored number per {what}"
    )


def softcap(node: Node) -> str:
    """Describe a soft cap."""
    return f"capped at {node.attributes['cap']:g}"


def clamp(node: Node) -> str:
    """Describe a clamp."""
    return f"clamped to ± {node.attributes['limit']:g}"


def bounded_decay(node: Node) -> str:
    """Describe the decay of a recurrence with a lower bound."""
    return f"decay of the state: {node.attributes['bound']:g} · sigmoid(exp(a_log) · (x + dt_bias))"


def softplus(node: Node) -> str:
    """Describe the step size of a recurrence."""
    return f"softplus({_operand(node.inputs[0])} + {node.weights[0].path.rpartition('.')[2]})"


def rope(node: Node) -> str:
    """Describe a rotary embedding."""
    facts: Rope = node.attributes["rope"]
    size, kind = int(node.shape[-1]), type(facts).__name__.removesuffix("Rope")
    split = "split into heads, " if node.inputs[0].op == "split_heads" else ""
    part = "" if int(facts.dim) == size else f" in {int(facts.dim)} of {size}"
    return f"{split}rotated by position{part}" + (f" ({kind})" if kind else "")


def update_cache(node: Node) -> str:
    """Describe keys and values that are cached."""
    how = "appended" if int(node.shape[1]) > int(node.inputs[0].shape[1]) else "written"
    return f"{how} to the KV cache" + (
        ", shared by all heads" if node.attributes["name"] == "latents" else ""
    )


def read_cache(node: Node) -> str:
    """Describe keys and values of another layer."""
    what = "latent vectors" if node.attributes["name"] == "latents" else "keys and values"
    return f"{what} shared with layer {node.attributes['layer']}"


def select_keys(node: Node) -> str:
    """Describe the choice of keys by an indexer."""
    what, weight = (
        "keys" if node.attributes["ratio"] == 1 else "windows",
        "weight · " * (len(node.inputs) > 2),
    )
    return (
        f"the {int(node.attributes['top_k']):,} {what} with the highest scores Σ "
        f"{weight}relu(q · k)"
    )


def select_blocks(node: Node) -> str:
    """Describe the choice of blocks by an indexer."""
    size, kept = map(int, node.attributes["blocks"])
    return f"{kept:,} blocks of {size:,} keys: the nearest, and those with the largest q · k"


def scores(node: Node) -> str:
    """Describe the scores of attention."""
    groups = int(node.shape[2]) // int(node.inputs[1].shape[2])
    return "q · k of every pair, scaled" + (
        f"; {groups} query heads per KV head" if groups > 1 else ""
    )


def softmax(node: Node) -> str:
    """Describe the mask of attention, and the transforms of its scores."""
    return ", ".join(_softmax(node))


def _softmax(node: Node) -> Iterator[str]:
    if node.op == "encoder_attention":
        of_text = node.path.startswith("encoder.") or node.inputs[1].op in (
            "keep_encoded",
            "read_encoded",
        )
        yield f"over all tokens of the {'encoder' if of_text else 'image'}"
        return
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


def causal_conv(node: Node) -> str:
    """Describe a convolution."""
    apart = "" if node.attributes["dilation"] == 1 else f", {node.attributes['dilation']} apart"
    return f"causal convolution over {int(node.weights[0].shape[1])} tokens{apart} per channel"


def route(node: Node) -> str:
    """Describe the choice of experts."""
    moe, choice = (
        node.attributes["moe"],
        (f"top {int(node.shape[-1])} of {int(node.inputs[0].shape[-1]):,} experts"),
    )
    groups = (
        f", from the best {moe.expert_groups.kept} of {moe.expert_groups.groups} groups"
        if moe.expert_groups
        else ""
    )
    return f"{choice} with their weights ({moe.scoring}){groups}"


def dispatch(node: Node) -> str:
    """Describe the rows of experts."""
    return "tokens dispatched to their experts" + (
        ", scaled by the router" if node.attributes["moe"].routing == "input" else ""
    )


def _field(node: Node) -> str:
    """Return the name of the block that an operation is part of."""
    return node.path.rpartition(".")[2]


def _operand(node: Node) -> str:
    """Return a short name for the result of an operation."""
    while node.op in _VIEWS and node.inputs:
        node = node.inputs[0]
    if node.op == "act":
        return act(node)
    return _field(node) if node.weights else "x"


def merge_patches(node: Node) -> str:
    """The features of patches, joined."""
    return "the features of {0} × {0} patches joined".format(node.attributes["side"])


def pool_patches(node: Node) -> str:
    """The average of patches."""
    return "the average of {0} × {0} patches".format(node.attributes["side"])
