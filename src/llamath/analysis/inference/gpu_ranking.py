"""`cards`: which GPUs of the catalogue can run a model, and how many of each it takes, smallest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...core.errors import LlamathError
from ...core.record_type import Record
from ...hardware import Device
from ..parallel_layout import Layout
from .fit_report import chosen
from .gpu_shards import Shards
from .inference_memory import Sizes, largest
from .speed_limits import decode, roof

COUNTS = (1, 2, 4, 8)
"""Within one node."""


class Card(Record):
    """A device in the smallest number that does."""

    device: Device
    count: int
    layout: Layout
    most: int  # what the fullest of them holds
    max_context: int  # up to the limit that was asked for
    whole: bool  # whether that limit is reached
    decode: float  # ceiling in tokens a second at the context that was asked for

    @property
    def nominal(self) -> int:
        """The memory of all of them, as sold."""
        return self.count * self.device.nominal


class Cards(Record):
    """Those that can, smallest first, and those that cannot even in the largest number tried."""

    context: int  # what each has to hold
    limit: int  # up to where longer contexts are looked at
    batch: int
    found: tuple[Card, ...]
    short: tuple[Device, ...]


class _Tried(NamedTuple):
    """Shards by their number and that of a node's devices: what they hold does not depend on the device."""

    sizes: Sizes
    made: dict[tuple[int, int], Shards | None]

    def at(self, count: int, node: int) -> Shards | None:
        """So many in nodes of so many; None where the model is not to be divided like that."""
        key = count, min(count, node)
        if key not in self.made:
            try:
                self.made[key] = Shards(self.sizes, chosen(self.sizes.tree, *key))
            except LlamathError:
                self.made[key] = None
        return self.made[key]


def cards(sizes: Sizes, context: int, limit: int, among: Sequence[Device]) -> Cards:
    """Each device in the smallest of 1, 2, 4 or 8 that holds the model with so much context."""
    tried, batch = _Tried(sizes, {}), sizes.request.batch
    by_device = {x.name: _card(x, tried, context, limit) for x in among}
    found = sorted((x for x in by_device.values() if x), key=lambda x: (x.nominal, x.count, -x.decode))
    short = tuple(x for x in among if by_device[x.name] is None)
    return Cards(context=context, limit=limit, batch=batch, found=tuple(found), short=short)


def _card(device: Device, tried: _Tried, context: int, limit: int) -> Card | None:
    batch = tried.sizes.request.batch
    for count in COUNTS:
        shards = tried.at(count, device.node) if count <= device.node else None
        if shards is None or (most := shards.most(context, batch)) > device.memory:
            continue
        longest = limit if shards.most(limit, batch) <= device.memory else largest(_fitting(shards, device, batch)) or limit
        over = roof(device, tried.sizes.packer.name, tried.sizes.packer.compute)
        return Card(
            device=device,
            count=count,
            layout=shards.layout,
            most=most,
            max_context=longest,
            whole=longest >= limit,
            decode=decode(shards, over, context, batch).rate,
        )
    return None


def _fitting(shards: Shards, device: Device, batch: int) -> Callable[[int], bool]:
    return lambda n: shards.most(n, batch) <= device.memory
