"""FlexOlmo: OLMo 2's attention and norms on the output of each branch, with OLMoE's experts."""

from __future__ import annotations

from ..config_keys import any_name
from ..core.attention_facts import QKPreprocess
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu
from ..core.tree import repeat
from .olmo2 import NAMES
from .registry import family
from .rope_shared import read_rope


@family(hf=NAMES, causal_class="FlexOlmoForCausalLM", renames_experts="flex_olmo")
def flex_olmo(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    E, k = c.dim("E", any_name("num_experts")), c.dim("k", "num_experts_per_tok")
    H, K, h = heads = c.heads(d)
    eps, bias, rope = (
        c.get("rms_norm_eps", 1e-6),
        c.get("attention_bias", False),
        read_rope(c, h, theta=5e5),
    )
    norm, q_norm, k_norm = rms(d, eps), rms(H * h, eps), rms(K * h, eps)
    expert = swiglu(d, F, c.activation("hidden_act"))
    layer = Layer(
        attn=gqa(
            d,
            heads,
            bias,
            q_norm=q_norm,
            k_norm=k_norm,
            qk_preprocess=QKPreprocess(across_heads=True),
            rope=rope,
        ),
        attn_out_norm=norm,
        mlp=mixture(d, E, k, expert, norm_topk_prob=c.get("norm_topk_prob", False)),
        mlp_out_norm=norm,
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
