"""Numbers to quantize, the same on every machine: products of integers and powers of two, which no library rounds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_BLOCKS = 384


def quantizer_inputs() -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield arrays of whole blocks by name."""
    for n in (1, 3, _BLOCKS):
        random = np.random.Generator(np.random.PCG64(n))
        size = 256 * n
        uniform = _floats(random.integers(-(2**23), 2**23, size), -23)
        bell = _floats(random.integers(-(2**20), 2**20, (12, size)).sum(0), -20)
        yield f"uniform {n}", uniform
        yield f"bell {n}", bell
        yield f"small {n}", bell * np.float32(2**-6)
        yield f"positive {n}", np.abs(bell)
        yield f"negative {n}", -np.abs(bell)
        yield f"sparse {n}", np.where(random.integers(0, 20, size) == 0, bell, np.float32(0))
        yield f"sparse, signed {n}", bell * (random.integers(0, 20, size) == 0).astype(np.float32)
        yield f"integers {n}", random.integers(-3, 4, size).astype(np.float32)
        yield f"constant groups {n}", np.repeat(bell[::16], 16)
        yield f"zeros {n}", np.zeros(size, np.float32)
        yield f"negative zeros {n}", -np.zeros(size, np.float32)
        yield f"tiny {n}", bell * np.float32(2**-24)
        yield f"subnormal scales {n}", bell * np.float32(2**-66)
        yield f"bfloat16 {n}", (bell.view(np.uint32) & 0xFFFF0000).view(np.float32)
        yield (
            f"mixed {n}",
            bell
            * np.ldexp(np.float32(1), np.repeat(random.integers(-26, 10, size // 32), 32)).astype(
                np.float32
            ),
        )
        yield (
            f"outliers {n}",
            np.where(random.integers(0, 100, size) == 0, bell * np.float32(64), bell),
        )


def _floats(numbers: NDArray[np.int64], exponent: int) -> NDArray[np.float32]:
    return np.ldexp(numbers.astype(np.float32), exponent).astype(np.float32)
