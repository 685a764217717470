"""Sarvam 105B: DeepSeek-V3's layers without a latent vector of the queries, its experts in groups
of eight.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms, swiglu
from .deepseek_shared import latent_attention
from .kimi_shared import kimi_experts
from .layers_shared import dense_first
from .registry import family
from .rope_shared import read_rope, rope_from

_YARN = {
    "rope_type": "yarn",
    "factor": 40.0,
    "original_max_position_embeddings": 4096,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
"""Positions where a config says nothing of them."""


@family(hf=HF_LATENT)
def sarvam_mla(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm, p = rms(d, c.get("rms_norm_eps", 1e-6)), c.dim("p", "qk_rope_head_dim")
    rope = (
        read_rope(c, p, interleaved=True)
        if c.rope().data
        else rope_from(c, Config(_YARN), theta=c.get("rope_theta", 1e4), dim=p, interleaved=True)
    )
    attn = latent_attention(c, d, rope, q_rank=None)
    experts = c.get("n_routed_experts|num_experts", 8)
    moe = kimi_experts(c, d, groups=experts // 8, kept=2, factor=2.5)
    if not c.get("moe_router_enable_expert_bias", True):
        moe = moe.replace(correction=None)
    # no code reads them: the latent vectors always have a norm
    c.ignore("use_qk_norm", "q_head_dim", "moe_shared_expert_intermediate_size")
    dense = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    layers = dense_first(c, dense, dense.replace(mlp=moe), default=1)
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
