"""Qwen3.5 MoE: three layers of linear attention to one of gated softmax attention, experts in
each.
"""

from __future__ import annotations

from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms
from .gguf_record import GATED_DELTA, LLAMA, QWEN_SHARED_MOE, GGUFMetadata
from .gguf_shared import rotary_sections
from .qwen_shared import (
    NAMES_DELTA,
    NAMES_DELTA_GGUF,
    delta_net,
    experts_with_shared,
    gated_attention,
    one_in_four,
    qwen_mtp,
)
from .registry import family


@family(
    "qwen3_5_moe_text",
    hf=NAMES_DELTA,
    gguf=NAMES_DELTA_GGUF,
    gguf_arch="qwen35moe",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} {QWEN_SHARED_MOE} {GATED_DELTA}", write=rotary_sections(11, 11, 10)
    ),
    causal_class="Qwen3_5MoeForCausalLM",
)
def qwen3_5_moe(c: Config) -> Decoder:
    d, V = c.dim("d", "hidden_size"), c.dim("V", "vocab_size")
    eps = c.get("rms_norm_eps", 1e-6)
    norm, moe = rms(d, eps, offset=1.0), experts_with_shared(c, d, norm_topk_prob=True)
    linear, full = (
        Layer(attn_norm=norm, attn=x, mlp_norm=norm, mlp=moe)
        for x in (delta_net(c, d, eps), gated_attention(c, d, eps))
    )
    layers = one_in_four(c, linear, full)
    c.ignore("mlp_only_layers", "decoder_sparse_step", "norm_topk_prob", "intermediate_size")
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    return decoder(V, d, layers, norm, tied, context=context, mtp=qwen_mtp(c, V, d, full, norm))
