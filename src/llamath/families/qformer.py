"""The reader of the Q-Former of BLIP-2 and InstructBLIP: layers of BERT, some of which attend to
an image.
"""

from __future__ import annotations

from ..core.config import Config
from ..core.constructors import layer_norm, linear, mlp, weight
from ..core.expr import Expr
from ..core.multimodal import CountedBlock, CrossAttention, UnreadBlock
from ..core.tree import sequence
from .counted_towers import Modules, counted, table
from .tower_parts import encoder_attention

_LAYER, _WORDS = "qformer.encoder.layer.{l}.", {"q": "query", "k": "key", "v": "value"}
QFORMER_NAMES = {
    "latents": "query_tokens",
    "linear": "language_projection",
    **{
        f"layers.{{l}}.attn.{x}": f"{_LAYER}attention.attention.{name}"
        for x, name in _WORDS.items()
    },
    "layers.{l}.attn.o": f"{_LAYER}attention.output.dense",
    "layers.{l}.attn_norm": f"{_LAYER}attention.output.LayerNorm",
    **{
        f"layers.{{l}}.cross_attn.{x}": f"{_LAYER}crossattention.attention.{name}"
        for x, name in _WORDS.items()
    },
    "layers.{l}.cross_attn.o": f"{_LAYER}crossattention.output.dense",
    "layers.{l}.cross_norm": f"{_LAYER}crossattention.output.LayerNorm",
    "layers.{l}.mlp.up": f"{_LAYER}intermediate_query.dense",
    "layers.{l}.mlp.down": f"{_LAYER}output_query.dense",
    "layers.{l}.mlp_norm": f"{_LAYER}output_query.LayerNorm",
    "layers.{l}.unread.up": f"{_LAYER}intermediate.dense",
    "layers.{l}.unread.down": f"{_LAYER}output.dense",
    "layers.{l}.unread.norm": f"{_LAYER}output.LayerNorm",
    "unread.words": "qformer.embeddings.word_embeddings",
    "unread.positions": "qformer.embeddings.position_embeddings",
}


def qformer(q: Config, features: Expr, out: int, queries: Expr, instructed: bool) -> CountedBlock:
    """Read the layers, for a number of queries; InstructBLIP's read the instruction, too, which
    is embedded inside.
    """
    q.ignore("pad_token_id", "encoder_hidden_size", "position_embedding_type")
    d, F = q.dim("d_q", "hidden_size", default=768), q.dim("F_q", "intermediate_size", default=3072)
    L, H = (
        q.dim("L_q", "num_hidden_layers", default=12),
        q.dim("H_q", "num_attention_heads", default=12),
    )
    norm, every = (
        layer_norm(d, q.get("layer_norm_eps", 1e-12)),
        q.dim("every", "cross_attention_frequency", default=2),
    )
    attention, feed_forward = (
        encoder_attention(q, d, H, bias=True, letter="h_q"),
        mlp(d, F, q.activation("hidden_act", "gelu"), bias=True),
    )
    into, h = linear(d, features, True), attention.head_dim
    texts: Modules = {"up": feed_forward.up, "down": feed_forward.down, "norm": norm}
    reads_text = q.get("use_qformer_text_input", False) or instructed
    unread = UnreadBlock(parts=counted(texts).parts) if reads_text else None
    alone: Modules = {"attn_norm": norm, "attn": attention, "mlp_norm": norm, "mlp": feed_forward}
    cross = CrossAttention(
        q=attention.q, k=into, v=into, o=attention.o, heads=H, kv_heads=H, head_dim=h
    )
    layer, crossing = (
        counted({**alone, **x, "unread": unread})
        for x in ({}, {"cross_attn": cross, "cross_norm": norm})
    )
    embeddings: Modules = {
        "words": table(q.dim("V_q", "vocab_size", default=30_522), d),
        "positions": table(q.dim("T_q", "max_position_embeddings", default=512), d),
    }
    return counted(
        {
            "latents": weight(1, queries, d, role="lookup"),
            "norm_before": norm,
            "layers": sequence((layer if i % every else crossing for i in range(L)), L),
            "linear": linear(out, d, True),
            "unread": UnreadBlock(parts=counted(embeddings).parts) if instructed else None,
        }
    )
