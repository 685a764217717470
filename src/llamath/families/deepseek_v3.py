"""DeepSeek-V3, R1 and derivatives (Kimi K2): latent attention, a router that scores by sigmoid
and chooses with a learned bias.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LATENT
from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms, swiglu
from .deepseek_shared import deepseek_v3_moe, latent_attention, mtp_layers
from .gguf_record import DEEPSEEK_MOE, GROUPED_ROUTING, MLA, GGUFMetadata
from .gguf_shared import mla_keys, read_mla_rope
from .layers_shared import dense_first
from .registry import family
from .rope_shared import read_rope


@family(
    "deepseek_v3 kimi_k2",
    hf=HF_LATENT,
    gguf=GGUF_LATENT,
    gguf_arch="deepseek2",
    gguf_metadata=GGUFMetadata(
        keys=f"{MLA} {DEEPSEEK_MOE} {GROUPED_ROUTING} topk_method scoring_func",
        read=read_mla_rope,
        write=mla_keys,
        applies=lambda h: h.uniform_integer("expert_gating_func") == 2,
    ),
    causal_class="DeepseekV3ForCausalLM",
    renames_experts="deepseek_v3",
)
def deepseek_v3(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    attn = latent_attention(
        c,
        d,
        read_rope(c, c.dim("p", "qk_rope_head_dim"), interleaved=c.get("rope_interleave", True)),
    )
    moe = deepseek_v3_moe(c, d, factor=2.5, groups=(8, 4))
    dense = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    layers = dense_first(c, dense, dense.replace(mlp=moe), default=3)
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
