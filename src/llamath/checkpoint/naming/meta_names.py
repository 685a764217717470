"""Meta's tensor names (`consolidated.NN.pth`) from llama's reference `model.py`; rows of q and k
are interleaved rotary pairs.
"""

from __future__ import annotations

from .scheme import Scheme

META = Scheme(
    name="meta",
    layer="layers.{l}.",
    outside={
        "embed": "tok_embeddings",
        "norm": "norm",
        "head": "output",
    },
    inside={
        "attn_norm": "attention_norm",
        "attn.q": "attention.wq",
        "attn.k": "attention.wk",
        "attn.v": "attention.wv",
        "attn.o": "attention.wo",
        "mlp_norm": "ffn_norm",
        "mlp.gate": "feed_forward.w1",
        "mlp.down": "feed_forward.w2",
        "mlp.up": "feed_forward.w3",
    },
    layouts={"attn.q": "rotary", "attn.k": "rotary"},
)
