"""Granite 3's MoE models and PowerMoE: Granite's layers and multipliers with experts stacked in two tensors."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import ScoreTransform
from ..core.blocks import Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, linear, rms, swiglu
from ..core.tree import repeat
from .registry import family
from .shared import read_rope

NAMES = HF.with_changes(
    inside={
        "mlp.router": "block_sparse_moe.router.layer",
        "mlp.experts.{e}.gate": "block_sparse_moe.input_linear",
        "mlp.experts.{e}.up": "block_sparse_moe.input_linear",
        "mlp.experts.{e}.down": "block_sparse_moe.output_linear",
    }
)


@family(hf=NAMES, gguf=GGUF_LLAMA, gguf_arch="granitemoe")
def granitemoe(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    E, k = c.dim("E", "num_local_experts"), c.dim("k", "num_experts_per_tok")
    heads, bias, scale = c.heads(d), c.get("attention_bias", False), c.get("attention_multiplier", 1.0)
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    expert = swiglu(d, F, c.activation("hidden_act"))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias, rope=read_rope(c, heads.head_dim), score_transform=ScoreTransform(scale=scale)),
        mlp_norm=norm,
        mlp=MoE(router=linear(E, d), experts=repeat(expert, E, active=k), top_k=k),
        residual_multiplier=c.get("residual_multiplier", 1.0),
    )
    embed, logit_scale = embedding(V, d, c.get("embedding_multiplier", 1.0)), 1 / c.get("logits_scaling", 1.0)
    layers, context = repeat(layer, c.dim("L", "num_hidden_layers")), c.positive_int("max_position_embeddings")
    tied = c.get("tie_word_embeddings", False)
    return decoder(V, d, layers, norm, tied, context=context, embed=embed, logit_scale=logit_scale)
