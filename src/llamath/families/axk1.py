"""A.X K1: DeepSeek-V3 with a norm after the experts of each sparse layer."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms, swiglu
from .registry import family
from .shared import deepseek_moe, deepseek_routing, dense_or_sparse, latent_attention, read_rope


@family(hf=HF_LATENT.with_changes(inside={"mlp_out_norm": "post_mlp_layernorm"}))
def axk1(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    attn = latent_attention(c, d, read_rope(c, c.dim("p", "qk_rope_head_dim"), interleaved=c.get("rope_interleave", True)))
    moe = deepseek_moe(
        c,
        d,
        deepseek_routing(c, "sigmoid", "noaux_tc", n_group=8, topk_group=4),
        shared=1,
        norm_topk_prob=c.get("norm_topk_prob", True),
        routed_scaling_factor=c.get("routed_scaling_factor", 2.5),
        fp32_router=True,
    )
    if attn.q is not None:
        raise c.error("q_lora_rank", "is null", "queries of this family always have a latent vector")
    dense = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act")))
    layers = dense_or_sparse(c, dense, dense.replace(mlp=moe, mlp_out_norm=norm))
    return decoder(V, d, layers, norm, c.get("tie_word_embeddings", False), context=c.positive_int("max_position_embeddings"))
