"""InternLM 1: Llama's layers with a bias on all four matrices of attention."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.positions import DynamicRope, Rope
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope


@family(hf=HF)
def internlm(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d)
    norm, context = rms(d, c.get("rms_norm_eps", 1e-6)), c.get("max_position_embeddings", 2048)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=c.get("bias", True), rope=_rotary(c, heads.head_dim, context)),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=context)


def _rotary(c: Config, h: int, context: int) -> Rope:
    """Read the rotary embedding from `rotary`, or from Llama's keys, which some files have."""
    if "rope_theta|rope_scaling" in c:
        return read_rope(c, h)
    s = c.sub("rotary")
    theta, kind = s.get("base", 10000.0), s.get("type", "dynamic")
    if kind == "dynamic":
        return DynamicRope(
            theta=theta, dim=h, factor=s.get("scaling_factor", 1.0), original_context=context
        )
    if kind == "origin":
        return Rope(theta=theta, dim=h)
    raise s.error("type", f"names the unknown scaling {kind!r}", "known: dynamic, origin")
