"""`diff`: two models matrix by matrix, why their totals differ, and what their configurations say differently."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from ...config_keys import GROUPS, SYNONYMS
from ...core.parameter_count import Section
from ...core.record_type import Record
from ..config_report import UNREAD, ConfigKey, ConfigReport
from .causes import Cause, CountedModel, explain_difference


class WeightEntry(Record):
    """A weight as one of the models has it: how large, how often, and all copies together."""

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    copies: int
    parameters: int
    tied: bool = False

    @property
    def plain(self) -> tuple[object, ...]:
        """What makes it the same as another one."""
        return self.shape, self.copies, self.parameters


class WeightPair(Record):
    """A weight in both models; None where one has it not, or not a second time in another shape."""

    path: str
    group: str
    a: WeightEntry | None
    b: WeightEntry | None

    @property
    def delta(self) -> int:
        """What it adds to the total."""
        return (self.b.parameters if self.b else 0) - (self.a.parameters if self.a else 0)


class ConfigDifference(Record):
    """A configuration key that says something else; `absent` names the sides that leave it to the family's default."""

    key: str
    a: Any
    b: Any
    moves: str
    absent: tuple[bool, bool] = (False, False)
    known: tuple[bool, bool] = (True, True)  # whether the family has such a key at all


class ModelDiff(Record):
    """All that differs between two models."""

    total: tuple[int, int]
    causes: tuple[Cause, ...]
    weights: tuple[WeightPair, ...]
    same: tuple[str, ...]  # the paths that do not differ
    shared: int  # the parameters in them
    config: tuple[ConfigDifference, ...]
    agreed: tuple[str, ...]  # the keys that say the same

    @property
    def delta(self) -> int:
        """The difference of the totals."""
        return self.total[1] - self.total[0]


def diff(a: CountedModel, b: CountedModel, config: tuple[ConfigReport, ConfigReport]) -> ModelDiff:
    """Compare two counted models."""
    pairs = list(_pairs(a.sections, b.sections))
    changed = tuple(x for x in pairs if not _same(x))
    differing = {x.path for x in changed}
    keys = [(x, _key(*x)) for x in _aligned(*config)]
    return ModelDiff(
        total=(_total(a.sections), _total(b.sections)),
        causes=explain_difference(a, b),
        weights=changed,
        same=tuple(dict.fromkeys(x.path for x in pairs if x.path not in differing)),
        shared=sum(x.a.parameters for x in pairs if x.a and _same(x)),
        config=tuple(found for _, found in keys if found is not None),
        agreed=tuple(_plain(x.key) for (x, y), found in keys if found is None and x and y),
    )


def _total(sections: tuple[Section, ...]) -> int:
    return sum(x.each * int(x.times) for x in sections)


def _same(pair: WeightPair) -> bool:
    return pair.a is not None and pair.b is not None and pair.a.plain == pair.b.plain


def _entries(sections: tuple[Section, ...]) -> dict[str, list[tuple[str, WeightEntry]]]:
    """Path → its entries, layers with the same shape together."""
    made: dict[tuple[str, tuple[int, ...]], tuple[str, WeightEntry]] = {}
    for section in sections:
        many = section.indices or section.name == "layers"
        for row in section.rows:
            path = f"layers.{{l}}.{row.pattern}" if many else row.pattern
            shape, copies = tuple(map(int, row.weight.shape)), int(section.times) * int(row.copies)
            before = made[path, shape][1] if (path, shape) in made else None
            entry = WeightEntry(
                shape=shape,
                dims=tuple(x.symbol for x in row.weight.shape),
                copies=copies + (before.copies if before else 0),
                parameters=copies * int(row.weight.parameters) + (before.parameters if before else 0),
                tied=bool(row.weight.tied),
            )
            made[path, shape] = (row.group, entry)
    found: dict[str, list[tuple[str, WeightEntry]]] = {}
    for (path, _), x in made.items():
        found.setdefault(path, []).append(x)
    return found


def _pairs(a: tuple[Section, ...], b: tuple[Section, ...]) -> Iterator[WeightPair]:
    """The weights of both, in tree order; of several shapes under one path those that are the same first."""
    ours, theirs = _entries(a), _entries(b)
    for path in _merged(list(ours), list(theirs)):
        left, right = ours.get(path, []), theirs.get(path, [])
        shapes = {x.shape for _, x in left} & {x.shape for _, x in right}
        for shape in [x.shape for _, x in left if x.shape in shapes]:
            yield _pair(path, next(x for x in left if x[1].shape == shape), next(x for x in right if x[1].shape == shape))
        rest = ([x for x in side if x[1].shape not in shapes] for side in (left, right))
        yield from (_pair(path, x, y) for x, y in zip_longest(*rest))


def _pair(path: str, a: tuple[str, WeightEntry] | None, b: tuple[str, WeightEntry] | None) -> WeightPair:
    return WeightPair(path=path, group=(b or a or ("",))[0], a=a and a[1], b=b and b[1])


def _merged(a: list[str], b: list[str]) -> list[str]:
    """Two orders in one: what only b has stands before what follows it there."""
    order, known = list(a), set(a)
    at = len(order)
    for path in reversed(b):
        if path in known:
            at = order.index(path)
        else:
            order.insert(at, path)
    return order


def _aligned(a: ConfigReport, b: ConfigReport) -> Iterator[tuple[ConfigKey | None, ConfigKey | None]]:
    """The keys of both that move something, by what they are called first."""
    left, right = ({_plain(x.key): x for x in side.keys if _counts(x, side)} for side in (a, b))
    return ((left.get(name), right.get(name)) for name in _merged(list(left), list(right)))


def _counts(key: ConfigKey, side: ConfigReport) -> bool:
    """Whether a key moves something by itself: the class that was saved does so in the head, which is a cause of its own."""
    if key.key == "architectures":
        return False
    nested = any(x.key.startswith(f"{key.key}.") for x in side.keys) or key.value == {}
    return key.group not in ("nothing", UNREAD) and not nested


def _plain(key: str) -> str:
    """One word for a key, whichever family's word it is."""
    if key == "rope_parameters.rope_theta":
        return "rope_theta"
    key = key.replace("rope_parameters.", "rope_scaling.", 1)
    return SYNONYMS.get(key, key)


def _key(a: ConfigKey | None, b: ConfigKey | None) -> ConfigDifference | None:
    """What differs in a key; None where nothing does, or where one family has it not and the other's model does without."""
    one = b or a
    if one is None or (not (a and b) and (one.absent or one.value in (None, False))):
        return None
    if a and b and a.value == b.value and isinstance(a.value, bool) == isinstance(b.value, bool):
        return None
    return ConfigDifference(
        key=_plain(one.key),
        a=a.value if a else None,
        b=b.value if b else None,
        moves=min((x.group for x in (a, b) if x), key=GROUPS.index),
        absent=(a is not None and a.absent, b is not None and b.absent),
        known=(a is not None, b is not None),
    )
