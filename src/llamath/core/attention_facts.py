"""What attention does besides its matrices, as facts: how heads are made ready, and what becomes of their scores."""

from __future__ import annotations

from .positions import Alibi, LogNScaling, TemperatureTuning
from .record_type import Record


class ClipQKV(Record):
    """Queries, keys and values are clamped to ± `limit`."""

    limit: float
    after_norm: bool = False  # after their norms, not before


class QKPreprocess(Record):
    """How queries, keys and values are made ready to meet."""

    across_heads: bool = False  # the norms of q and k see all heads as one vector
    after_rope: bool = False
    clip: ClipQKV | None = None


class ScoreTransform(Record):
    """What becomes of q · k before the softmax."""

    scale: float | None = None  # they are multiplied by it; None: by 1 / √(size of a key)
    softcap: float | None = None  # they become cap · tanh(score / cap)
    alibi: Alibi | None = None
    temperature: TemperatureTuning | LogNScaling | None = None  # of the query's position
