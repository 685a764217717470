"""`ForwardPass`, `AttentionWindow`, and the base classes of the blocks that mix positions."""

from __future__ import annotations

from typing import ClassVar

from .attention_facts import ScoreTransform
from .positions import Rope
from .record_type import Record
from .tree import Block


class ForwardPass(Record):
    """A pass of `tokens` consecutive tokens of one sequence, the last at position `context`; earlier ones are in the cache.

    Prefill of a prompt has tokens = context; decoding one token has tokens = 1.
    """

    tokens: int
    context: int
    masked: bool = True  # count only pairs inside the mask; False: all pairs of a dense matrix product
    absorbed: bool = False  # latent attention works in the latent space (absorbed projections), without expanding keys and values

    @classmethod
    def prefill(cls, tokens: int, **how: bool) -> ForwardPass:
        """A pass over a whole prompt with an empty cache."""
        return cls(tokens=tokens, context=tokens, **how)

    @classmethod
    def decode(cls, context: int, **how: bool) -> ForwardPass:
        """A pass over one more token, at position `context`."""
        return cls(tokens=1, context=context, **how)


class AttentionWindow(Record):
    """The keys that a query attends to."""

    size: int | None = None  # sliding window in positions, the query's own included
    chunk: int | None = None  # or chunk size: back to the beginning of its chunk
    causal: bool = True  # False: as many positions ahead as well

    @property
    def max_lookback(self) -> int | None:
        """The largest number of positions that a query attends to; None: unlimited."""
        return self.size if self.chunk is None else self.chunk


class Mixer(Block):
    """Base of the blocks that mix positions: attention and recurrent mixers."""

    group: ClassVar[str] = "attention"


class AttentionBase(Mixer):
    """Base of the mixers in which every query attends to the keys in its window."""

    kv_layer: int | None = None  # the layer whose keys and values are used; None: the mixer's own
    window: AttentionWindow = AttentionWindow()
    rope: Rope | None = None  # None: no rotary positions
    score_transform: ScoreTransform = ScoreTransform()
