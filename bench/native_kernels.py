"""Matrix products of the native engine: the share of the memory bandwidth at 1 to 8 rows of inputs,
for each type of weights.

The weights are read in rotating parts of a buffer that is larger than the caches. Samples are
short, products and plain reads in turn, and the result is the third best of many: other processes
of the machine disturb the rest.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "native" / "tests"))
from kernel_library import (
    BF16,
    F16,
    F32,
    FAST,
    I8,
    MXFP4,
    PTR,
    Q4_0,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_0,
    Library,
    Matrix,
    Product,
    build_library,
)

RESULT = Path(__file__).parent / "results" / "native_kernels.json"
TYPES = {
    "F32": F32,
    "BF16": BF16,
    "F16": F16,
    "I8": I8,
    "Q8_0": Q8_0,
    "Q4_0": Q4_0,
    "Q4_K": Q4_K,
    "Q5_K": Q5_K,
    "Q6_K": Q6_K,
    "MXFP4": MXFP4,
}
HALVES = {Q8_0: (0,), Q4_0: (0,), Q4_K: (0, 2), Q5_K: (0, 2), Q6_K: (208,)}
BUFFER, PART, COLS, SAMPLES = 384 << 20, 24 << 20, 2048, 60
"""Bytes of weights in all and in a sample, columns of a matrix, and samples."""


def random_weights(library: Library, kind: int) -> np.ndarray:
    """A buffer of weights of ordinary size."""
    rng = np.random.default_rng(0)
    if kind == F32:
        some = rng.standard_normal(1 << 16).astype(np.float32)
    elif kind == F16:
        some = rng.standard_normal(1 << 16).astype(np.float16)
    elif kind == BF16:
        some = (rng.standard_normal(1 << 16).astype(np.float32).view(np.uint32) >> 16).astype(
            np.uint16
        )
    else:
        some = rng.integers(0, 256, (1024, library("block_bytes", kind)), dtype=np.uint8)
        for at in HALVES.get(kind, ()):
            some[:, at : at + 2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
        if kind == MXFP4:
            some[:, 0] = 125
    return np.resize(some.view(np.uint8).ravel(), BUFFER)


class Samples:
    """Third best rates of calls that read a part of the buffer each."""

    def __init__(self, weights: np.ndarray) -> None:
        self.base, self.at = weights.ctypes.data, 0

    def rates(self, calls: dict[str, Callable[[int], None]]) -> dict[str, float]:
        """Return GB/s of each call; they take turns."""
        seen: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(SAMPLES):
            for name, call in calls.items():
                self.at = (self.at + PART) % (BUFFER - PART)
                begin = time.perf_counter()
                call(self.base + self.at)
                seen[name].append(PART / (time.perf_counter() - begin) / 1e9)
        return {name: sorted(x)[-3] for name, x in seen.items()}


def product(library: Library, kind: int, n: int) -> Callable[[int], None]:
    """Return a call that multiplies a part of the buffer with n rows of inputs."""
    x = np.random.default_rng(1).standard_normal((n, COLS)).astype(np.float32)
    rows = PART // library("row_bytes", kind, COLS)
    out, scales = np.zeros((n, rows), np.float32), np.ones(rows, np.float32)
    matrix = Matrix(
        None, scales.ctypes.data if kind == I8 else None, rows, COLS, 0, kind, 0, PART, rows
    )
    given = Product(matrix, out.ctypes.data)

    def call(address: int, kept: tuple[np.ndarray, ...] = (out, scales)) -> None:  # noqa: ARG001
        given.w.data = address
        library("matmul", PTR(library.pool), given, 1, x, 0, n, FAST)

    return call


def main() -> None:
    """Measure every type and write the result."""
    path = build_library()
    libraries = {threads: Library(path, threads) for threads in (1, 2)}
    results = []
    for name, kind in TYPES.items():
        weights = random_weights(libraries[1], kind)
        for threads, library in libraries.items():
            calls = {str(n): product(library, kind, n) for n in (1, 2, 4, 8)}

            def read(address: int, library: Library = library) -> None:
                library("read", PTR(library.pool), PTR(address), PART)

            rates = Samples(weights).rates({"read": read, **calls})
            library("pool_wait", PTR(library.pool))
            row = {
                "type": name,
                "threads": threads,
                "read_gb_per_s": round(rates["read"], 1),
                **{f"share_at_{n}_rows": round(rates[n] / rates["read"], 3) for n in calls},
                "time_of_8_rows_to_1": round(rates["1"] / rates["8"], 2),
            }
            results.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    machine = {
        "system": platform.platform(),
        "path": libraries[1]("path").decode(),
        "columns": COLS,
    }
    RESULT.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
