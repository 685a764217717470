"""The reader of Inkling's tower for images: linear layers that fold a patch, step by step, into
one vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil, log
from operator import mul

from ..core.config import Config
from ..core.constructors import linear, rms
from ..core.multimodal import CountedBlock
from ..core.tree import sequence
from ..utils.named_tuple import NamedTuple
from .counted_towers import counted
from .layers_shared import listed_layers

_STEP = 64
"""Widths are multiples of this."""
_TIE = 1e-5
"""Differences of distances that the rounding of single precision decides."""


class _Scale(NamedTuple):
    """The region that a vector stands for: frames, pixels on a side, and the width of the
    vector.
    """

    times: int
    side: int
    width: int

    @property
    def places(self) -> int:
        return self.times * self.side**2


def folding_tower(v: Config, layers: int, width: int) -> CountedBlock:
    """Return the linear layers that fold a patch into one vector of this width."""
    v.ignore(
        "hidden_size",
        "initializer_range",
        "num_attention_heads",
        "rms_norm_eps",
        "text_hidden_size",
    )
    found: list[CountedBlock] = []
    for i, (start, end) in enumerate(pairwise(_plan(v, layers))):
        folded, out = (
            start.width * (end.places // start.places),
            width if i == layers - 1 else end.width,
        )
        found.append(
            counted(
                {"linear": linear(out, folded), "norm": None if i == layers - 1 else rms(out, 1e-6)}
            )
        )
    return counted({"layers": sequence(found, layers), "final_norm": rms(width, 1e-6)})


def _factors(n: int) -> list[int]:
    """Return the products of the prime factors of a number, the largest factor first."""
    found, x = [], 2
    while x * x <= n:
        if n % x:
            x += 1
        else:
            found.append(x)
            n //= x
    return list(accumulate(reversed([*found, *([n] if n > 1 else [])]), mul))


def _plan(v: Config, layers: int) -> Sequence[_Scale]:
    """Return the scales before and after each layer: those whose sizes are closest to equal
    ratios.
    """
    patch, times, channels = (
        v.get("patch_size", 40),
        v.get("temporal_patch_size", 2),
        v.get("num_channels", 3),
    )
    if not (2 <= patch <= 4096 and 1 <= times <= 4096 and channels >= 1):
        raise v.error(
            "patch_size",
            f"should be from 2 to 4096, and temporal_patch_size from 1, not {patch} and {times}",
        )
    sides = _factors(patch)
    scales = [
        _Scale(1, 1, channels),
        *(_Scale(1, x, ceil(x**2 * channels / _STEP) * _STEP) for x in sides),
        *(_Scale(x, patch, patch**2 * channels * x * _STEP) for x in _factors(times)),
    ]
    if layers < len(scales):
        raise v.error(
            "num_hidden_layers",
            f"is {layers}, fewer than the {len(scales)} scales from a pixel to a patch",
        )
    total = log(patch * patch * times * channels)
    return [
        scales[0],
        *(_closest(v, scales, total * i / layers) for i in listed_layers(v, layers)[1:]),
        scales[-1],
    ]


def _closest(v: Config, scales: Sequence[_Scale], size: float) -> _Scale:
    """Return the scale whose number of places is closest to a size, given as a logarithm."""
    first, second = sorted(scales, key=lambda x: abs(log(x.places) - size))[:2]
    if abs(abs(log(first.places) - size) - abs(log(second.places) - size)) < _TIE:
        raise v.error("num_hidden_layers", "puts a layer between two scales, equally far from both")
    return first
