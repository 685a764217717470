"""Readers that Zamba and Zamba2 share: names, the kinds of layers, and the attention of shared
blocks.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..checkpoint.naming.hf_names import HF
from ..checkpoint.naming.scheme import Scheme
from ..core.attention_facts import Heads, ScoreTransform
from ..core.blocks import Attention
from ..core.config import Config
from ..core.constructors import gqa, linear
from ..core.expr import Expr
from ..core.positions import Rope
from ..utils.errors import safe
from .layers_shared import check_listed

MAMBA_MODULES = {"attn": "mamba", "mixer": "mamba_decoder.mamba"}
"""Mamba in layers without and with a shared block → its module."""
_KINDS = {"mamba": "mamba", "linear_attention": "mamba", "hybrid": "hybrid"}


def zamba_names(shared: str, inside: Mapping[str, str], layouts: Mapping[str, str]) -> Scheme:
    """Return the HF names of a model with the shared blocks in this module; `layouts` are those
    of Mamba, with such a block or without.
    """
    own = {
        "mixer_norm": "mamba_decoder.input_layernorm",
        "link": "linear",
        "shared.norm": f"{shared}.input_layernorm",
        **{f"shared.attn.{x}": f"{shared}.self_attn.{x}_proj" for x in "qkvo"},
        "shared.mlp_norm": f"{shared}.pre_ff_layernorm",
        **{f"shared.mlp.{x}": f"{shared}.feed_forward.{x}_proj" for x in ("gate", "up", "down")},
    }
    return HF.with_changes(
        outside={"norm": "model.final_layernorm"},
        inside={**own, **inside},
        layouts={
            f"{path}.{x}": layout for path in ("attn", "mixer") for x, layout in layouts.items()
        },
    )


def hybrid_kinds(c: Config, L: int, default: list[str]) -> list[str]:
    """Read which layers have a shared block; the class takes `default` where the list is absent."""
    check_listed(c, L)
    kinds: list[str] = c.get("layers_block_type|layer_types", default)
    if unknown := [x for x in kinds if x not in tuple(_KINDS)]:
        raise c.error(
            "layers_block_type",
            f"has the unknown type {safe(repr(unknown[0]), 60)}",
            f"known: {', '.join(_KINDS)}",
        )
    if len(kinds) != L:
        raise c.error(
            "num_hidden_layers",
            f"is {L}, but there are {len(kinds)} types of layers",
            "layers_block_type lists them",
        )
    c.ignore("hybrid_layer_ids")
    return [_KINDS[x] for x in kinds]


def shared_attention(d: Expr, H: Expr, K: Expr, h: Expr, rope: Rope | None = None) -> Attention:
    """Attention that reads hidden states and embeddings, 2d wide together; scores are divided by
    √(h / 2).
    """
    attention = gqa(
        d, Heads(H, K, h), rope=rope, score_transform=ScoreTransform(scale=2**0.5 * h**-0.5)
    )
    return attention.replace(q=linear(H * h, 2 * d), k=linear(K * h, 2 * d), v=linear(K * h, 2 * d))
