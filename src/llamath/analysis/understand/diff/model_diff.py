"""`diff`: two models weight by weight, the causes of their difference in size, and the config
keys that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple

from ....config_keys import SYNONYMS
from ....config_keys.key_meanings import GROUPS
from ....core.parameter_count import Section
from ....model import FamilyModel, Model, TensorModel
from ....render.report import Report
from ....render.tables import Part
from ....utils.number_format import format_count, format_signed, short_count
from ....utils.record_type import Record
from ..config_report import ConfigKey, ConfigReport, config_report
from ..config_tables import UNREAD
from .causes import METHOD, Cause, CountedModel, explain_difference
from .diff_tables import diff_tables, format_share, multi_diff_tables
from .storage_diff import StorageDifference, storage_difference


class WeightEntry(Record):
    """A weight of one of the models: its shape, the number of copies, and their parameters."""

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    copies: int
    parameters: int
    tied: bool = False
    lookup: bool = False  # a table whose rows are looked up

    @property
    def sizes(self) -> tuple[object, ...]:
        """The shared properties of equal weights."""
        return self.shape, self.copies, self.parameters


class _Sides(NamedTuple):
    """A value of each model."""

    a: Any
    b: Any


class WeightPair(Record):
    """A weight in both models; None in a model that does not have it, or not in a second shape."""

    path: str
    group: str
    a: WeightEntry | None
    b: WeightEntry | None

    json_fields: ClassVar[tuple[str, ...]] = (
        "path",
        "a=a.shape",
        "b=b.shape",
        "delta",
        "group",
        "dims",
        "copies",
        "parameters",
        "tied",
    )

    @property
    def delta(self) -> int:
        """The parameters that it adds to the total."""
        return (self.b.parameters if self.b else 0) - (self.a.parameters if self.a else 0)

    @property
    def dims(self) -> _Sides:
        """The shapes in letters."""
        return _Sides(self.a and self.a.dims, self.b and self.b.dims)

    @property
    def copies(self) -> _Sides:
        """The numbers of copies."""
        return _Sides(self.a.copies if self.a else 0, self.b.copies if self.b else 0)

    @property
    def parameters(self) -> _Sides:
        """The parameters of all copies."""
        return _Sides(self.a.parameters if self.a else 0, self.b.parameters if self.b else 0)

    @property
    def tied(self) -> _Sides:
        """Return whether the weights are tied."""
        return _Sides(bool(self.a and self.a.tied), bool(self.b and self.b.tied))


class ConfigDifference(Record):
    """A config key whose values differ; `default` tells which sides have the family's default."""

    key: str
    a: Any
    b: Any
    moves: str  # effect of the key: weights, cache, compute
    default: _Sides = _Sides(False, False)
    known: _Sides = _Sides(True, True)  # whether the family has the key at all

    json_fields: ClassVar[tuple[str, ...]] = ("key", "a", "b", "moves", "default")


class Totals(NamedTuple):
    """The parameters of both models and their difference."""

    a: int
    b: int
    delta: int


class Unchanged(Record):
    """The weights that both models share."""

    weights: tuple[str, ...]  # paths
    parameters: int  # of these weights
    config: tuple[str, ...]  # keys with equal values


class DiffReport(Report):
    """All differences of two models."""

    a: Model
    b: Model
    total: Totals
    causes: tuple[Cause, ...]
    weights: tuple[WeightPair, ...]
    same: Unchanged
    config: tuple[ConfigDifference, ...]
    storage: StorageDifference | None = None  # None: neither is quantized
    storage_note: str = ""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=a.name",
            "a=a.name",
            "b=b.name",
            "total",
            "causes",
            "weights",
            "config",
            "same",
            "method",
            "storage",
        ),
    )

    @property
    def delta(self) -> int:
        """The difference of the totals."""
        return self.total.delta

    @property
    def method(self) -> str:
        """How the difference is divided among the causes."""
        return METHOD

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of both models."""
        return tuple(
            dict.fromkeys(
                (*self.a.notes, *self.b.notes, *([self.storage_note] if self.storage_note else []))
            )
        )

    @property
    def summary(self) -> str:
        """The difference of the totals."""
        totals = f"{short_count(self.total.a)} → {short_count(self.total.b)}"
        what = (
            f"{format_signed(self.delta)} parameters ({totals})"
            if self.delta
            else f"{self.total.a:,} parameters both"
        )
        stored = f", {format_signed(self.storage.delta)} bytes" if self.storage is not None else ""
        return f"{self.a.name} → {self.b.name}: {what}{stored}"

    @property
    def headline(self) -> str:
        """The difference of the totals."""
        total = self.total
        if not self.delta:
            return f"{self.a.name} → {self.b.name}: {total.a:,} parameters both"
        share = f", {format_share(self)}" if total.a else ""
        sizes = f"{short_count(total.a)} → {short_count(total.b)}{share}"
        difference = format_signed(self.delta)
        return f"{self.a.name} → {self.b.name}: {difference} parameters ({sizes})"

    @property
    def setting(self) -> str:
        """Both sources."""
        a, b = self.a, self.b
        kind = ""
        if isinstance(a, FamilyModel) and isinstance(b, FamilyModel):
            kind = f"{' → '.join(dict.fromkeys((a.family.name, b.family.name)))} family; "
        claims = [f", {x.claim}" if isinstance(x, TensorModel) else "" for x in (a, b)]
        return f"{kind}from {a.source}{claims[0]}\nto {b.source}{claims[1]}"

    @property
    def entries(self) -> Sequence[Any]:
        """The causes."""
        return self.causes

    def tables(self) -> Iterable[Part]:
        """The causes, the weights, the config keys, the stored bytes, and the equal parts."""
        return diff_tables(self)


class _ModelTotal(Record):
    """A model of a comparison, with its difference to the first."""

    name: str
    parameters: int
    delta: int


class MultiDiffReport(Report):
    """Several models, each compared with the first."""

    differences: tuple[DiffReport, ...]

    json_fields: ClassVar[tuple[str, ...]] = ("model=against", "against", "models", "differences")

    @property
    def against(self) -> str:
        """The name of the first model."""
        return self.differences[0].a.name

    @property
    def models(self) -> tuple[_ModelTotal, ...]:
        """All models with their parameters."""
        first = self.differences[0]
        others = (
            _ModelTotal(name=x.b.name, parameters=x.total.b, delta=x.delta)
            for x in self.differences
        )
        return (_ModelTotal(name=first.a.name, parameters=first.total.a, delta=0), *others)

    @property
    def summary(self) -> str:
        """All models with their sizes."""
        return ", ".join(f"{x.name} {short_count(x.parameters)}" for x in self.models)

    @property
    def headline(self) -> str:
        """The models."""
        models = format_count(len(self.differences), "model")
        return f"{models} compared with {self.against}"

    @property
    def entries(self) -> Sequence[Any]:
        """The differences from the first model."""
        return self.differences

    def tables(self) -> Iterable[Part]:
        """The totals of all models, and the causes of each difference."""
        return multi_diff_tables(self)


def diff(a: FamilyModel, b: FamilyModel) -> DiffReport:
    """Compare the weights and config keys of two models, and explain the difference of their
    totals.
    """
    ours, theirs = _counted(a), _counted(b)
    pairs = list(_pairs(ours.sections, theirs.sections))
    changed = tuple(x for x in pairs if not _same(x))
    differing = {x.path for x in changed}
    keys = [(x, _key_difference(*x)) for x in _align_keys(_config(a), _config(b))]
    totals = _total(ours.sections), _total(theirs.sections)
    storage, storage_note = storage_difference(a, b)
    return DiffReport(
        a=a,
        b=b,
        total=Totals(*totals, totals[1] - totals[0]),
        causes=explain_difference(ours, theirs),
        weights=changed,
        same=Unchanged(
            weights=tuple(dict.fromkeys(x.path for x in pairs if x.path not in differing)),
            parameters=sum(x.a.parameters for x in pairs if x.a and _same(x)),
            config=tuple(
                _common_name(x.key) for (x, y), difference in keys if difference is None and x and y
            ),
        ),
        config=tuple(difference for _, difference in keys if difference is not None),
        storage=storage,
        storage_note=storage_note,
    )


def _counted(model: FamilyModel) -> CountedModel:
    return CountedModel(
        sections=model.count.sections,
        layers=int(model.tree.layers.n),
        keys=model.config.key_by_symbol,
    )


def _config(model: FamilyModel) -> ConfigReport:
    return config_report(model, with_meta=False)


def _total(sections: tuple[Section, ...]) -> int:
    return sum(x.each * int(x.times) for x in sections)


def _same(pair: WeightPair) -> bool:
    return pair.a is not None and pair.b is not None and pair.a.sizes == pair.b.sizes


def _entries(sections: tuple[Section, ...]) -> dict[str, list[tuple[str, WeightEntry]]]:
    """Return the entries of each path, layers with the same shape together."""
    entries: dict[tuple[str, tuple[int, ...]], tuple[str, WeightEntry]] = {}
    for section in sections:
        in_layers = section.indices or section.name == "layers"
        for row in section.rows:
            path = f"layers.{{l}}.{row.pattern}" if in_layers else row.pattern
            shape, copies = tuple(map(int, row.weight.shape)), int(section.times) * int(row.copies)
            previous = entries[path, shape][1] if (path, shape) in entries else None
            entry = WeightEntry(
                shape=shape,
                dims=tuple(x.symbol for x in row.weight.shape),
                lookup=row.weight.role == "lookup",
                copies=copies + (previous.copies if previous else 0),
                parameters=copies * int(row.weight.parameters)
                + (previous.parameters if previous else 0),
                tied=bool(row.weight.tied),
            )
            entries[path, shape] = (row.group, entry)
    by_path: dict[str, list[tuple[str, WeightEntry]]] = {}
    for (path, _), x in entries.items():
        by_path.setdefault(path, []).append(x)
    return by_path


def _pairs(a: tuple[Section, ...], b: tuple[Section, ...]) -> Iterator[WeightPair]:
    """Yield the weights of both models in tree order."""
    return align_weights(_entries(a), _entries(b))


def align_weights(
    ours: dict[str, list[tuple[str, WeightEntry]]], theirs: dict[str, list[tuple[str, WeightEntry]]]
) -> Iterator[WeightPair]:
    """Yield the weights of two models, given by path with their groups; of several shapes under
    one path, equal shapes first.
    """
    for path in _merge_orders(list(ours), list(theirs)):
        left, right = ours.get(path, []), theirs.get(path, [])
        shapes = {x.shape for _, x in left} & {x.shape for _, x in right}
        for shape in [x.shape for _, x in left if x.shape in shapes]:
            yield _pair(
                path,
                next(x for x in left if x[1].shape == shape),
                next(x for x in right if x[1].shape == shape),
            )
        rest = ([x for x in side if x[1].shape not in shapes] for side in (left, right))
        yield from (_pair(path, x, y) for x, y in zip_longest(*rest))


def _pair(
    path: str, a: tuple[str, WeightEntry] | None, b: tuple[str, WeightEntry] | None
) -> WeightPair:
    return WeightPair(path=path, group=(b or a or ("",))[0], a=a and a[1], b=b and b[1])


def _merge_orders(a: list[str], b: list[str]) -> list[str]:
    """Merge two orders: an item of b alone comes before the one that follows it in b."""
    order, known = list(a), set(a)
    at = len(order)
    for path in reversed(b):
        if path in known:
            at = order.index(path)
        else:
            order.insert(at, path)
    return order


def _align_keys(
    a: ConfigReport, b: ConfigReport
) -> Iterator[tuple[ConfigKey | None, ConfigKey | None]]:
    """Return the keys of both that change something, under one name."""
    left, right = (
        {_common_name(x.key): x for x in side.keys if _matters(x, side)} for side in (a, b)
    )
    return ((left.get(name), right.get(name)) for name in _merge_orders(list(left), list(right)))


def _matters(key: ConfigKey, side: ConfigReport) -> bool:
    """Return whether a key changes something by itself; the saved class changes the head, which
    is a cause of its own.
    """
    if key.key == "architectures":
        return False
    nested = any(x.key.startswith(f"{key.key}.") for x in side.keys) or key.value == {}
    return key.group not in ("nothing", UNREAD) and not nested


def _common_name(key: str) -> str:
    """Return the common name of a key that families name differently."""
    if key == "rope_parameters.rope_theta":
        return "rope_theta"
    key = key.replace("rope_parameters.", "rope_scaling.", 1)
    return SYNONYMS.get(key, key)


def _key_difference(a: ConfigKey | None, b: ConfigKey | None) -> ConfigDifference | None:
    """Return the difference of a key; None if there is none, or if only one family has the key
    and its model does not use it.
    """
    present = b or a
    if present is None or (not (a and b) and (present.absent or present.value in (None, False))):
        return None
    if a and b and a.value == b.value and isinstance(a.value, bool) == isinstance(b.value, bool):
        return None
    return ConfigDifference(
        key=_common_name(present.key),
        a=a.value if a else None,
        b=b.value if b else None,
        moves=min((x.group for x in (a, b) if x), key=GROUPS.index),
        default=_Sides(a is not None and a.absent, b is not None and b.absent),
        known=_Sides(a is not None, b is not None),
    )
