"""`class_summary` and `variant_name`: what a written class says and is called, for the case at
hand.
"""

from __future__ import annotations

import re
from typing import Any

from ...core.config import ACTIVATIONS
from ...core.expr import Expr
from ...core.tree import Block
from .class_code import ClassCode, Variant


def class_summary(code: ClassCode) -> str:
    """Return what a class is in one sentence: of the blocks that most models have, of this one;
    otherwise the first sentence of the block's docstring, with letters for its fields.
    """
    blocks = [x.block for x in code.variants]
    if write := _SUMMARIES.get(type(blocks[0]).__name__):
        found = {write(x) for x in blocks}
        if len(found) == 1:
            return found.pop()
    block = blocks[0]
    first = " ".join((type(block).__doc__ or "").strip().split("\n\n")[0].split())
    first = _without_papers(first)
    letters = {
        name: value.symbol
        for name in block.fields
        if isinstance(value := getattr(block, name), Expr) and value.letters
    }
    return re.sub(r"`([^`]+)`", lambda x: letters.get(x[1], x[1]), first)


def _letter(x: int) -> str:
    return x.symbol if isinstance(x, Expr) else str(int(x))


def _attention(x: Any) -> str:
    heads, kv = _letter(x.heads), _letter(x.kv_heads)
    if int(x.kv_heads) == int(x.heads):
        text = f"Multi-head attention: {heads} queries, each with keys and values of its own"
    elif int(x.kv_heads) == 1:
        text = f"Multi-query attention: {heads} queries share one head of keys and values"
    else:
        text = f"Grouped-query attention: {heads} queries share {kv} heads of keys and values"
    if x.k is None:
        text += ", those of an earlier layer"
    if x.q_norm is not None and x.k_norm is not None:
        text += ", with normalized queries and keys"
    if x.gate is not None:
        text += "; a gate multiplies the result"
    if x.sinks is not None:
        text += "; each has a sink, a logit without a value"
    return f"{text}."


def _mlp(x: Any) -> str:
    known = ACTIVATIONS[x.activation]
    name = known.function.replace("gelu_tanh", "gelu")
    if x.gate is None:
        return f"down({name}(up x))."
    return f"{known.gated}: down({name}(gate x) · up x)."


def _moe(x: Any) -> str:
    text = f"A mixture of experts: a router sends each token to {_letter(x.top_k)} of "
    text += f"{_letter(x.experts.n)} experts"
    if x.shared is not None:
        text += "; shared experts read every token"
    return f"{text}."


def _latent(x: Any) -> str:
    size = _letter(x.kv_lora_rank)
    text = f"Multi-head latent attention: keys and values are made of a vector of {size} numbers"
    return f"{text} for each token, which is what the cache keeps."


def _layer(x: Any) -> str:
    mixer, mlp = (_branch(x, name) for name in ("attn", "mlp"))
    if not mixer or not mlp:
        return f"One layer: x += {mixer or mlp}."
    if x.parallel:
        same = mlp if x.mlp_norm is not None else mlp.replace("x", f"{_norm_of(x, 'attn')} x", 1)
        return f"One layer, with mixer and MLP side by side: x += {mixer} + {same}."
    return f"One layer: x += {mixer}; x += {mlp}."


def _norm_of(layer: Any, name: str) -> str:
    return f"{name}_norm" if getattr(layer, f"{name}_norm") is not None else ""


def _branch(layer: Any, name: str) -> str:
    """Return a residual branch as a formula; empty if there is none."""
    if getattr(layer, name) is None:
        return ""
    inner = f"{name}({f'{_norm_of(layer, name)} x'.strip()})"
    has_norm = getattr(layer, f"{name}_out_norm") is not None
    inner = f"{name}_out_norm({inner})" if has_norm else inner
    factor = "" if float(layer.residual_multiplier) == 1 else "residual_multiplier · "
    return f"{factor}{inner}"


def _convolution(x: Any) -> str:
    apart = f", {int(x.dilation)} tokens apart" if int(x.dilation) > 1 else ""
    width = _letter(x.weight.shape[-1])
    return f"A causal convolution: each channel's last {width} inputs{apart} times its weights."


def _decoder(_: Any) -> str:
    return "The whole model, from token ids to logits."


_SUMMARIES = {
    "Attention": _attention,
    "MLP": _mlp,
    "MoE": _moe,
    "LatentAttention": _latent,
    "Convolution": _convolution,
    "Layer": _layer,
    "Decoder": _decoder,
}
"""Block -> its sentence; by name, so that no block is imported which the model does not have."""


def variant_name(kind: str, first: Variant, other: Variant) -> str:
    """Return the name of a second class of one type, by its differences from the first."""
    lacks = [x for x in _parts(first.block) if x not in _parts(other.block)]
    has = [x for x in _parts(other.block) if x not in _parts(first.block)]
    if has and len(has) <= 2:
        return f"{kind}With{_words(has)}"
    if lacks and len(lacks) <= 2:
        return f"{kind}Without{_words(lacks)}"
    for name, word in _FACTS:
        mine, theirs = (_is_set(x.block, name) for x in (first, other))
        if mine != theirs:
            return f"{kind}{'With' if theirs else 'Without'}{word}"
    rope, own = (getattr(x.block, "rope", None) for x in (first, other))
    if rope is not None and own is not None and type(rope) is not type(own):
        scaling = type(own).__name__.removesuffix("Rope")
        return f"{kind}With{scaling or 'Plain'}Rope"
    return ""


_FACTS = (("rope", "Rope"), ("window", "Window"), ("kv_layer", "OtherKeys"))


def _is_set(block: Block, name: str) -> bool:
    value = getattr(block, name, None)
    return value is not None and value != getattr(type(block), name, None)


def _parts(block: Block) -> list[str]:
    return [name for name, _ in block.children]


def _words(names: list[str]) -> str:
    """Return the names of parts as a part of the name of a class."""
    if set(names) == {"q_norm", "k_norm"}:
        return "QKNorm"
    known = {"attn": "Attention", "mlp": "MLP"}
    own = [x for x in names if x.removesuffix("_norm") == x or x.removesuffix("_norm") not in names]
    return "".join(known.get(y, y.capitalize()) for x in own for y in x.split("_"))


def _without_papers(text: str) -> str:
    """Leave out the brackets, with those inside of them, that name a paper."""
    kept, start, depth = "", 0, 0
    for i, x in enumerate(text):
        if x == "(" and (depth := depth + 1) == 1:
            kept, start = kept + text[start:i], i
        elif x == ")" and depth and not (depth := depth - 1):
            inside = text[start : i + 1]
            kept, start = (kept.rstrip() if "arXiv" in inside else kept + inside), i + 1
    return kept + text[start:]
