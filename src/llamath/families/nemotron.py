"""Nemotron-4 and Minitron: layer norms whose weights are stored minus 1, half of each head
rotary, squared ReLU.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mlp
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope, rotary_dim

NAMES_GGUF = GGUF.with_changes(
    layouts=dict.fromkeys(("attn_norm.weight", "mlp_norm.weight", "norm.weight"), "shifted")
)


@family(hf=HF, gguf=NAMES_GGUF, gguf_arch="nemotron", causal_class="NemotronForCausalLM")
def nemotron(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.heads(d), layer_norm(d, c.get("norm_eps", 1e-5)).replace(offset=1.0)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            bias=c.get("attention_bias", False),
            rope=read_rope(c, rotary_dim(c, heads.head_dim, 0.5)),
        ),
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
