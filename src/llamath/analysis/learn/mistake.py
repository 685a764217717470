"""`Mistake`: a change to an expression that people make in their heads, with the sentence that
explains it, and where it was made in public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...core.expr import Expr, as_number
from ...utils.number_format import short_count
from ...utils.record_type import Record
from .account import Account
from .study import Study

Change = Callable[[Study, Account], Account | None]
KINDS = ("shape", "weights", "difference", "bytes", "cache", "flops")
"""Kinds of numbers: a dimension, parameters, a difference of parameters, bytes of weights, bytes of
a cache, FLOPs of a token.
"""


class Mistake(Record):
    """A wrong way to a number. `change` returns the account that a learner has in mind, or None
    where the model gives no occasion for it.
    """

    name: str
    kinds: tuple[str, ...]
    bits: float  # the less likely, the more
    change: Change
    sentence: str  # with the words of `words_of` in braces
    made_in: str = ""  # an article or a public thread
    alone: bool = False  # it replaces the whole number, so that no other mistake goes with it
    is_convention: bool = False  # a way to count, or a scale that fits many numbers by chance

    def wrong(self, study: Study, account: Account) -> Account | None:
        """Return the changed account, if it is another number."""
        found = self.change(study, account)
        return None if found is None or found.number == account.number else found

    def explain(self, study: Study) -> str:
        """Return the sentence about this model."""
        return self.sentence.format_map(words_of(study))


class _Words(dict[str, str]):
    """Words for sentences; one that a model lacks stands for itself."""

    def __missing__(self, key: str) -> str:
        return key


def words_of(study: Study) -> Mapping[str, str]:
    """Return the words of the sentences about a model: its name and its dimensions."""
    if (kept := vars(study).get("_words")) is not None:
        found: Mapping[str, str] = kept
        return found
    d, F = study.width, study.mlp_width
    numbers = {
        "d": d,
        "square": d * d,
        "four_d": 4 * d,
        "two_d": 2 * d,
        "third": 8 * as_number(d) // 3,
        "L": study.tree.layers.n,
        "V": study.tree.vocab,
        "C": study.context,
        "F": F,
        "H": study.heads,
        "K": study.kv_heads,
        "h": study.head_dim,
        "guess": as_number(d) // as_number(study.heads) if study.heads else None,
        "E": None if study.moe is None else study.moe.experts.n,
        "k": study.top_k,
    }
    words = _Words({name: f"{Expr.const(n):,}" for name, n in numbers.items() if n is not None})
    words |= {"model": study.name, "short_square": short_count(d * d)}
    if study.window is not None:
        words["window"] = f"{study.window.max_lookback or 0:,}"
    vars(study)["_words"] = words
    return words
