"""GPT-2: learned positions, layer norms, fused q, k, v, all matrices stored input first, tied head."""

from __future__ import annotations

from ..blocks import Decoder, Layer
from ..build import decoder, embedding, gqa, layer_norm, mlp
from ..config import Config
from ..names.gguf import GGUF
from ..names.scheme import Scheme
from ..tree import repeat
from . import family

NAMES = Scheme(
    name="hf",
    layer="transformer.h.{l}.",
    outside={"embed": "transformer.wte", "positions": "transformer.wpe", "norm": "transformer.ln_f", "head": "lm_head"},
    inside={
        "attn_norm": "ln_1",
        "attn.q": "attn.c_attn",
        "attn.k": "attn.c_attn",
        "attn.v": "attn.c_attn",
        "attn.o": "attn.c_proj",
        "mlp_norm": "ln_2",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    },
    layouts={f"{x}.weight": "flip" for x in ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.up", "mlp.down")},
)
FUSED = GGUF.but(inside=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "attn_qkv"))


@family("gpt2", hf=NAMES, gguf=FUSED, arch="gpt2")
def gpt2(c: Config) -> Decoder:
    d, V, C = c.dim("d", "n_embd|hidden_size"), c.dim("V", "vocab_size"), c.dim("C", "n_positions|max_position_embeddings", default=1024)
    heads = c.heads(d, "num_attention_heads|n_head", "n_head|num_attention_heads")
    F = c.dim("F", "n_inner", default=4 * d)
    norm = layer_norm(d, c.get("layer_norm_epsilon", 1e-5))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=True),
        mlp_norm=norm,
        mlp=mlp(d, F, c.activation("activation_function", "gelu_new"), bias=True),
    )
    layers = repeat(layer, c.dim("L", "n_layer|num_hidden_layers"))
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", True), positions=embedding(C, d), context=C)
