"""The text model of Unlimited OCR: DeepSeekMoE, whose attention to a window keeps the tokens of the image, which is counted only."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu
from ..core.multimodal import CountedBlock
from ..core.tree import sequence
from .registry import family
from .shared import deepseek_moe, deepseek_routing, layer_kinds


@family(hf=HF)
def unlimited_ocr(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    (H, K, h), bias, norm = c.heads(d, head_dim=128), c.get("attention_bias", False), rms(d, c.get("rms_norm_eps", 1e-6))
    q, kv = linear(H * h, d, bias), linear(K * h, d, bias)
    attn = CountedBlock(kind="attention", parts={"q": q, "k": kv, "v": kv, "o": linear(d, H * h, bias)})
    moe = deepseek_moe(c, d, deepseek_routing(c, "softmax", "greedy"), shared=2, norm_topk_prob=c.get("norm_topk_prob", False))
    mlp = swiglu(d, c.dim("F", "intermediate_size"), c.activation("hidden_act"), bias=c.get("mlp_bias", False))
    kinds = {x: Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=y) for x, y in (("dense", mlp), ("sparse", moe))}
    c.ignore("layer_types", "sliding_window", "rope_theta", "rope_parameters", "rope_scaling", "pretraining_tp", "output_router_logits")
    types = layer_kinds(c, L, kinds, lambda i: "sparse" if i else "dense", "mlp_layer_types")
    layers = sequence((kinds[x] for x in types), count_dim=L)
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=c.positive_int("max_position_embeddings"))
