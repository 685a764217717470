"""Whether two models compute the same, as `llamath logits` says it: how far apart, from where on, and what could be the cause."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.record_type import Record
from ...core.tree import Block, Stack, Weight


class ComparedCheckpoint(Record):
    """One of two checkpoints."""

    name: str
    model: str
    family: str
    parameters: int
    format: str
    names: str  # the naming of its tensors
    dtype: str  # its own
    notes: tuple[str, ...] = ()


class FirstDifference(Record):
    """Where numbers are apart."""

    module: str
    difference: float  # the largest, as a share of the largest number there
    layer: int | None = None
    stored: tuple[str, str] = ("", "")  # the module's weight in either file


class TreeDifference(Record):
    """A fact, no number in a file, that the two have otherwise."""

    path: str
    a: object
    b: object
    layers: int = 1


class LogitsComparison(Record):
    """What came out."""

    a: ComparedCheckpoint
    b: ComparedCheckpoint
    tokens: tuple[int, ...]
    text: str  # that the tokens stand for, if they stand for one
    dtype: str
    tolerance: float
    largest_logit: float  # logit of A, whatever its sign
    max_difference: float  # difference
    mean_difference: float
    kl_mean: float  # Kullback-Leibler, of B from A in nats, on average over the tokens
    kl_max: float  # the same, of the token with most
    same_top1: int  # of how many tokens the likeliest next one is the same
    losses: tuple[float, float] | None  # nats a token that either needs for the text
    layers: tuple[float, ...]  # the difference after each
    first: FirstDifference | None
    facts: tuple[TreeDifference, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        """To the last bit."""
        return self.max_difference == 0

    @property
    def relative(self) -> float:
        """The largest difference as a share of the largest logit."""
        return self.max_difference / self.largest_logit if self.largest_logit else float(self.max_difference > 0)

    @property
    def same(self) -> bool:
        """Within the tolerance."""
        return self.relative <= self.tolerance


def tree_differences(a: Block, b: Block) -> tuple[TreeDifference, ...]:
    """What two trees have otherwise besides numbers in files: each fact once, with how many layers it is so in."""
    found: dict[tuple[str, str, str], TreeDifference] = {}
    for path, x, y in _differences(a, b, "", {}):
        key = (path, repr(x), repr(y))
        found[key] = found[key].replace(layers=found[key].layers + 1) if key in found else TreeDifference(path=path, a=x, b=y)
    return tuple(found.values())


IGNORED_FIELDS = frozenset(("context",))
"""Facts that change no logits."""
Seen = dict[tuple[int, int], list[tuple[str, object, object]]]


def _differences(a: Record, b: Record, prefix: str, seen: Seen) -> Iterator[tuple[str, object, object]]:
    if type(a) is not type(b):
        yield prefix.rstrip(".") or "model", type(a).__name__, type(b).__name__
        return
    for name in a.fields:
        if name in IGNORED_FIELDS:
            continue
        x, y = getattr(a, name), getattr(b, name)
        if isinstance(x, Stack) and isinstance(y, Stack):
            yield from _stack_differences(x, y, f"{prefix}{name}.", seen)
        elif isinstance(x, Weight) or isinstance(y, Weight):
            if (x is None) != (y is None):
                yield prefix + name, _display_value(x), _display_value(y)
        elif isinstance(x, Record) and isinstance(y, Record):
            yield from _differences(x, y, f"{prefix}{name}.", seen)
        elif x != y:
            yield prefix + name, _display_value(x), _display_value(y)


def _display_value(x: object) -> object:
    """A fact as it is; of what has parts, its kind."""
    return type(x).__name__ if isinstance(x, (Record, Stack)) else x


def _stack_differences(a: Stack, b: Stack, prefix: str, seen: Seen) -> Iterator[tuple[str, object, object]]:
    if len(a) != len(b):
        yield prefix.rstrip("."), len(a), len(b)
    for x, y in zip(a, b, strict=False):
        if (id(x), id(y)) not in seen:
            seen[id(x), id(y)] = list(_differences(x, y, prefix, seen))
        yield from seen[id(x), id(y)]
