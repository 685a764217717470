"""`EncoderDecoder`: an encoder reads the prompt once, in both directions; the decoder attends to
its output (BART).
"""

from __future__ import annotations

from typing import ClassVar

from ..blocks import Decoder, Embedding, Norm, apply_optional
from ..machine import Machine, X
from ..tree import Block, Stack

ENCODER = "encoder"
"""The field of the encoder, with which the paths of its weights begin."""


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
