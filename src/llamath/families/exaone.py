"""EXAONE 3.0 and 3.5: Llama's layers under GPT-2's names."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.scheme import Scheme
from ..config_keys import any_name
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .registry import family
from .shared import read_rope

NAMES = Scheme(
    name="hf",
    layer="transformer.h.{l}.",
    outside={"embed": "transformer.wte", "norm": "transformer.ln_f", "head": "lm_head"},
    inside={
        "attn_norm": "ln_1",
        "attn.q": "attn.attention.q_proj",
        "attn.k": "attn.attention.k_proj",
        "attn.v": "attn.attention.v_proj",
        "attn.o": "attn.attention.out_proj",
        "mlp_norm": "ln_2",
        "mlp.gate": "mlp.c_fc_0",
        "mlp.up": "mlp.c_fc_1",
        "mlp.down": "mlp.c_proj",
    },
)


@family(hf=NAMES, gguf=GGUF, gguf_arch="exaone")
def exaone(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", any_name("intermediate_size"))
    heads, norm = c.heads(d), rms(d, c.get(any_name("layer_norm_epsilon"), 1e-5))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, rope=read_rope(c, heads.head_dim)),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation(any_name("activation_function"))),
    )
    layers = repeat(layer, c.dim("L", any_name("num_layers")))
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=c.positive_int("max_position_embeddings"))
