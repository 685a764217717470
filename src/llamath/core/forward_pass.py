"""`ForwardPass`, `AttentionWindow`, and the base classes of the blocks that mix positions."""

from __future__ import annotations

from typing import ClassVar

from .attention_facts import ScoreTransform
from .expr import Expr
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
    last: bool = False  # only the last position has logits; False: every position

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

    def num_attended_pairs(self, at: ForwardPass) -> int:
        """The exact number of query-key pairs in a pass."""
        if not at.masked:
            return at.tokens * self.keys_in_cache(at)
        first, last = at.context - at.tokens, at.context
        if self.chunk is not None:
            return _chunk_pairs(last, self.chunk) - _chunk_pairs(first, self.chunk)
        back = _window_pairs(last, self.size) - _window_pairs(first, self.size)
        if self.causal:
            return back
        return back + (_window_pairs(at.tokens, self.size) - at.tokens)

    @property
    def max_lookback(self) -> int | None:
        """The largest number of positions that a query attends to; None: unlimited."""
        return self.size if self.chunk is None else self.chunk

    @property
    def pairs_symbol(self) -> str:
        """The symbol of the number of pairs in formulas."""
        return "Pw" if self.size else "Pc" if self.chunk else "P"

    def keys_in_cache(self, at: ForwardPass) -> int:
        """The number of cached keys: those in the window of the first query, and the tokens of this pass."""
        reach = self.size or self.chunk
        return at.context if reach is None else min(at.context, reach - 1 + at.tokens)


def _window_pairs(n: int, window: int | None) -> int:
    """Σ min(i, window) for i from 1 to n: the pairs of the first n positions with themselves and earlier ones."""
    near = n if window is None else min(n, window)
    return near * (near + 1) // 2 + (n - near) * near


def _chunk_pairs(n: int, chunk: int) -> int:
    """The pairs of the first n positions with those of their own chunk."""
    whole, rest = divmod(n, chunk)
    return whole * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2


class Mixer(Block):
    """Base of the blocks that mix positions: attention and recurrent mixers."""

    group: ClassVar[str] = "attention"

    def mixing_flops(self, at: ForwardPass) -> Expr:
        """The FLOPs of a pass in products of activations with activations; 2 per multiply-add."""
        raise NotImplementedError


class AttentionBase(Mixer):
    """Base of the mixers in which every query attends to the keys in its window."""

    kv_layer: int | None = None  # the layer whose keys and values are used; None: the mixer's own
    window: AttentionWindow = AttentionWindow()
    rope: Rope | None = None  # None: no rotary positions
    score_transform: ScoreTransform = ScoreTransform()

    def flops_per_pair(self, absorbed: bool = False) -> tuple[Expr, Expr]:
        """The FLOPs of one query-key pair: for the scores, and for the weighted values."""
        raise NotImplementedError

    def score_flops(self, at: ForwardPass) -> Expr:
        """The FLOPs of the scores alone."""
        return self.flops_per_pair(at.absorbed)[0] * Expr(self.window.pairs_symbol, self.window.num_attended_pairs(at))

    def mixing_flops(self, at: ForwardPass) -> Expr:
        score, value = self.flops_per_pair(at.absorbed)
        return (score + value) * Expr(self.window.pairs_symbol, self.window.num_attended_pairs(at))
