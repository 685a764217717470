"""AFM (Arcee): Llama's layers with a two-matrix MLP and squared ReLU."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mlp, rms
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope


@family(hf=HF, gguf=GGUF_LLAMA, gguf_arch="arcee", causal_class="ArceeForCausalLM")
def arcee(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.heads(d), rms(d, c.get("rms_norm_eps", 1e-5))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=c.get("attention_bias", False), rope=read_rope(c, heads.head_dim)),
        mlp_norm=norm,
        mlp=mlp(d, F, c.activation("hidden_act", "relu2"), bias=c.get("mlp_bias", False)),
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
