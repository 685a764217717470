"""DeepSeek-V2: latent attention and DeepSeekMoE, a token's experts from few groups; the smallest
DeepSeek-VL2 has plain attention.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LATENT
from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import AttentionBase, Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from .deepseek_shared import deepseek_moe, deepseek_routing, latent_attention
from .gguf_record import DEEPSEEK_MOE, GROUPED_ROUTING, MLA, GGUFMetadata
from .gguf_shared import mla_keys, read_mla_rope
from .layers_shared import dense_first
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF_LATENT,
    gguf=GGUF_LATENT,
    gguf_arch="deepseek2",
    gguf_metadata=GGUFMetadata(
        keys=f"{MLA} {DEEPSEEK_MOE} {GROUPED_ROUTING} topk_method scoring_func",
        read=read_mla_rope,
        write=mla_keys,
        tried_first="deepseek_v3",
    ),
    causal_class="DeepseekV2ForCausalLM",
    renames_experts="deepseek_v2",
)
def deepseek_v2(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    attn: AttentionBase
    if c.get("use_mla", True):
        attn = latent_attention(
            c, d, read_rope(c, c.dim("p", "qk_rope_head_dim"), interleaved=True)
        )
    else:
        heads = c.heads(d)
        attn = gqa(d, heads, bias=c.get("attention_bias", False), rope=read_rope(c, heads.head_dim))
        c.ignore(
            "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank", "kv_lora_rank"
        )
    bias = c.get("mlp_bias", False)
    moe = deepseek_moe(
        c,
        d,
        deepseek_routing(c, "softmax", "greedy"),
        shared=2,
        norm_topk_prob=c.get("norm_topk_prob", False),
        routed_scaling_factor=c.get("routed_scaling_factor", 1.0),
        fp32_router=True,
        bias=bias,
    )
    dense = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"), bias)
    )
    layers = dense_first(c, dense, dense.replace(mlp=moe), default=0)
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
