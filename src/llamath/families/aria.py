"""Aria's text model: Llama's attention with experts, stored as stacks, and shared ones."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={
        "mlp.router": "mlp.router",
        "mlp.experts.{e}.gate.weight": "mlp.experts.fc1.weight",
        "mlp.experts.{e}.up.weight": "mlp.experts.fc1.weight",
        "mlp.experts.{e}.down.weight": "mlp.experts.fc2.weight",
    },
    layouts=dict.fromkeys((f"mlp.experts.{{e}}.{x}" for x in ("gate", "up", "down")), "flip"),
)


@family("aria_text", hf=NAMES, causal_class="AriaTextForCausalLM")
def aria(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    E, k, S = (
        c.dim("E", "moe_num_experts", default=8),
        c.dim("k", "moe_topk", default=2),
        c.dim("S", "moe_num_shared_experts", default=2),
    )
    heads, norm = c.heads(d), rms(d, c.get("rms_norm_eps", 1e-6))
    shared = swiglu(d, S * F, c.activation("hidden_act"), bias=c.get("mlp_bias", False))
    moe = mixture(d, E, k, swiglu(d, F), shared=shared)
    attn = gqa(d, heads, bias=c.get("attention_bias", False), rope=read_rope(c, heads.head_dim))
    layers = repeat(
        Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=moe), c.dim("L", "num_hidden_layers")
    )
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
