"""Facts of attention without weights: its heads and window, the preparation of queries and keys,
and the transform of scores.
"""

from __future__ import annotations

from ..utils.errors import ImpossibleModel
from ..utils.named_tuple import NamedTuple
from ..utils.number_marks import text_if_equal
from ..utils.record_type import Record
from .expr import Expr
from .positions import Alibi, LogNScaling, TemperatureTuning


class Heads(NamedTuple):
    """The numbers of query heads and key/value heads, and the size of one head: H, K and h."""

    num_heads: Expr
    num_kv_heads: Expr
    head_dim: Expr


ATTENTION_KINDS = {
    "MHA": "multi-head attention",
    "GQA": "grouped-query attention",
    "MQA": "multi-query attention",
    "MLA": "multi-head latent attention",
}
"""The kinds of attention by their heads, the last one by its cached latent, with their names."""


def attention_kind(num_heads: int, num_kv_heads: int) -> str:
    """Return MHA, GQA or MQA."""
    return "MHA" if num_heads == num_kv_heads else "MQA" if num_kv_heads == 1 else "GQA"


def written_attention_kind(num_heads: int, num_kv_heads: int) -> str:
    """Return the kind for a text, in which it follows the numbers of heads."""
    shared = text_if_equal(num_kv_heads, 1, "MQA", "GQA")
    return text_if_equal(num_heads, num_kv_heads, "MHA", shared)


class AttentionWindow(Record):
    """The keys that a query attends to."""

    size: int | None = None  # sliding window in positions, the query's own included
    chunk: int | None = None  # or chunk size: back to the beginning of its chunk
    causal: bool = True  # False: as many positions ahead as well
    # a query sees all of the prompt, and the last so many tokens after it, its own included
    after_prompt: int | None = None

    def __post_init__(self) -> None:
        for name, n in (
            ("size", self.size),
            ("chunk", self.chunk),
            ("after_prompt", self.after_prompt),
        ):
            if n is not None and not 0 < n < 1 << 62:
                raise ImpossibleModel(
                    f"the {name} of an attention window is {n}",
                    hint="a window contains the query's own position",
                )

    @property
    def max_lookback(self) -> int | None:
        """The largest number of positions that a query attends to; None: unlimited."""
        return self.size if self.chunk is None else self.chunk


class ClipQKV(Record):
    """Queries, keys and values are clamped to ± `limit`."""

    limit: float
    after_norm: bool = False  # after their norms, not before


class QKPreprocess(Record):
    """The preparation of queries, keys and values before the scores."""

    across_heads: bool = False  # the norms of q and k are over all heads together
    after_rope: bool = False
    clip: ClipQKV | None = None


class ScoreTransform(Record):
    """The transform of q · k before the softmax."""

    scale: float | None = None  # factor; None: 1 / √(size of a key)
    softcap: float | None = None  # cap · tanh(score / cap)
    alibi: Alibi | None = None
    temperature: TemperatureTuning | LogNScaling | None = None  # scaling by the query's position
