"""The text model of GIT: BERT's layers, with norms after the addition, read from left to right
(arXiv:2205.14100).
"""

from __future__ import annotations

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder, PostNormLayer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, mlp, unembedding
from ..core.tree import repeat
from .registry import family

BERT_LAYER = {
    **{
        f"attn.{x}": f"attention.self.{name}"
        for x, name in (("q", "query"), ("k", "key"), ("v", "value"))
    },
    "attn.o": "attention.output.dense",
    "attn_norm": "attention.output.LayerNorm",
    "mlp.up": "intermediate.dense",
    "mlp.down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
"""Names in a layer of BERT."""
NAMES = Scheme(
    name="hf",
    layer="git.encoder.layer.{l}.",
    outside={
        "embed": "git.embeddings.word_embeddings",
        "positions": "git.embeddings.position_embeddings",
        "embed_norm": "git.embeddings.LayerNorm",
        "head": "output",
    },
    inside=BERT_LAYER,
)


@family("git_text", hf=NAMES)
def git(c: Config) -> Decoder:
    d, V, F = (
        c.dim("d", "hidden_size", default=768),
        c.dim("V", "vocab_size", default=30_522),
        c.dim("F", "intermediate_size", default=3072),
    )
    C, norm = (
        c.dim("C", "max_position_embeddings", default=1024),
        layer_norm(d, c.get("layer_norm_eps", 1e-12)),
    )
    heads = c.heads(d, num_heads=12)
    if heads.num_kv_heads != heads.num_heads or heads.num_heads * heads.head_dim != d:
        raise c.error(
            "num_attention_heads",
            f"is {heads.num_heads}; every head has keys of its own, {d} wide together",
        )
    feed_forward = mlp(d, F, c.activation("hidden_act", "gelu"), bias=True)
    layer = PostNormLayer(
        attn_norm=norm, attn=gqa(d, heads, bias=True), mlp_norm=norm, mlp=feed_forward
    )
    tied, layers = (
        c.get("tie_word_embeddings", False),
        repeat(layer, c.dim("L", "num_hidden_layers", default=6)),
    )
    head = unembedding(V, d, tied, bias=True)
    return decoder(
        V, d, layers, None, tied, positions=embedding(C, d), embed_norm=norm, head=head, context=C
    )
