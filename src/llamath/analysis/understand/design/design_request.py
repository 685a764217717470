"""The request of a design: the target, fixed config keys, constraints, and the ranking."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from ....config_keys import SYNONYMS
from ....questions.design_question import DesignBounds, DesignQuestion
from ....questions.value_kinds import RANGE, YES_OR_NO, Kind, integer
from ....utils.errors import Argument, ArgumentError, safe
from ....utils.record_type import Record

_ROUND = 10**5
"""Targets that this divides, like 8B and 1.24B, are sizes; others, like 8,030,261,248, are exact
counts."""
IntRange = tuple[int, int]
_NUMBER = integer()
_DIMENSIONS: Mapping[str, tuple[str, Kind[Any]]] = {
    "num_hidden_layers": ("layers", RANGE),
    "hidden_size": ("width", RANGE),
    "intermediate_size": ("ffn", RANGE),
    "moe_intermediate_size": ("expert_ffn", RANGE),
    "num_attention_heads": ("heads", RANGE),
    "num_key_value_heads": ("kv_heads", RANGE),
    "head_dim": ("head_dim", RANGE),
    "vocab_size": ("vocab", _NUMBER),
    "tie_word_embeddings": ("tied", YES_OR_NO),
    "num_experts": ("experts", _NUMBER),
    "num_experts_per_tok": ("top_k", _NUMBER),
    "multiple_of": ("multiple_of", _NUMBER),
}
"""Config key -> the dimension of `FixedDims` and the kind of its value; `multiple_of` is a key of
params.json."""
KEYS: Mapping[str, str] = {dimension: key for key, (dimension, _) in _DIMENSIONS.items()}
"""Dimension -> its config key."""


class FixedDims(Record):
    """Dimensions fixed by the user, as a number or a range; the others are searched."""

    layers: IntRange | None = None
    width: IntRange | None = None
    ffn: IntRange | None = None
    expert_ffn: IntRange | None = None
    heads: IntRange | None = None
    kv_heads: IntRange | None = None
    head_dim: IntRange | None = None
    vocab: int | None = None
    tied: bool | None = None
    experts: int | None = None
    top_k: int | None = None
    multiple_of: int | None = None  # it divides the FFN width
    others: Mapping[str, Any] = MappingProxyType({})  # config keys that are no searched dimension


class DesignRequest(Record):
    """The request of one design."""

    target: int
    active: int | None = None  # parameters that a token uses, within the tolerance, too
    like: str = DesignQuestion.like[0]
    fixed: FixedDims = FixedDims()
    bounds: DesignBounds = DesignBounds()
    tolerance: Fraction = DesignQuestion.tolerance
    by_error: bool = False
    limit: int = DesignQuestion.top
    exclude: frozenset[str] = frozenset()  # presets that are not used to learn the habits

    @property
    def is_exact(self) -> bool:
        """Return whether the target is an exact count, so that designs that meet it exactly come
        first.
        """
        return self.target % _ROUND != 0


def read_fixed(changes: Mapping[str, Any]) -> FixedDims:
    """Return what config keys fix, under any of their names."""
    found: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in changes.items():
        if key in DesignBounds.described:
            hint = f"give {Argument('bounds', f'{key}={value}')}"
            raise ArgumentError("changes", f": {key} is a bound, no config key", hint=hint)
        if KEYS.get(key, key) != key:
            hint = f"give {Argument('changes', {KEYS[key]: value})}"
            raise ArgumentError("changes", f": {key} is no config key", hint=hint)
        dimension, kind = _DIMENSIONS.get(SYNONYMS.get(key, key), ("", None))
        if kind is None:
            others[key] = value
        elif dimension in found:
            raise ArgumentError("changes", f": {safe(key)} is given twice")
        else:
            found[dimension] = _read(key, kind, value)
    return FixedDims(**found, others=others)


def _read(key: str, kind: Kind[Any], value: object) -> Any:
    try:
        return kind.read(value)
    except ValueError:
        problem = f": {safe(f'{key}={value}', 60)}: expected {kind.expected}"
        raise ArgumentError("changes", problem) from None
