"""Layers of a decoder that attend to the features of images instead of to the tokens before (Llama 3.2 Vision)."""

from __future__ import annotations

from typing import ClassVar

from .blocks import Layer, Linear, Norm
from .machine import Machine, X
from .tree import Block, Cut, Weight


class CrossAttention(Block):
    """Softmax attention of text to images: queries of the tokens, keys and values of the features."""

    group: ClassVar[str] = "attention"
    cuts: ClassVar[dict[str, Cut]] = {
        "q": Cut(0, "heads"),
        **dict.fromkeys(("k", "v"), Cut(0, "kv_heads", "copy")),
        "o": Cut(1, "heads"),
    }
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    q_norm: Norm
    k_norm: Norm
    heads: int
    kv_heads: int
    head_dim: int

    def forward(self, m: Machine[X], x: X, images: X) -> X:
        q = m.norm_heads(self.q_norm, m.split_heads(self.q(m, x), self.head_dim))  # (B, T, H, h)
        k = m.norm_heads(self.k_norm, m.split_heads(self.k(m, images), self.head_dim))  # (B, I, K, h)
        v = m.split_heads(self.v(m, images), self.head_dim)
        return self.o(m, m.merge_heads(m.encoder_attention(q, k, v)))


class CrossAttentionLayer(Layer):
    """x += tanh(attn_gate) · cross_attn(norm x, images); x += tanh(mlp_gate) · mlp(norm x); without images x is left as it is."""

    cross_attn: CrossAttention
    attn_gate: Weight
    mlp_gate: Weight

    def forward(self, m: Machine[X], x: X, *images: X) -> X:
        if not images:
            return x
        assert self.attn_norm is not None and self.mlp_norm is not None and self.mlp is not None
        x = m.add(x, m.scale_by_tanh(self.cross_attn(m, self.attn_norm(m, x), *images), self.attn_gate))
        return m.add(x, m.scale_by_tanh(self.mlp(m, self.mlp_norm(m, x)), self.mlp_gate))
