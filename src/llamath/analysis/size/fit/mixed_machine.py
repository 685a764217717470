"""Split a model over the different GPUs of one machine: a pipeline in which each GPU holds
layers in proportion to its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from ....hardware import Device
from ....questions.layout import Layout
from ....utils.errors import LlamathError
from ...storage.memory_line import overhead_bytes
from ...storage.parallel_layout import PipelineStage, slice_layers
from ..memory.gpu_shards import ShardedModel
from ..memory.inference_memory import MemoryCalculator, largest_fitting

_MAX_LAYERS = 10_000
"""Models with more layers are not split over different GPUs."""
_SEARCH_STEPS = 40
"""Halvings of the interval in which the evenest split is searched."""


class _Size(NamedTuple):
    """The bytes of weights of a part of the model, and of its cache and other memory that is
    needed besides.
    """

    weights: int
    cache: int
    other: int


class MixedMachine:
    """A model on different GPUs, in the order in which they are listed."""

    def __init__(self, calculator: MemoryCalculator, gpus: Sequence[Device]) -> None:
        self.calculator, self.gpus = calculator, tuple(gpus)
        self.layout = Layout(pp=len(self.gpus))
        self.num_layers = int(calculator.tree.layers.n)
        if not len(self.gpus) <= self.num_layers <= _MAX_LAYERS:
            raise LlamathError(
                f"{self.num_layers:,} layers cannot be split over {len(self.gpus):,} different "
                "GPUs",
                hint=f"each GPU holds whole layers, of at most {_MAX_LAYERS:,}",
            )

    def fits(self, context: int, batch: int) -> bool:
        """Return whether some split fits."""
        return self._split(context, batch, 1.0) is not None

    def max_context(self, batch: int) -> int | None:
        """Return the longest context that fits; 0 if none does, None if any does."""
        return largest_fitting(lambda n: self.fits(n, batch))

    def max_batch(self, context: int) -> int | None:
        """Return the most sequences that fit; 0 if none do, None if any do."""
        return largest_fitting(lambda n: self.fits(context, n))

    def shards(self, context: int, batch: int) -> ShardedModel:
        """Return the model in the split that fills the GPUs most evenly."""
        low, high = 0.0, 1.0
        while (found := self._split(context, batch, high)) is None:
            low, high = high, 2 * high
        for _ in range(_SEARCH_STEPS):
            middle = (low + high) / 2
            if (split := self._split(context, batch, middle)) is None:
                low = middle
            else:
                high, found = middle, split
        return ShardedModel(self.calculator, self.layout, stages=self._stages(found))

    def total(self, context: int, batch: int) -> int | None:
        """Return the memory of the most loaded GPU; None if the model does not fit."""
        if not self.fits(context, batch):
            return None
        return max(x.total for x in self.shards(context, batch).stage_memory(context, batch))

    def _split(self, context: int, batch: int, share: float) -> list[int] | None:
        """Return the first layer of each stage if each GPU needs at most this share of its
        memory, and each has a layer.
        """
        layers, first, last = self._sizes(context, batch)
        weights, caches = ([0, *accumulate(x[i] for x in layers)] for i in (0, 1))
        starts, start = [0], 0
        for i, gpu in enumerate(self.gpus):
            rest = len(self.gpus) - i - 1
            ends = [self.num_layers] if rest == 0 else range(self.num_layers - rest, start, -1)

            def fits(
                end: int,
                i: int = i,
                start: int = start,
                rest: int = rest,
                limit: float = share * gpu.memory,
            ) -> bool:
                parts = [x for x, there in ((first, i == 0), (last, rest == 0)) if there]
                cache = caches[end] - caches[start] + sum(x.cache for x in parts)
                other = layers[0].other + sum(x.other for x in parts)
                total = (
                    weights[end] - weights[start] + sum(x.weights for x in parts) + cache + other
                )
                return total + int(overhead_bytes(cache + other)) <= limit

            if (end := next((x for x in ends if fits(x)), None)) is None:
                return None
            start = end
            starts.append(start)
        return starts

    def _sizes(self, context: int, batch: int) -> tuple[list[_Size], _Size, _Size]:
        """Return the size of every layer, and what the first and the last stage hold besides
        layers.
        """
        by_kind = {kind: self._size(shards, context, batch) for kind, shards in self._kinds.items()}
        layers = [by_kind[kind] for kind in self._kind_of_layer]
        ends = [self._size(x, context, batch) for x in self._ends]
        one = by_kind[self._kind_of_layer[0]], by_kind[self._kind_of_layer[-1]]
        first, last = (
            _Size(*(a - b for a, b in zip(x, y, strict=True)))
            for x, y in zip(ends, one, strict=True)
        )
        return layers, first, last

    @staticmethod
    def _size(shards: ShardedModel, context: int, batch: int) -> _Size:
        (x,) = shards.stage_memory(context, batch)
        return _Size(x.weights, x.kv_cache, x.activations + x.logits)

    @cached_property
    def _kind_of_layer(self) -> list[int]:
        return [
            id(slice_layers(self.calculator.tree.layers, i, i + 1)[0][0])
            for i in range(self.num_layers)
        ]

    @cached_property
    def _kinds(self) -> dict[int, ShardedModel]:
        """Each distinct layer as a stage of its own."""
        return {
            kind: self._one_layer(self._kind_of_layer.index(kind))
            for kind in dict.fromkeys(self._kind_of_layer)
        }

    @cached_property
    def _ends(self) -> tuple[ShardedModel, ShardedModel]:
        return self._one_layer(0, first=True), self._one_layer(self.num_layers - 1, last=True)

    def _one_layer(self, i: int, first: bool = False, last: bool = False) -> ShardedModel:
        stage = PipelineStage(index=0, runs=((i, i + 1),), first=first, last=last)
        return ShardedModel(self.calculator, self.layout, stages=[stage])

    def _stages(self, starts: Sequence[int]) -> list[PipelineStage]:
        end = len(self.gpus) - 1
        return [
            PipelineStage(index=i, runs=((starts[i], starts[i + 1]),), first=i == 0, last=i == end)
            for i in range(end + 1)
        ]
