"""The text model of Kosmos-2: Magneto's norms inside attention and MLP, which is counted only."""

from __future__ import annotations

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, layer_norm, linear
from ..core.multimodal import CountedBlock
from ..core.tree import repeat
from .registry import family

NAMES = Scheme(
    name="hf",
    layer="text_model.model.layers.{l}.",
    outside={"embed": "text_model.model.embed_tokens", "norm": "text_model.model.layer_norm", "head": "text_model.lm_head"},
    inside={
        "attn_norm": "self_attn_layer_norm",
        **{f"attn.{x}": f"self_attn.{x}_proj" for x in "qkv"},
        "attn.o": "self_attn.out_proj",
        "attn.norm": "self_attn.inner_attn_ln",
        "mlp_norm": "final_layer_norm",
        "mlp.up": "ffn.fc1",
        "mlp.norm": "ffn.ffn_layernorm",
        "mlp.down": "ffn.fc2",
    },
)


@family(hf=NAMES)
def kosmos2(c: Config) -> Decoder:
    d, V, F = c.dim("d", "embed_dim", default=2048), c.dim("V", "vocab_size", default=65_037), c.dim("F", "ffn_dim", default=8192)
    norm, square = layer_norm(d, c.get("layer_norm_eps", 1e-5)), linear(d, d, bias=True)
    if c.get("add_cross_attention", False):
        raise c.error("add_cross_attention", "is true, which is not known")
    layer = Layer(
        attn_norm=norm,
        attn=CountedBlock(kind="attention", parts={**dict.fromkeys("qkvo", square), "norm": norm}),
        mlp_norm=norm,
        mlp=CountedBlock(kind="mlp", parts={"up": linear(F, d, bias=True), "norm": layer_norm(F, 1e-5), "down": linear(d, F, bias=True)}),
    )
    c.ignore("attention_heads", "activation_function", "scale_embedding", "layerdrop", "init_std")
    layers = repeat(layer, c.dim("L", "layers", default=24))
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", True), context=c.positive_int("max_position_embeddings"))
