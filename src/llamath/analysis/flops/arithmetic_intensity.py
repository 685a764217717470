"""Arithmetic intensity: the FLOPs per byte read, by group, which decides between memory-bound and compute-bound.

Bytes are those of the matrices that a pass uses, each read once regardless of the number of tokens, and of the cache. For MoE, the expected
number of distinct experts is read, with uniform routing. Activations are not counted: fused kernels keep most of them on the chip.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...core.blocks import Decoder
from ...core.record_type import Record
from ...core.tree import fold
from ..inference.cache_bytes import KVCacheSize
from ..inference.weight_bytes import WeightStorage
from .flop_count import Flops


class Intensity(Record):
    """The FLOPs and bytes of one group in one pass."""

    json_fields: ClassVar[tuple[str, ...]] = ("flops", "weights", "cache", "ratio")

    group: str
    flops: int
    weights: int  # bytes of matrices read
    cache: int  # bytes of keys, values and states read or written

    @property
    def bytes(self) -> int:
        """Weights and cache."""
        return self.weights + self.cache

    @property
    def ratio(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.bytes if self.bytes else 0.0


def arithmetic_intensity(flops: Flops, weights: Mapping[str, int], cached: KVCacheSize) -> tuple[Intensity, ...]:
    """Return the intensity of each group of a pass, and of all groups as `total`."""
    kept = {"attention": sum(x.growing for x in cached.parts), "mixer": sum(x.fixed for x in cached.parts)}
    groups = list(dict.fromkeys((*flops.weights, *flops.mixing)))
    parts = [Intensity(group=x, flops=flops.of(x), weights=weights.get(x, 0), cache=kept.get(x, 0)) for x in groups]
    whole = Intensity(
        group="total", flops=sum(x.flops for x in parts), weights=sum(x.weights for x in parts), cache=sum(x.cache for x in parts)
    )
    return (*parts, whole)


def weight_bytes_read(tree: Decoder, storage: WeightStorage, tokens: int) -> dict[str, int]:
    """Return the bytes of the matrices that a number of tokens use, by group; lookup tables are left out, a tied head is included."""
    found: dict[str, int] = {}
    tied = {x.weight.tied: x.group for x in fold(tree) if x.weight.tied and x.weight.role == "matmul"}
    for x in storage.weights:
        group = x.leaf.group if x.leaf.weight.role == "matmul" else tied.get(x.leaf.pattern)
        if group is not None:
            found[group] = (
                found.get(group, 0) + x.bytes * round(expected_copies(int(x.leaf.copies), int(x.leaf.active), tokens) * 2**20) // 2**20
            )
    return found


def expected_copies(copies: int, live: int, tokens: int) -> float:
    """Return the expected number of distinct copies (experts) that a number of tokens use."""
    return copies * (1.0 - (1.0 - live / copies) ** tokens) if live < copies else float(copies)
