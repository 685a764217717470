"""ERNIE 4.5, dense: Llama's layers, with rotary positions in neighboring pairs and one switch
for all biases.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope


@family(hf=HF, gguf=GGUF, gguf_arch="ernie4_5", causal_class="Ernie4_5ForCausalLM")
def ernie4_5(c: Config) -> Decoder:
    return ernie_decoder(c, interleaved=True)


def ernie_decoder(c: Config, interleaved: bool) -> Decoder:
    """Build ERNIE 4.5, with rotary pairs of neighbors or of halves (PaddleOCR-VL)."""
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm, bias = (
        c.heads(d, num_kv_heads=2, head_dim=128),
        rms(d, c.get("rms_norm_eps", 1e-5)),
        c.get("use_bias", False),
    )
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            bias=bias,
            rope=read_rope(c, heads.head_dim, theta=5e5, interleaved=interleaved),
        ),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act"), bias=bias),
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", True),
        context=c.positive_int("max_position_embeddings"),
    )
