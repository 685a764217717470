"""A.X K1: DeepSeek-V3 with a norm after the experts of each sparse layer."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms, swiglu
from .deepseek_shared import deepseek_v3_moe, latent_attention
from .layers_shared import dense_or_sparse
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF_LATENT.with_changes(inside={"mlp_out_norm": "post_mlp_layernorm"}),
    causal_class="AXK1ForCausalLM",
)
def axk1(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    attn = latent_attention(
        c,
        d,
        read_rope(c, c.dim("p", "qk_rope_head_dim"), interleaved=c.get("rope_interleave", True)),
    )
    moe = deepseek_v3_moe(c, d, factor=2.5, groups=(8, 4))
    if attn.q is not None:
        raise c.error(
            "q_lora_rank", "is null", "queries of this family always have a latent vector"
        )
    dense = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    layers = dense_or_sparse(c, dense, dense.replace(mlp=moe, mlp_out_norm=norm))
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
