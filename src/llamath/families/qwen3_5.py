"""Qwen3.5, dense: three layers of linear attention to one of gated softmax attention, SwiGLU in
each.
"""

from __future__ import annotations

from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms, swiglu
from .gguf_record import GATED_DELTA, LLAMA, GGUFMetadata
from .gguf_shared import rotary_sections
from .qwen_shared import (
    NAMES_DELTA,
    NAMES_DELTA_GGUF,
    delta_net,
    gated_attention,
    one_in_four,
    qwen_mtp,
)
from .registry import family


@family(
    "qwen3_5_text",
    hf=NAMES_DELTA,
    gguf=NAMES_DELTA_GGUF,
    gguf_arch="qwen35",
    gguf_metadata=GGUFMetadata(keys=f"{LLAMA} {GATED_DELTA}", write=rotary_sections(11, 11, 10)),
    causal_class="Qwen3_5ForCausalLM",
)
def qwen3_5(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    eps = c.get("rms_norm_eps", 1e-6)
    norm, mlp = rms(d, eps, offset=1.0), swiglu(d, F, c.activation("hidden_act"))
    linear, full = (
        Layer(attn_norm=norm, attn=x, mlp_norm=norm, mlp=mlp)
        for x in (delta_net(c, d, eps), gated_attention(c, d, eps, kv=4))
    )
    layers = one_in_four(c, linear, full)
    c.ignore("mlp_only_layers")
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    return decoder(V, d, layers, norm, tied, context=context, mtp=qwen_mtp(c, V, d, full, norm))
