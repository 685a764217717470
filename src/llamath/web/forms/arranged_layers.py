"""`LayerRule`: how a family arranges any number of layers of several kinds; models whose layers
follow their number by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

from ...core.blocks import Decoder
from ...core.expr import Expr
from ...core.tree import Arrangement, Block, Stack
from ...loading import load_family
from ...model import FamilyModel
from ...utils.errors import LlamathError
from ...utils.named_tuple import NamedTuple

LAYER_LIST_KEYS = ("layer_types", "no_rope_layers", "layers_block_type", "hybrid_override_pattern")
"""Config keys that list the layers one by one; without them, the default order of the family
applies to any depth."""
LAYERS = "L"
"""The letter of the number of layers."""
_MAX_PERIOD = 24
_MAX_FIRST, _MAX_LAST = 16, 2
_MAX_LAYERS, _MAX_KINDS = 2000, _MAX_FIRST + _MAX_PERIOD + _MAX_LAST

Kinds = tuple[int, ...]
"""Layers as places among the distinct ones."""


class LayerRule(NamedTuple):
    """The kinds of the first layers, of those that are repeated in turn, and of the last ones."""

    first: Kinds
    repeated: Kinds
    last: Kinds

    def kinds(self, n: int) -> Kinds:
        """Return the kinds of n layers."""
        times = n - len(self.first) - len(self.last)
        return (*self.first, *islice(cycle(self.repeated), times), *self.last)

    def arranged(self, tree: Decoder, n: int) -> Decoder:
        """Return the tree with layers that follow their number; raise if it has not all kinds."""
        layers = tree.layers
        blocks = [x for x, _ in layers.distinct()]
        if len(blocks) != len({*self.first, *self.repeated, *self.last}):
            raise LlamathError(f"{n} layers do not have all kinds of layers")
        order = Arrangement(*(tuple(blocks[i] for i in x) for x in self))
        stack = Stack(*layers.runs, active=layers.active, count_dim=n, arrangement=order)
        return tree.replace(layers=stack)


def find_layer_rule(model: FamilyModel) -> LayerRule | None:
    """Return the rule of a model's layers; None if they are alike, or if it is in no order of first
    layers, a repeated pattern and last layers.

    The number of layers alone is changed: keys such as that of the first dense layers stay, and a
    list of layers, which the config of another number cannot keep, is left out where it is the
    family's own order.
    """
    layers = model.tree.layers
    blocks, own_number = [x for x, _ in layers.distinct()], int(layers.n)
    key = model.config.key_by_symbol.get(LAYERS, "")
    is_small = own_number <= _MAX_LAYERS and len(blocks) <= _MAX_KINDS
    if len(blocks) < 2 or not is_small or model.config.data.get(key) != own_number:
        return None
    data = {x: y for x, y in model.config.data.items() if x not in LAYER_LIST_KEYS}
    known: dict[int, Kinds | None] = {}

    def kinds_at(n: int) -> Kinds | None:
        if n not in known:
            known[n] = _kinds_at(data, key, n, blocks)
        return known[n]

    own = _kinds_of(layers, blocks)
    if own is None or own != kinds_at(own_number):
        return None
    for first, period, last in _shapes(own):
        found = LayerRule(own[:first], own[first : first + period], own[own_number - last :])
        # all rests, smaller and larger numbers
        least = first + 2 * period + last
        others = {
            *range(own_number + 1, own_number + 1 + period),
            *range(least, least + period),
            *(x for x in (own_number // 2, 2 * own_number) if x >= least),
        }
        if all(found.kinds(x) == kinds_at(x) for x in sorted(others)):
            return found
    return None


def arranged(model: FamilyModel, rule: LayerRule | None) -> FamilyModel:
    """Return the model with layers that follow their letter; as it is where last layers of their
    own may end a pattern, and may not, as their number decides.
    """
    if rule is None or rule.last:
        return model
    n = Expr(LAYERS, int(model.tree.layers.n))
    return model.replace(tree=rule.arranged(model.tree, n))


def _kinds_of(layers: Stack, blocks: Sequence[Block]) -> Kinds | None:
    """Return the places of the layers among these blocks; None if one is none of them."""
    places: dict[int, int] = {}
    for x, _ in layers.distinct():
        place = next((i for i, y in enumerate(blocks) if x is y or x == y), None)
        if place is None:
            return None
        places[id(x)] = place
    return tuple(places[id(x)] for x in layers)


def _kinds_at(data: Mapping[str, Any], key: str, n: int, blocks: Sequence[Block]) -> Kinds | None:
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
