"""Youtu-LLM: DeepSeek's latent attention with a plain MLP in each layer."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms, swiglu
from ..core.tree import repeat
from .deepseek_shared import latent_attention
from .registry import family
from .rope_shared import read_rope


@family(hf=HF_LATENT, causal_class="YoutuForCausalLM")
def youtu(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    attn = latent_attention(
        c,
        d,
        read_rope(c, c.dim("p", "qk_rope_head_dim"), interleaved=c.get("rope_interleave", True)),
    )
    layer = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", True),
        context=c.positive_int("max_position_embeddings"),
    )
