"""GLM-4.7-Flash: DeepSeek-V3's latent attention and mixture of experts; every layer after the
first has experts.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LATENT
from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms, swiglu
from .deepseek_shared import deepseek_v3_moe, latent_attention, mtp_layers
from .layers_shared import dense_or_sparse
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF_LATENT,
    gguf=GGUF_LATENT,
    gguf_arch="deepseek2",
    causal_class="Glm4MoeLiteForCausalLM",
    renames_experts="glm4_moe_lite",
)
def glm4_moe_lite(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm = rms(d, c.get("rms_norm_eps", 1e-5))
    rope = read_rope(c, c.dim("p", "qk_rope_head_dim"), interleaved=c.get("rope_interleave", True))
    attn = latent_attention(c, d, rope, q_rank=768)
    moe = deepseek_v3_moe(c, d, factor=1.8)
    dense = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    layers = dense_or_sparse(c, dense, dense.replace(mlp=moe))
    mtp = mtp_layers(c, V, d, dense.replace(mlp=moe))
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
        mtp=mtp,
    )
