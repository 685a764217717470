"""GPT, the first: GPT-2's layers with the norms after the branches, and none before the head."""

from __future__ import annotations

from ..config_keys import any_name
from ..core.blocks import Decoder, PostNormLayer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, mlp
from ..core.tree import repeat
from .gpt2 import NAMES as GPT2
from .registry import family

NAMES = GPT2.with_changes(
    outside={
        "embed": "transformer.tokens_embed",
        "positions": "transformer.positions_embed",
        "norm": "",
    }
)


@family("openai-gpt", hf=NAMES, causal_class="OpenAIGPTLMHeadModel")
def openai_gpt(c: Config) -> Decoder:
    d, V, C = (
        c.dim("d", any_name("n_embd")),
        c.dim("V", "vocab_size"),
        c.dim("C", any_name("n_positions"), default=512),
    )
    heads, norm = (
        c.square_heads(d, any_name("n_head"), any_name("n_head")),
        layer_norm(d, c.get("layer_norm_epsilon", 1e-5)),
    )
    activation = "gelu_new" if c.get("afn", "gelu") == "gelu" else c.activation("afn")
    if activation not in ("gelu_new", "relu", "silu", "swish"):
        raise c.error(
            "afn", f"is {activation!r}", "known: gelu, which is gelu_new here, relu, silu, swish"
        )
    layer = PostNormLayer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=True),
        mlp_norm=norm,
        mlp=mlp(d, 4 * d, activation, bias=True),
    )
    layers = repeat(layer, c.dim("L", any_name("n_layer")))
    return decoder(
        V,
        d,
        layers,
        None,
        tied=c.get("tie_word_embeddings", True),
        positions=embedding(C, d),
        context=C,
    )
