"""The C functions of `native/kernels/kernels.h` for tests: builds the library once in a session, and calls it with numpy arrays."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from llamath.native.library_cache import build_cached, find_cached

F32, F16, Q4_0, Q8_0, Q4_K, Q5_K, Q6_K, I8, BF16, MXFP4 = 0, 1, 2, 8, 12, 13, 14, 24, 30, 39
FAST, EXACT = 0, 1

I32, I64, FLOAT, DOUBLE, PTR = c.c_int32, c.c_int64, c.c_float, c.c_double, c.c_void_p


def struct(name: str, **fields: Any) -> type[c.Structure]:
    return type(name, (c.Structure,), {"_fields_": list(fields.items())})


Matrix = struct(
    "Matrix",
    data=PTR,
    scales=PTR,
    rows=I64,
    cols=I64,
    row_stride=I64,
    type=I32,
    layout=I32,
    bytes=I64,
    num_scales=I64,
)
Product = struct(
    "Product", w=Matrix, out=PTR, out_stride=I64, bias=PTR, accumulate=I32, reserved=I32
)
ExpertProduct = struct("ExpertProduct", experts=PTR, out=PTR, biases=PTR)
Attention = struct(
    "Attention",
    **dict.fromkeys(("out", "q", "k", "v"), PTR),
    **dict.fromkeys(
        "out_batch out_token q_batch q_token k_batch k_token k_head v_batch v_token v_head".split(),
        I64,
    ),
    **dict.fromkeys("type batch tokens heads kv_heads k_dim v_dim past".split(), I32),
    start=PTR,
    **dict.fromkeys("ring first_slot causal window chunk".split(), I32),
    scale=FLOAT,
    softcap=FLOAT,
    sinks=PTR,
    slopes=PTR,
    selected=PTR,
    num_selected=I32,
    distance_bias=PTR,
    num_distances=I32,
)
DeltaRule = struct(
    "DeltaRule",
    **dict.fromkeys("out q k v g beta state".split(), PTR),
    **dict.fromkeys("out_token q_token k_token v_token g_token beta_token".split(), I64),
    **dict.fromkeys("batch tokens heads groups n m decay_per_row".split(), I32),
    pad=PTR,
)
StateScan = struct(
    "StateScan",
    **dict.fromkeys("out x b c dt a_log skip state".split(), PTR),
    **dict.fromkeys("out_token x_token b_token c_token dt_token".split(), I64),
    **dict.fromkeys("batch tokens heads groups m n".split(), I32),
    pad=PTR,
)
Route = struct(
    "Route",
    **dict.fromkeys("num_experts top_k scoring choice_by_logits normalize".split(), I32),
    correction=PTR,
    **dict.fromkeys("groups kept_groups best_of_group".split(), I32),
    other=FLOAT,
    scaling=FLOAT,
)
Sampling = struct(
    "Sampling", temperature=FLOAT, top_k=I32, top_p=FLOAT, min_p=FLOAT, repetition_penalty=FLOAT
)

_RESULTS = {
    "path": c.c_char_p,
    "path_name": c.c_char_p,
    "pool_create": PTR,
    "read": c.c_uint64,
    "uniform": DOUBLE,
    "top_logprobs": DOUBLE,
    **dict.fromkeys(
        ("block_size", "block_bytes", "row_bytes", "argmax", "first_nonfinite", "pool_scratch"), I64
    ),
}


def build_library() -> Path:
    """Return the library of these sources; it is compiled unless an earlier session did so."""
    return find_cached()[0] or build_cached()


class Library:
    """The library with a pool of threads. Floats are passed as they are declared: `calls` converts integers, floats, arrays and structs."""

    def __init__(self, path: Path, threads: int = 2) -> None:
        self.dll = c.CDLL(str(path))
        self.pool = self("pool_create", threads)

    def __call__(self, name: str, *arguments: Any) -> Any:
        function = getattr(self.dll, f"llamath_{name}")
        function.restype = _RESULTS.get(name, I32)
        return function(*map(_argument, arguments))

    def pooled(self, name: str, *arguments: Any) -> Any:
        """Call a function whose first argument is the pool; when it returns, no thread reads its arrays."""
        result = self(name, PTR(self.pool), *arguments)
        self("pool_wait", PTR(self.pool))
        return result

    @contextmanager
    def using(self, path: str) -> Iterator[None]:
        """Compute by this path."""
        before = self("path").decode()
        assert self("set_path", path.encode()) == 0
        try:
            yield
        finally:
            self("set_path", before.encode())

    def paths(self) -> list[str]:
        """The names of all paths that this machine supports."""
        return [
            self("path_name", i).decode()
            for i in range(self("num_paths"))
            if self("path_supported", i)
        ]

    def close(self) -> None:
        self("pool_destroy", PTR(self.pool))


def _argument(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return PTR(x.ctypes.data)
    if isinstance(x, float):
        return FLOAT(x)
    if isinstance(x, int):
        return I64(x)
    return c.byref(x) if isinstance(x, (c.Structure, c.Array)) else x


def pointer(x: np.ndarray | None) -> int | None:
    return None if x is None else x.ctypes.data


def default_threads() -> int:
    return max(2, min(4, os.cpu_count() or 1))
