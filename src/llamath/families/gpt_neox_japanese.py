"""GPT-NeoX Japanese: GPT-NeoX without biases, except for one in the last layer, and with a tied
head.
"""

from __future__ import annotations

from ..config_keys import any_name
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mlp
from ..core.tree import Stack
from .gpt_neox import NAMES as GPT_NEOX
from .registry import family
from .rope_shared import even_dim, read_rope, rotary_dim

_PREFIX = "gpt_neox_japanese."
NAMES = GPT_NEOX.with_changes(
    layer=f"{_PREFIX}layers.{{l}}.",
    outside={"embed": f"{_PREFIX}embed_in", "norm": f"{_PREFIX}final_layer_norm"},
    inside={"attn.o.bias": "attention.dense_bias"},
)


@family(hf=NAMES, causal_class="GPTNeoXJapaneseForCausalLM")
def gpt_neox_japanese(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    F = (c.dim("r", "intermediate_multiple_size", default=4) * d).with_symbol("F")
    heads, norm = (
        c.square_heads(d, "num_attention_heads"),
        layer_norm(d, c.get("layer_norm_eps", 1e-5)),
    )
    rotary = read_rope(
        c,
        even_dim(rotary_dim(c, heads.head_dim, 1.0, any_name("rotary_pct"))),
        keys=any_name("rotary_emb_base"),
    )
    ff = mlp(d, F, c.activation("hidden_act", "gelu"))
    layer, last = (
        Layer(attn_norm=norm, attn=gqa(d, heads, o_bias=bias, rope=rotary), mlp_norm=norm, mlp=ff)
        for bias in (False, True)
    )
    layers = Stack(((layer,), L - 1), ((last,), 1), count_dim=L)
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", True),
        context=c.positive_int("max_position_embeddings"),
    )
