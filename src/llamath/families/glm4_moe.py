"""GLM-4.5 to 4.7: grouped-query attention with RoPE on half of each head, DeepSeek-V3's mixture
of experts.
"""

from __future__ import annotations

from ..checkpoint.gguf_metadata.gguf_facts import rotary_dim_keys
from ..checkpoint.naming.gguf_names import GGUF, GGUF_MTP
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from .deepseek_shared import deepseek_v3_moe, mtp_layers
from .gguf_record import DEEPSEEK_MOE, GROUPED_ROUTING, LLAMA, GGUFMetadata
from .layers_shared import dense_first
from .registry import family
from .rope_shared import read_rope, rotary_dim

RENAMED = GGUF.with_changes(inside={"mlp_norm": "post_attention_norm", **GGUF_MTP})


@family(
    "glm4_moe glm4v_moe_text",
    hf=HF,
    gguf=RENAMED,
    gguf_arch="glm4moe",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} {DEEPSEEK_MOE} {GROUPED_ROUTING} attention_bias partial_rotary_factor "
        "use_qk_norm topk_method num_nextn_predict_layers",
        constants={"scoring_func": "sigmoid"},
        write=lambda f: {"expert_gating_func": 2, **rotary_dim_keys(f)},
    ),
    causal_class="Glm4MoeForCausalLM",
    renames_experts="glm4_moe glm4v_moe",
)
def glm4_moe(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, eps = c.heads(d, num_kv_heads=8, rounded_down=True), c.get("rms_norm_eps", 1e-5)
    norm, qk_norm = rms(d, eps), rms(heads.head_dim, eps) if c.get("use_qk_norm", False) else None
    positions = read_rope(c, rotary_dim(c, heads.head_dim, 0.5))
    attn = gqa(
        d,
        heads,
        c.get("attention_bias", c.get("model_type", "") == "glm4v_moe_text"),
        o_bias=False,
        q_norm=qk_norm,
        k_norm=qk_norm,
        rope=positions,
    )
    moe = deepseek_v3_moe(c, d)
    dense = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    layers = dense_first(c, dense, dense.replace(mlp=moe), default=1)
    mtp = mtp_layers(c, V, d, dense.replace(mlp=moe), norm=norm)
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
        mtp=mtp,
    )
