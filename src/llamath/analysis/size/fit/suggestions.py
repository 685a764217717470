"""Suggest changes with which a model fits the GPUs at hand: smaller weights, a smaller KV cache, a
shorter context, weights on the host.

Changes are combined, and only those are kept that no other combination beats in everything. They
are sorted by what they give up, in halvings: of the bits of a weight, of the bits of a cached
element, of the context, and of the speed limit of decode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from math import log2
from typing import NamedTuple

from ....core.tree import fold
from ....hardware import Device, devices
from ....utils.errors import LlamathError
from ....utils.record_type import Record
from ..memory.cache_bytes import sum_cache_specs
from ..memory.gpu_shards import ShardedModel
from ..memory.inference_memory import MemoryCalculator, largest_fitting
from ..memory.speed_limits import SpeedLimit, decode_limit, find_roof, host_bandwidth
from .fit_rules import (
    MAX_COMBINATIONS,
    MAX_HALVINGS,
    RESCUE_BITS,
    WIDE_KV_DTYPES,
    left_of,
    rounded_context,
)
from .fit_words import gpus_option
from .format_support import (
    is_supported,
    suggested_bits,
    supported_formats,
    supported_kv_dtypes,
)
from .gpu_ranking import smallest_gpus
from .mixed_machine import MixedMachine
from .serving_layouts import LayoutChooser, ServingLayout

_WITH_OFFLOAD = "q4_k_m"
"""The format that is combined with weights on the host, as the model's own is."""
_GPU_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
"""Larger numbers of GPUs that are tried if the model does not fit."""


_Sizer = Callable[[int], int | None]


class Suggestion(Record):
    """Changes with which the model fits, as options of the command line, and the memory of the
    most loaded GPU with them.
    """

    change: str
    what: str
    total: int


class _Losses(NamedTuple):
    """What a change gives up, in halvings."""

    weight_bits: float = 0.0
    cache_bits: float = 0.0
    context: float = 0.0
    speed: float = 0.0
    offload: float = 0.0  # GiB on the host; not part of the sum, which has the slowdown

    @property
    def halvings(self) -> float:
        """The sum by which changes are sorted."""
        return self.weight_bits + self.cache_bits + self.context + self.speed


class _Change(NamedTuple):
    """A combination of changes, and what it gives up."""

    options: tuple[str, ...]
    words: tuple[str, ...]
    total: int
    losses: _Losses

    @property
    def suggestion(self) -> Suggestion:
        return Suggestion(
            change=" ".join(self.options), what=", ".join(self.words), total=self.total
        )


class Suggester:
    """Finds the changes with which a model fits one machine."""

    def __init__(self, calculator: MemoryCalculator, gpu: Device, count: int) -> None:
        self.calculator, self.gpu, self.count = calculator, gpu, count
        self.batch, self.context = calculator.request.batch, calculator.context
        self.weight_bytes = sum(x.bytes for x in calculator.weights)
        self._known: dict[str, MemoryCalculator | None] = {}
        self._choosers: dict[str, LayoutChooser] = {}

    def suggestions(self) -> Iterator[Suggestion]:
        """Yield the combinations on these GPUs, least loss first, then more or larger GPUs."""
        changes = [x for x in self._changes() if x.losses.halvings <= MAX_HALVINGS]
        best = [x for x in changes if not any(_beats(y, x) for y in changes)]
        least = sorted(best, key=lambda x: x.losses.halvings)[:MAX_COMBINATIONS]
        yield from (x.suggestion for x in least)
        if not self.gpu.members:
            others = (*self._more_gpus(), *self._larger_gpu(), *self._best_hardware())
            yield from {x.change: x for x in others}.values()

    def _changes(self) -> Iterator[_Change]:
        for weights, sizes in self._weight_formats():
            yield from self._with_context(self._sizer(sizes), weights)
            for kv_dtype in self._smaller_kv_dtypes():
                smaller = MemoryCalculator(
                    sizes.model, sizes.request.replace(kv_dtype=kv_dtype), sizes.stored
                )
                bits = (
                    log2(self._cache_bytes(sizes) / max(self._cache_bytes(smaller), 1))
                    if self._cache_bytes(sizes)
                    else 0.0
                )
                changed = weights.with_change(
                    f"--kv-dtype {kv_dtype}", "", _Losses(cache_bits=bits)
                )
                yield from self._with_context(self._sizer(smaller), changed)
            if sizes is self.calculator or sizes.request.dtype == _WITH_OFFLOAD:
                yield from self._with_offload(LayoutChooser(sizes), weights)

    def _weight_formats(self) -> Iterator[tuple[_Start, MemoryCalculator]]:
        """Yield the weights as they are, and in each smaller format that the GPU supports."""
        yield _Start(), self.calculator
        bits = (
            8
            * self.weight_bytes
            / sum(int(x.weight.parameters) * int(x.copies) for x in fold(self.calculator.tree))
        )
        for name in supported_formats(self.gpu):
            if (smaller := self._smaller(name)) is not None:
                size = sum(x.bytes for x in smaller.weights)
                lost = _Losses(weight_bits=max(log2(bits / (suggested_bits(name) or bits)), 0))
                yield (
                    _Start().with_change(
                        f"--dtype {name}", f"weights of {size / 1e9:,.1f} GB", lost
                    ),
                    smaller,
                )

    def _smaller(self, dtype: str) -> MemoryCalculator | None:
        """Return the model in a format; None if it is not smaller, or cannot be stored that way."""
        if dtype not in self._known:
            self._known[dtype] = None
            with suppress(LlamathError):
                found = MemoryCalculator(
                    self.calculator.model, self.calculator.request.replace(dtype=dtype)
                )
                if sum(x.bytes for x in found.weights) < self.weight_bytes:
                    self._known[dtype] = found
        return self._known[dtype]

    def _rescuing_formats(self, gpu: Device) -> Iterator[tuple[str, LayoutChooser]]:
        """Yield the weights as they are, and in 8 and 4 bits of the format that comes first on a
        GPU: as an option, and to be sized.
        """
        yield "", self._choosers.setdefault("", LayoutChooser(self.calculator))
        for bits in RESCUE_BITS:
            known = (x for x in supported_formats(gpu) if suggested_bits(x) == bits)
            name = next((x for x in known if self._smaller(x) is not None), "")
            if name and (sizes := self._smaller(name)) is not None:
                chooser = self._choosers.setdefault(name, LayoutChooser(sizes))
                yield f"--dtype {name} ", chooser

    def _smaller_kv_dtypes(self) -> Iterator[str]:
        if self.calculator.kv_dtype in WIDE_KV_DTYPES:
            yield from supported_kv_dtypes(self.gpu)

    def _sizer(self, sizes: MemoryCalculator) -> _Sizer:
        """Return the function context → memory of the most loaded GPU, or None if the model does
        not fit.
        """
        if self.gpu.members:
            machine = MixedMachine(sizes, self.gpu.members)
            return lambda n: machine.total(n, self.batch)
        chooser = LayoutChooser(sizes)
        return lambda n: total_of_fitting(chooser, self.gpu, self.count, n, self.batch)

    def _with_context(self, memory: _Sizer, start: _Start) -> Iterator[_Change]:
        """Yield the change as it is if the model fits with it, else with the longest context
        that does.
        """
        if start.options and (total := memory(self.context)) is not None:
            yield start.change(total)
            return
        longest = (
            largest_fitting(lambda n: n <= self.context and memory(n) is not None, self.context)
            or 0
        )
        rounded = int(rounded_context(min(longest, self.context)))
        if rounded and rounded < self.context and (total := memory(rounded)) is not None:
            lost = _Losses(context=log2(self.context / rounded))
            yield start.with_change(
                f"--context {rounded}", f"of {self.context:,} tokens", lost
            ).change(total)

    def _with_offload(self, chooser: LayoutChooser, start: _Start) -> Iterator[_Change]:
        """Yield the change with as many weights in the memory of the host as it takes."""
        one_copy = [x for x in chooser.layouts(self.count, self.gpu.node) if x.replicas == 1]
        if (
            self.gpu.members
            or not host_bandwidth(self.gpu)
            or not self.gpu.bandwidth
            or not one_copy
        ):
            return
        shards = chooser.shards(one_copy[0].layout)
        missing = shards.max_memory(self.context, self.batch) - self.gpu.memory
        if missing <= 0:
            return
        gib = -(-missing // 2**30)
        offloaded = ShardedModel(shards.calculator, shards.layout, offload=gib * 2**30)
        if (total := offloaded.max_memory(self.context, self.batch)) > self.gpu.memory:
            return
        unchanged = ShardedModel(self.calculator, shards.layout)
        slower = self._decode_limit(offloaded)
        lost = _Losses(
            speed=max(log2(slower.seconds / self._decode_limit(unchanged).seconds), 0), offload=gib
        )
        yield start.with_change(
            f"--offload {gib}GiB", f"at most {slower.tokens_per_second:,.3g} tokens/s", lost
        ).change(total)

    def _decode_limit(self, shards: ShardedModel) -> SpeedLimit:
        packer = shards.calculator.packer
        return decode_limit(
            shards, find_roof(self.gpu, packer.name, packer.compute_dtype), self.context, self.batch
        )

    def _cache_bytes(self, sizes: MemoryCalculator) -> int:
        return sum_cache_specs(sizes.cache_specs, self.context, self.batch, sizes.kv_dtype).bytes

    def _more_gpus(self) -> Iterator[Suggestion]:
        """Yield the smallest larger number of the same GPU; with fewer bits, if it is smaller."""
        counts = [x for x in _GPU_COUNTS if x <= self.gpu.node or x % self.gpu.node == 0]
        for dtype, chooser in self._rescuing_formats(self.gpu):
            for n in (x for x in counts if x > self.count):
                total = total_of_fitting(chooser, self.gpu, n, self.context, self.batch)
                if total is not None:
                    counts = [x for x in counts if x < n]
                    yield Suggestion(
                        change=f"{dtype}--on {gpus_option(n, self.gpu)}",
                        what="more of these GPUs",
                        total=total,
                    )
                    break

    def _larger_gpu(self) -> Iterator[Suggestion]:
        """Yield the smallest larger GPU in the same number, with the most bits with which one
        fits.
        """
        larger = [x for x in devices() if x.memory > self.gpu.memory]
        found = (
            (place, dtype, other, total)
            for other in sorted(larger, key=lambda x: x.memory)
            for place, (dtype, chooser) in enumerate(self._rescuing_formats(other))
            if (total := total_of_fitting(chooser, other, self.count, self.context, self.batch))
            is not None
        )
        if best := min(found, key=lambda x: x[0], default=None):
            _, dtype, other, total = best
            yield Suggestion(
                change=f"{dtype}--on {gpus_option(self.count, other)}",
                what=f"the smallest that fits, {other.memory / 2**30:.1f} GiB each",
                total=total,
            )

    def _best_hardware(self) -> Iterator[Suggestion]:
        """Yield the smallest hardware of the catalog in the order of `fit` without GPUs."""
        name = self.calculator.packer.name
        among = [x for x in devices() if x.bandwidth and is_supported(x, name)]
        best = smallest_gpus(self.calculator, among)
        if best is not None and best.device != self.gpu:
            yield Suggestion(
                change=f"--on {gpus_option(best.count, best.device)}",
                what="the smallest of common GPUs" if best.device.common else "the smallest",
                total=best.total,
            )


class _Start(NamedTuple):
    """Changes whose memory is not known yet."""

    options: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    losses: _Losses = _Losses()

    def with_change(self, option: str, words: str, losses: _Losses) -> _Start:
        added = _Losses(*(x + y for x, y in zip(self.losses, losses, strict=True)))
        return _Start((*self.options, option), (*self.words, words), added)

    def change(self, total: int) -> _Change:
        return _Change(self.options, tuple(filter(None, self.words)), total, self.losses)


def total_of_fitting(
    chooser: LayoutChooser, gpu: Device, count: int, context: int, batch: int
) -> int | None:
    """Return the memory of the most loaded GPU in the first split that fits; None if none does."""

    def fits(shards: ShardedModel, x: ServingLayout) -> bool:
        return left_of(gpu.memory, shards.max_memory(context, x.sequences(batch))) >= 0

    found = chooser.first_fitting(count, gpu.node, fits)
    return (
        None
        if found is None
        else chooser.shards(found.layout).max_memory(context, found.sequences(batch))
    )


def _beats(x: _Change, y: _Change) -> bool:
    """Return whether x gives up no more than y in anything, and less in something."""
    return all(a <= b for a, b in zip(x.losses, y.losses, strict=True)) and x.losses != y.losses
