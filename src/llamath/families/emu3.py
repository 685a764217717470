"""The text model of Emu3: Llama with other defaults, and tokens for images in its vocabulary."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .multimodal_registry import Wrapper, declare_wrapper
from .registry import family
from .rope_shared import read_rope

declare_wrapper(
    Wrapper(types="emu3", text_type="emu3_text_model", prefix=("", "text_model."), tied=False)
)


@family("emu3_text_model", hf=HF, causal_class="Emu3ForCausalLM")
def emu3(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.heads(d, num_kv_heads=8), rms(d, c.get("rms_norm_eps", 1e-5))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d, heads, c.get("attention_bias", False), rope=read_rope(c, heads.head_dim, theta=1e6)
        ),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False)),
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
