"""`nearest_presets`: the presets whose architecture is the nearest to a model's, by the number of
changes; and which of the earlier ones each preset is nearest to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from math import log
from typing import ClassVar

from ....catalog import Preset, read_preset, slugs
from ....loading import load_family
from ....model import FamilyModel
from ....render.report import Report
from ....render.tables import Column, Part, Table, Text
from ....utils.errors import safe
from ....utils.number_format import format_count, format_short_signed, format_signed
from ....utils.record_type import Record
from ..preset_list import UNKNOWN
from .causes import Cause
from .model_diff import diff
from .traits import (
    BLOCK,
    RULE,
    SIZE,
    Change,
    Structure,
    Traits,
    model_traits,
    notable_traits,
    trait_changes,
)

NEAREST = 5
METHOD = (
    "fewest changes of blocks and their weights, then of rules of the forward pass, then of sizes "
    "and constants, then the nearest total; names and weights' values are not compared"
)
_MAX_SAID = 6
"""The most changes that one line has."""
_COLUMNS = (
    Column("preset"),
    Column("released", drop=1),
    Column("parameters", "short"),
    Column("difference", "signed", "delta", drop=2),
    Column("blocks", "number"),
    Column("rules", "number"),
    Column("sizes", "number"),
)


class Relative(Record):
    """A preset, with the changes that make the model of it."""

    preset: str
    name: str
    released: str | None
    parameters: int
    delta: int  # what the changes add to its parameters
    changes: tuple[Change, ...]
    causes: tuple[Cause, ...] = ()  # of delta

    def number_of(self, kind: str) -> int:
        """The number of changes of a kind."""
        return sum(x.kind == kind for x in self.changes)

    @property
    def distance(self) -> tuple[int, int, int]:
        """The numbers of changes of blocks, of rules and of sizes."""
        return self.number_of(BLOCK), self.number_of(RULE), self.number_of(SIZE)

    def text(self, name: str) -> str:
        """A sentence that derives a model of this name from the preset."""
        own = safe(self.name, 60)
        if not self.changes:
            return f"{name} is {own}"
        return f"{name} is {own} with {_joined([x.text for x in self.changes], _MAX_SAID)}"


class KinshipReport(Report):
    """The presets that are nearest to a model."""

    model: FamilyModel
    relatives: tuple[Relative, ...]
    compared: int

    json_fields: ClassVar[tuple[str, ...]] = (
        *("model=model.name", "summary", "compared", "method", "nearest=relatives"),
    )

    @property
    def method(self) -> str:
        """How distance is measured."""
        return METHOD

    @property
    def summary(self) -> str:
        """The changes from the nearest preset, as a sentence."""
        return self.relatives[0].text(safe(self.model.name, 60))

    @property
    def headline(self) -> str:
        """A title with the number of compared presets."""
        found = format_count(self.compared, "preset")
        return f"{safe(self.model.name, 60)}: the nearest of {found} by architecture"

    @property
    def entries(self) -> Sequence[Relative]:
        """The nearest presets."""
        return self.relatives

    def tables(self) -> Iterable[Part]:
        """The distances, and the changes from each preset."""
        rows = tuple(
            (x.preset, x.released or UNKNOWN, x.parameters, x.delta, *x.distance)
            for x in self.relatives
        )
        yield Table(columns=_COLUMNS, rows=rows)
        for x in self.relatives:
            yield Text("")
            yield Text(x.text(safe(self.model.name, 60)), hanging="  ")
            if x.causes:
                yield Text(f"{format_signed(x.delta)}: {_causes(x)}", "dim", indent="  ")
        yield Text("")
        yield Text(f"method: {METHOD}", "dim")


def _causes(x: Relative) -> str:
    largest = sorted(x.causes, key=lambda y: -abs(y.delta))
    return _joined([f"{y.cause} {format_short_signed(y.delta)}" for y in largest], 4)


def _joined(texts: Sequence[str], limit: int) -> str:
    """Return texts whose numbers have commas; of many, the first ones."""
    more = len(texts) - limit
    return "; ".join(texts[:limit]) + (f"; {more:,} more" if more > 0 else "")


def nearest_presets(model: FamilyModel, most: int = NEAREST) -> KinshipReport:
    """Return the presets of the fewest changes from which the model is made; a preset is not its
    own relative.
    """
    traits, total = model_traits(model), int(model.parameters.total)
    own = model.preset
    found = []
    for slug in slugs():
        other = _preset_traits(slug)
        changes = trait_changes(other, traits)
        is_own = own is not None and own.slug == slug and own.public_id == _first_id(slug)
        if not (is_own and not changes):
            found.append(_relative(read_preset(slug), changes, total))
    nearest = sorted(found, key=lambda x: _order(x, total))[:most]
    return KinshipReport(
        model=model,
        relatives=tuple(
            x.replace(causes=diff(load_family(x.preset), model).causes) for x in nearest
        ),
        compared=len(found),
    )


def _relative(preset: Preset, changes: tuple[Change, ...], total: int) -> Relative:
    return Relative(
        preset=preset.slug,
        name=preset.name,
        released=preset.released,
        parameters=preset.parameters,
        delta=total - preset.parameters,
        changes=changes,
    )


def _order(x: Relative, total: int) -> tuple[object, ...]:
    return (
        *x.distance,
        round(abs(log(max(1, total) / max(1, x.parameters))), 6),
        x.released or "~",
        x.preset,
    )


def _first_id(slug: str) -> str:
    return read_preset(slug).public_id


_structures: dict[object, Structure] = {}


@cache
def _preset_traits(slug: str) -> Traits:
    """Return the traits of a preset; equal structures are one object."""
    found = model_traits(load_family(slug))
    return found.replace(structure=_structures.setdefault(found.structure.key, found.structure))


def ancestor(slug: str) -> Relative | None:
    """Return the nearest preset that was released before this one, from which the fewest changes
    make it; None if a date is not known or there is none.
    """
    preset = read_preset(slug)
    earlier = [x for x in slugs() if _is_before(read_preset(x), preset)]
    if not earlier:
        return None
    traits, total = _preset_traits(slug), preset.parameters
    found = (
        _relative(read_preset(x), trait_changes(_preset_traits(x), traits), total) for x in earlier
    )
    return min(found, key=lambda x: _order(x, total))


def _is_before(a: Preset, b: Preset) -> bool:
    """Whether a model came before another one; of one date, the smaller one did."""
    if a.released is None or b.released is None:
        return False
    return (a.released, a.parameters, a.slug) < (b.released, b.parameters, b.slug)


class FirstUse(Record):
    """A block or rule, and the earliest dated preset that has it."""

    what: str
    preset: str
    released: str


def first_uses() -> Iterator[FirstUse]:
    """Yield the blocks and rules of presets, each with the first preset that has it."""
    dated = sorted(
        (x for x in map(read_preset, slugs()) if x.released),
        key=lambda x: (x.released, x.parameters, x.slug),
    )
    seen: set[str] = set()
    for preset in dated:
        for what in sorted(set(notable_traits(_preset_traits(preset.slug).structure))):
            if what not in seen:
                seen.add(what)
                yield FirstUse(what=what, preset=preset.slug, released=preset.released or "")
