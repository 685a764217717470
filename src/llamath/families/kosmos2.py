"""The text models of Kosmos-2 and 2.5: XGLM's positions, and Magneto's norms before the last matrix
of attention and MLP (arXiv:2210.06423); Kosmos-2.5 has the norm of the MLP alone, and a learned row
for each kind of token.
"""

from __future__ import annotations

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import MLP, Decoder, Layer, NormedLinear, SinusoidalEmbedding
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, linear, weight
from ..core.multimodal import CountedBlock
from ..core.tree import counted_only, repeat
from .registry import family


class SegmentedEmbedding(SinusoidalEmbedding):
    """A sinusoidal embedding with a learned row for each kind of token, text or image, added
    (Kosmos-2.5).
    """

    segments: CountedBlock

    forward = counted_only("Kosmos-2.5's embedding of kinds of tokens")


NAMES = Scheme(
    name="hf",
    layer="text_model.model.layers.{l}.",
    outside={
        "embed": "text_model.model.embed_tokens",
        "embed.segments": "text_model.model.segment_emb",
        "norm": "text_model.model.layer_norm",
        "head": "text_model.lm_head",
    },
    inside={
        "attn_norm": "self_attn_layer_norm",
        **{f"attn.{x}": f"self_attn.{x}_proj" for x in "qkv"},
        "attn.o": "self_attn.out_proj",
        "attn.o.norm": "self_attn.inner_attn_ln",
        "mlp_norm": "final_layer_norm",
        "mlp.up": "ffn.fc1",
        "mlp.down.norm": "ffn.ffn_layernorm",
        "mlp.down": "ffn.fc2",
    },
)

_KOSMOS_2 = {"embed_dim": 2048, "vocab_size": 65_037, "ffn_dim": 8192, "attention_heads": 32}


@family("kosmos_2_text_model kosmos_2_5_text_model", hf=NAMES)
def kosmos2(c: Config) -> Decoder:
    segmented = c.get("model_type", "") == "kosmos_2_5_text_model"
    sizes = (
        {"embed_dim": 1536, "vocab_size": 108_481, "ffn_dim": 6144, "attention_heads": 16}
        if segmented
        else _KOSMOS_2
    )
    d, V, F = (
        c.dim("d", "embed_dim", sizes["embed_dim"]),
        c.dim("V", "vocab_size", sizes["vocab_size"]),
        c.dim("F", "ffn_dim", sizes["ffn_dim"]),
    )
    norm, inner = layer_norm(d, eps := c.get("layer_norm_eps", 1e-5)), layer_norm(F, eps)
    c.require("add_cross_attention", False, "every published model has it")
    attn = gqa(
        d,
        c.heads(d, "attention_heads", "attention_heads", num_heads=sizes["attention_heads"]),
        bias=True,
    )
    if not segmented:
        attn = attn.replace(o=attn.o.extended(NormedLinear, norm=norm))
    down = linear(d, F, bias=True).extended(NormedLinear, norm=inner)
    feed_forward = MLP(
        up=linear(F, d, bias=True),
        down=down,
        activation=c.activation("activation_function", "gelu"),
    )
    c.ignore("layerdrop", "init_std")
    embed = embedding(V, d, d**0.5 if c.get("scale_embedding", True) else 1.0)
    embed = embed.extended(
        SinusoidalEmbedding, position_offset=c.get("pad_token_id", 1) + 1, steps=d // 2 - 1
    )
    if segmented:
        embed = embed.extended(
            SegmentedEmbedding,
            segments=CountedBlock(kind="embedding", parts={"weight": weight(2, d, role="lookup")}),
        )
    layers = repeat(
        Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=feed_forward),
        c.dim("L", "layers", default=24),
    )
    tied, context = (
        c.get("tie_word_embeddings", True),
        c.get("max_position_embeddings", 4096 if segmented else 2048),
    )
    return decoder(V, d, layers, norm, tied, embed=embed, context=context)
