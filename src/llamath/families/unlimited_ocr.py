"""The text model of Unlimited OCR: DeepSeekMoE, whose attention sees the prompt and a window of
the tokens after it.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import sequence
from .deepseek_shared import deepseek_moe, deepseek_routing
from .layers_shared import layer_kinds
from .registry import family
from .rope_shared import read_rope


@family("unlimited_ocr_text", hf=HF)
def unlimited_ocr(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    heads, norm, window = (
        c.square_heads(d),
        rms(d, c.get("rms_norm_eps", 1e-6)),
        c.dim("w", "sliding_window", default=128),
    )
    rope, bias = read_rope(c, heads.head_dim), c.get("attention_bias", False)
    routing, factor = deepseek_routing(c, "softmax", "greedy"), c.get("routed_scaling_factor", 1.0)
    moe = deepseek_moe(
        c,
        d,
        routing,
        shared=2,
        norm_topk_prob=False,
        routed_scaling_factor=factor,
        fp32_router=True,
    )
    mlp = swiglu(
        d,
        c.dim("F", "intermediate_size"),
        c.activation("hidden_act"),
        bias=c.get("mlp_bias", False),
    )
    windows = {
        "reference_sliding_attention": AttentionWindow(after_prompt=int(window)),
        "full_attention": AttentionWindow(),
    }
    mixers = {x: gqa(d, heads, bias, rope=rope, window=y) for x, y in windows.items()}
    mlps = {"dense": mlp, "sparse": moe}
    c.ignore("norm_topk_prob", "pretraining_tp", "output_router_logits")
    types = layer_kinds(c, L, mixers, lambda _: "reference_sliding_attention")
    first = c.get("first_k_dense_replace", 1)
    mlp_types = layer_kinds(
        c, L, mlps, lambda i: "dense" if i < first else "sparse", "mlp_layer_types"
    )
    kinds = {
        (x, y): Layer(attn_norm=norm, attn=mixers[x], mlp_norm=norm, mlp=mlps[y])
        for x in mixers
        for y in mlps
    }
    layers = sequence((kinds[x] for x in zip(types, mlp_types, strict=True)), count_dim=L)
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
