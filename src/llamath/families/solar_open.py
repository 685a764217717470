"""Solar Open: Llama's attention with DeepSeek-V3's mixture of experts in every layer."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms
from ..core.tree import repeat
from .deepseek_shared import deepseek_v3_moe
from .registry import family
from .rope_shared import read_rope, rotary_dim


@family(hf=HF, causal_class="SolarOpenForCausalLM", renames_experts="solar_open")
def solar_open(c: Config) -> Decoder:
    d, V = c.dim("d", "hidden_size"), c.dim("V", "vocab_size")
    heads, norm = c.heads(d, num_kv_heads=8, head_dim=128), rms(d, c.get("rms_norm_eps", 1e-5))
    rope = read_rope(c, rotary_dim(c, heads.head_dim), theta=1e6)
    moe = deepseek_v3_moe(c, d)
    attn = gqa(d, heads, bias=c.get("attention_bias", False), o_bias=False, rope=rope)
    c.ignore("intermediate_size", "first_k_dense_replace", "use_qk_norm")
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
