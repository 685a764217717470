"""`measure_rates`: the memory bandwidth and the FLOP/s of this machine's processor, by the
kernels of the native engine.
"""

from __future__ import annotations

import ctypes
from statistics import median
from time import perf_counter
from typing import NamedTuple

from .engine import default_threads
from .library import BF16, F16, F32, FAST, I8, Library, Matrix, MatrixProduct, load_library

_COLS = 4096
BEYOND_CACHES = 256 * 2**20
"""Bytes of the matrix whose product with a vector measures the bandwidth: larger than the caches
of a processor."""
_TILE = 512
"""Rows, and tokens, of the products that measure FLOP/s."""
_SECONDS = 0.4
"""The time that each measurement repeats for, at least three times."""
_BRIEFLY = 0.15
_TYPES = {"fp32": F32, "bf16": BF16, "fp16": F16, "int8": I8}


class MachineRates(NamedTuple):
    """What the kernels reach."""

    bandwidth: int  # bytes per second
    flops: dict[str, int]  # dtype of the weights → FLOP/s
    threads: int
    path: str  # the instruction set


def measure_rates(threads: int | None = None) -> MachineRates:
    """Measure the bandwidth by a product of one token with a large matrix, and FLOP/s by those
    of 512 tokens.
    """
    library = load_library()
    count = default_threads(2**40) if threads is None else threads
    pool = library.pool_create(count)
    try:
        bandwidth = round(BEYOND_CACHES / median(_bandwidth(library, pool, _SECONDS)))
        work = 2 * _TILE * _TILE * 4 * _COLS
        flops = {
            name: round(work / median(_seconds(library, pool, kind, 4 * _TILE, _TILE)))
            for name, kind in _TYPES.items()
        }
        return MachineRates(bandwidth, flops, count, str(library.path().decode()))
    finally:
        library.pool_destroy(pool)


def measure_bandwidth(threads: int) -> int:
    """Return the largest bandwidth of a few products: other programs only make it smaller."""
    library = load_library()
    pool = library.pool_create(threads)
    try:
        return round(BEYOND_CACHES / min(_bandwidth(library, pool, _BRIEFLY)))
    finally:
        library.pool_destroy(pool)


def _bandwidth(library: Library, pool: int, least: float) -> list[float]:
    return _seconds(library, pool, F32, BEYOND_CACHES // (4 * _COLS), 1, least)


def _seconds(
    library: Library, pool: int, kind: int, rows: int, tokens: int, least: float = _SECONDS
) -> list[float]:
    """Return the times of products of `tokens` vectors with a matrix of `rows` outputs, in all at
    least `least` seconds.
    """
    size = rows * library.row_bytes(kind, _COLS)
    weights, x, out = (
        ctypes.create_string_buffer(n) for n in (size, 4 * tokens * _COLS, 4 * tokens * rows)
    )
    scales = (ctypes.c_float * rows)() if kind == I8 else None
    ctypes.memset(weights, 0, size)  # allocates the pages
    matrix = Matrix(
        ctypes.addressof(weights),
        None if scales is None else ctypes.addressof(scales),
        rows,
        _COLS,
        0,
        kind,
        0,
        size,
        rows,
    )
    product = MatrixProduct(matrix, ctypes.addressof(out), 0, None, 0, 0)
    found: list[float] = []
    began = perf_counter()
    while len(found) < 3 or perf_counter() - began < least:
        before = perf_counter()
        if library.matmul(pool, ctypes.addressof(product), 1, ctypes.addressof(x), 0, tokens, FAST):
            raise AssertionError(kind)
        found.append(perf_counter() - before)
    library.pool_wait(pool)
    return found
