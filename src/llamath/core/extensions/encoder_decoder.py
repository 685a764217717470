"""`EncoderDecoder`: an encoder reads the prompt once, in both directions; the decoder attends to
its output (BART).
"""

from __future__ import annotations

from typing import ClassVar

from ..blocks import Decoder, Embedding, Norm, PostNormLayer, apply_optional, residual_branch
from ..machine import Machine, X
from ..multimodal import CrossAttention
from ..tree import Block, Stack

ENCODER = "encoder"
"""The field of the encoder, with which the paths of its weights begin."""


class EncodedLayer(PostNormLayer):
    """x = attn_norm(x + attn x); x = cross_norm(x + cross_attn(x, encoder)); x = mlp_norm(x +
    mlp x).
    """

    cross_attn: CrossAttention
    cross_norm: Norm

    def forward(self, m: Machine[X], x: X, *states: X) -> X:
        assert self.attn is not None and self.mlp is not None
        x = apply_optional(
            self.attn_norm, m, m.add(x, residual_branch(self, m, self.attn, x, None))
        )
        x = self.cross_norm(m, m.add(x, m.dropout(self.cross_attn(m, x, *states))))
        return apply_optional(
            self.mlp_norm, m, m.add(x, residual_branch(self, m, self.mlp, x, None))
        )


class TextEncoder(Block):
    """The encoder: embedded tokens, learned positions, and layers whose attention sees all
    tokens.
    """

    groups: ClassVar[dict[str, str]] = {"embed": "embedding", "positions": "embedding"}
    embed: Embedding
    positions: Embedding
    embed_norm: Norm
    layers: Stack

    def forward(self, m: Machine[X], ids: X, positions: X) -> X:
        x = m.add(self.embed(m, ids), self.positions(m, positions))
        return m.layers(self.layers, m.dropout(self.embed_norm(m, x)))


class EncoderDecoder(Decoder):
    """An encoder and a decoder; the fields of `Decoder` are the decoder's. A pass after the
    first does not run the encoder again.
    """

    encoder: TextEncoder
    unread: Block | None = None  # stored, but not used

    def forward(self, m: Machine[X], ids: X) -> X:
        assert self.positions is not None and self.head is not None
        tokens = m.encoder_tokens()
        states = () if tokens is None else (self.encoder(m, *tokens),)  # (B, E, d)
        x = m.add(self.embed(m, ids), self.positions(m, m.token_positions()))
        x = m.layers(self.layers, m.dropout(apply_optional(self.embed_norm, m, x)), *states)
        return self.head(m, m.last_token(x))
