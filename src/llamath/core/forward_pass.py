"""`Pass`: one trip of some tokens through the model, and the base of the blocks in which they meet each other."""

from __future__ import annotations

from typing import ClassVar

from .expr import Dim
from .record_type import Record
from .tree import Block


class ForwardPass(Record):
    """`tokens` neighbours of one sequence read at once, the last of them its `context`-th position; earlier ones are remembered.

    Prefill of a prompt has tokens = context, a decoded token has tokens = 1.
    """

    tokens: int
    context: int
    masked: bool = True  # only pairs that the mask lets through count; False: all that a plain matrix product works out
    absorbed: bool = False  # latent attention compares in the latent space, its keys and values never unpacked
    last: bool = False  # the head reads the last position alone, as for one next token; False: every position

    @classmethod
    def prefill(cls, tokens: int, **how: bool) -> ForwardPass:
        """A whole prompt, nothing before it."""
        return cls(tokens=tokens, context=tokens, **how)

    @classmethod
    def decode(cls, context: int, **how: bool) -> ForwardPass:
        """One more token, which is the `context`-th."""
        return cls(tokens=1, context=context, **how)


class AttentionWindow(Record):
    """Which keys a query looks at."""

    size: int | None = None  # so many positions back, its own included
    chunk: int | None = None  # or back to where its chunk begins
    causal: bool = True  # False: as many ahead

    def num_attended_pairs(self, at: ForwardPass) -> int:
        """How many pairs of a query and a key there are in a pass, exactly and at once."""
        if not at.masked:
            return at.tokens * self.keys_in_cache(at)
        first, last = at.context - at.tokens, at.context
        if self.chunk is not None:
            return _in_chunks(last, self.chunk) - _in_chunks(first, self.chunk)
        back = _back(last, self.size) - _back(first, self.size)
        if self.causal:
            return back
        return back + (_back(at.tokens, self.size) - at.tokens)

    @property
    def max_lookback(self) -> int | None:
        """How far back a query sees at most; None: to the beginning."""
        return self.size if self.chunk is None else self.chunk

    @property
    def pairs_symbol(self) -> str:
        """What the number of pairs is called in formulas."""
        return "Pw" if self.size else "Pc" if self.chunk else "P"

    def keys_in_cache(self, at: ForwardPass) -> int:
        """The keys that lie in memory: those in reach of the first query, and the tokens read since."""
        reach = self.size or self.chunk
        return at.context if reach is None else min(at.context, reach - 1 + at.tokens)


def _back(n: int, window: int | None) -> int:
    """Σ min(i, window) for i from 1 to n: what the first n positions see of themselves and what is before them."""
    near = n if window is None else min(n, window)
    return near * (near + 1) // 2 + (n - near) * near


def _in_chunks(n: int, chunk: int) -> int:
    """The same for positions that see back to where their chunk begins."""
    whole, rest = divmod(n, chunk)
    return whole * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2


class Mixer(Block):
    """Base of what mixes positions: attention and its relatives."""

    group: ClassVar[str] = "attention"

    def mixing_flops(self, at: ForwardPass) -> Dim:
        """The FLOPs of a pass that no weight accounts for: products of activations with each other, 2 for a multiplication and its sum."""
        raise NotImplementedError


class AttentionBase(Mixer):
    """Base of the mixers in which every query meets the keys in its reach."""

    @property
    def window(self) -> AttentionWindow:
        """Which keys those are."""
        return AttentionWindow()

    def flops_per_pair(self, absorbed: bool = False) -> tuple[Dim, Dim]:
        """The FLOPs of one query that meets one key: a score for each head, and a share of each head's value."""
        raise NotImplementedError

    def score_flops(self, at: ForwardPass) -> Dim:
        """The FLOPs of the scores alone."""
        return self.flops_per_pair(at.absorbed)[0] * Dim(self.window.pairs_symbol, self.window.num_attended_pairs(at))

    def mixing_flops(self, at: ForwardPass) -> Dim:
        score, share = self.flops_per_pair(at.absorbed)
        return (score + share) * Dim(self.window.pairs_symbol, self.window.num_attended_pairs(at))
