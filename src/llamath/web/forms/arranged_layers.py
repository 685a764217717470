"""`arranged`: a model whose layers of several kinds follow their number, as its family arranges
more or fewer of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

from ...core.expr import Expr
from ...core.tree import Arrangement, Block, Stack
from ...loading import load_family
from ...model import FamilyModel
from ...utils.errors import LlamathError
from .family_form import LAYER_LIST_KEYS

_LAYERS = "L"
_MAX_PERIOD = 24
_MAX_FIRST, _MAX_LAST = 16, 2
_MAX_LAYERS = 2000

Kinds = tuple[int, ...]


def arrangement_of(model: FamilyModel) -> Arrangement | None:
    """Return how the family arranges any number of layers; None if they are alike, or if it is in
    no order of first layers, a repeated pattern and last layers.

    The number of layers alone is changed: keys such as that of the first dense layers stay, and a
    list of layers, which the config of another number cannot keep, is left out where it is the
    family's own order.
    """
    layers = model.tree.layers
    blocks, n = [x for x, _ in layers.distinct()], int(layers.n)
    key = model.config.key_by_symbol.get(_LAYERS, "")
    if len(blocks) < 2 or n > _MAX_LAYERS or model.config.data.get(key) != n:
        return None
    data = {x: y for x, y in model.config.data.items() if x not in LAYER_LIST_KEYS}
    known: dict[int, Kinds | None] = {}

    def kinds_at(n: int) -> Kinds | None:
        if n not in known:
            known[n] = _kinds_at(data, key, n, blocks)
        return known[n]

    own = _kinds_of(layers, blocks)
    if own is None or own != kinds_at(n):
        return None
    for first, period, last in _shapes(own):
        found = own[:first], own[first : first + period], own[n - last :]
        # all rests, smaller and larger numbers
        least = first + 2 * period + last
        others = {*range(n + 1, n + 1 + period), *range(least, least + period), n // 2, 2 * n}
        if all(_arranged(found, x) == kinds_at(x) for x in sorted(others) if x >= least):
            return Arrangement(*(tuple(blocks[i] for i in x) for x in found))
    return None


def arranged(model: FamilyModel, arrangement: Arrangement | None) -> FamilyModel:
    """Return the model with this arrangement of its layers."""
    if arrangement is None:
        return model
    layers = model.tree.layers
    n = Expr(_LAYERS, int(layers.n))
    stack = Stack(*layers.runs, active=layers.active, count_dim=n, arrangement=arrangement)
    return model.replace(tree=model.tree.replace(layers=stack))


def _kinds_of(layers: Stack, blocks: Sequence[Block]) -> Kinds | None:
    """Return the places of the layers among these blocks; None if one is none of them."""
    places: dict[int, int] = {}
    for x, _ in layers.distinct():
        place = next((i for i, y in enumerate(blocks) if x is y or x == y), None)
        if place is None:
            return None
        places[id(x)] = place
    return tuple(places[id(x)] for x in layers)


def _kinds_at(
    data: Mapping[str, Any], key: str, n: int, blocks: Sequence[Block]
) -> Kinds | None:
    """Return the kinds of n layers as the family arranges them; None if it does not."""
    try:
        return _kinds_of(load_family({**data, key: n}).tree.layers, blocks)
    except LlamathError:
        return None


def _shapes(own: Kinds) -> Iterator[tuple[int, int, int]]:
    """Yield numbers of first layers, of those of a pattern that occurs at least twice, and of last
    layers; short ones first.
    """
    for last in range(_MAX_LAST + 1):
        middle = own[: len(own) - last]
        for period in range(1, _MAX_PERIOD + 1):
            for first in range(min(_MAX_FIRST, len(middle) - 2 * period) + 1):
                if middle[first + period :] == middle[first : len(middle) - period]:
                    yield first, period, last
                    break


def _arranged(found: tuple[Kinds, Kinds, Kinds], n: int) -> Kinds:
    first, repeated, last = found
    return (*first, *islice(cycle(repeated), n - len(first) - len(last)), *last)
