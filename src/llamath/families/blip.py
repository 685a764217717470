"""The text model of BLIP: BERT's layers read from left to right, among which others attend to an
image (arXiv:2201.12086).
"""

from __future__ import annotations

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder, TransformedHead
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, linear, mlp, unembedding
from ..core.multimodal import CaptionLayer, CrossAttention
from ..core.tree import repeat
from .git import BERT_LAYER
from .registry import family

_HEAD, _BERT = "text_decoder.cls.predictions.", "text_decoder.bert."
NAMES = Scheme(
    name="hf",
    layer=f"{_BERT}encoder.layer.{{l}}.",
    outside={
        "embed": f"{_BERT}embeddings.word_embeddings",
        "positions": f"{_BERT}embeddings.position_embeddings",
        "embed_norm": f"{_BERT}embeddings.LayerNorm",
        "head": f"{_HEAD}decoder",
        "head.bias": f"{_HEAD}bias",
        "head.dense": f"{_HEAD}transform.dense",
        "head.norm": f"{_HEAD}transform.LayerNorm",
    },
    inside={
        **BERT_LAYER,
        **{
            path.replace("attn", "cross_attn"): f"cross{name}"
            for path, name in BERT_LAYER.items()
            if path.startswith("attn.")
        },
        "cross_norm": "crossattention.output.LayerNorm",
    },
)


@family("blip_text_model", hf=NAMES)
def blip(c: Config) -> Decoder:
    d, V, F = (
        c.dim("d", "hidden_size", default=768),
        c.dim("V", "vocab_size", default=30_524),
        c.dim("F", "intermediate_size", default=3072),
    )
    C, norm = (
        c.dim("C", "max_position_embeddings", default=512),
        layer_norm(d, c.get("layer_norm_eps", 1e-12)),
    )
    heads, activation = c.heads(d, num_heads=8), c.activation("hidden_act", "gelu")
    if not c.get("is_decoder", True):
        raise c.error("is_decoder", "is false: the text model would be an encoder")
    if not c.get("tie_word_embeddings", True):
        raise c.error(
            "tie_word_embeddings",
            "is false, and the class would have two biases of the head",
            "published models have true",
        )
    attn, into, (H, K, h) = (
        gqa(d, heads, bias=True),
        linear(d, c.dim("d_v", "encoder_hidden_size", default=768), True),
        heads,
    )
    cross = CrossAttention(q=attn.q, k=into, v=into, o=attn.o, heads=H, kv_heads=K, head_dim=h)
    layer = CaptionLayer(
        attn_norm=norm,
        attn=attn,
        cross_attn=cross,
        cross_norm=norm,
        mlp_norm=norm,
        mlp=mlp(d, F, activation, bias=True),
    )
    c.ignore("projection_dim", "label_smoothing")
    head = unembedding(V, d, True, True).extended(
        TransformedHead, dense=linear(d, d, True), norm=norm, activation=activation
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers", default=12))
    return decoder(
        V, d, layers, None, True, positions=embedding(C, d), embed_norm=norm, head=head, context=C
    )
