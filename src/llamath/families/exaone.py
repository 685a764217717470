"""EXAONE 3.0 and 3.5: Llama's layers under GPT-2's names."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..config_keys import any_name
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .gpt_neo import NAMES as GPT_NEO
from .registry import family
from .rope_shared import read_rope

NAMES = GPT_NEO.with_changes(inside={"mlp.gate": "mlp.c_fc_0", "mlp.up": "mlp.c_fc_1"})


@family(hf=NAMES, gguf=GGUF, gguf_arch="exaone")
def exaone(c: Config) -> Decoder:
    d, V, F = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", any_name("intermediate_size")),
    )
    heads, norm = c.heads(d), rms(d, c.get(any_name("layer_norm_epsilon"), 1e-5))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, rope=read_rope(c, heads.head_dim)),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation(any_name("activation_function"))),
    )
    layers = repeat(layer, c.dim("L", any_name("num_layers")))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
