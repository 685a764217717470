"""`cards`: which GPUs of the catalogue can run a model, and how many of each it takes, smallest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...core.errors import LlamathError
from ...core.record_type import Record
from ...hardware import Device
from ..parallel_layout import Layout
from .fit_report import choose_layout
from .gpu_shards import ShardedModel
from .inference_memory import MemoryCalculator, largest_fitting
from .speed_limits import decode_limit, find_roof

NODE_COUNTS = (1, 2, 4, 8)
"""Within one node."""


class RankedGPU(Record):
    """A device in the smallest number that does."""

    device: Device
    count: int
    layout: Layout
    total: int  # what the fullest of them holds
    max_context: int  # up to the limit that was asked for
    whole_context: bool  # whether that limit is reached
    decode_ceiling: float  # ceiling in tokens a second at the context that was asked for

    @property
    def nominal(self) -> int:
        """The memory of all of them, as sold."""
        return self.count * self.device.nominal


class GPURanking(Record):
    """Those that can, smallest first, and those that cannot even in the largest number tried."""

    context: int  # what each has to hold
    limit: int  # up to where longer contexts are looked at
    batch: int
    gpus: tuple[RankedGPU, ...]
    too_small: tuple[Device, ...]


class _Tried(NamedTuple):
    """Shards by their number and that of a node's devices: what they hold does not depend on the device."""

    sizes: MemoryCalculator
    made: dict[tuple[int, int], ShardedModel | None]

    def at(self, count: int, node: int) -> ShardedModel | None:
        """So many in nodes of so many; None where the model is not to be divided like that."""
        key = count, min(count, node)
        if key not in self.made:
            try:
                self.made[key] = ShardedModel(self.sizes, choose_layout(self.sizes.tree, *key))
            except LlamathError:
                self.made[key] = None
        return self.made[key]


def rank_gpus(sizes: MemoryCalculator, context: int, limit: int, among: Sequence[Device]) -> GPURanking:
    """Each device in the smallest of 1, 2, 4 or 8 that holds the model with so much context."""
    tried, batch = _Tried(sizes, {}), sizes.request.batch
    by_device = {x.name: _card(x, tried, context, limit) for x in among}
    found = sorted((x for x in by_device.values() if x), key=lambda x: (x.nominal, x.count, -x.decode_ceiling))
    short = tuple(x for x in among if by_device[x.name] is None)
    return GPURanking(context=context, limit=limit, batch=batch, gpus=tuple(found), too_small=short)


def _card(device: Device, tried: _Tried, context: int, limit: int) -> RankedGPU | None:
    batch = tried.sizes.request.batch
    for count in NODE_COUNTS:
        shards = tried.at(count, device.node) if count <= device.node else None
        if shards is None or (most := shards.max_memory(context, batch)) > device.memory:
            continue
        longest = limit if shards.max_memory(limit, batch) <= device.memory else largest_fitting(_fitting(shards, device, batch)) or limit
        over = find_roof(device, tried.sizes.packer.name, tried.sizes.packer.compute)
        return RankedGPU(
            device=device,
            count=count,
            layout=shards.layout,
            total=most,
            max_context=longest,
            whole_context=longest >= limit,
            decode_ceiling=decode_limit(shards, over, context, batch).tokens_per_second,
        )
    return None


def _fitting(shards: ShardedModel, device: Device, batch: int) -> Callable[[int], bool]:
    return lambda n: shards.max_memory(n, batch) <= device.memory
