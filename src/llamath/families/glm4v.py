"""The text models of GLM-4.1V and GLM-OCR: GLM-4 with biases on q, k and v, or without."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .glm4 import NAMES
from .registry import family
from .rope_shared import read_rope, rotary_dim


@family(
    "glm4v_text glm_ocr_text",
    hf=NAMES,
    gguf=GGUF.with_changes(inside={"mlp.gate": "ffn_up"}),
    gguf_arch="glm4",
)
def glm4v(c: Config) -> Decoder:
    d, V = c.dim("d", "hidden_size", default=4096), c.dim("V", "vocab_size", default=151_552)
    F, L = (
        c.dim("F", "intermediate_size", default=13_696),
        c.dim("L", "num_hidden_layers", default=40),
    )
    has_bias = c.get("model_type", "") == "glm4v_text"
    heads = c.heads(d, num_heads=32, num_kv_heads=2 if has_bias else 8)
    norm = rms(d, c.get("rms_norm_eps", 1e-5))
    rope = read_rope(c, rotary_dim(c, heads.head_dim, 1.0), interleaved=True)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=has_bias, o_bias=False, rope=rope),
        attn_out_norm=norm,
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act", "silu")),
        mlp_out_norm=norm,
    )
    context = c.get("max_position_embeddings", 32_768)
    return decoder(
        V, d, repeat(layer, L), norm, tied=c.get("tie_word_embeddings", False), context=context
    )
