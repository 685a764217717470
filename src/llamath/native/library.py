"""The C interface of the native library: its structures and functions, by ctypes."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..utils.errors import LlamathError
from .native_operations import VERSION, View

F32, F16, I8, BF16 = 0, 1, 24, 30
TYPES = {
    "F32": F32,
    "F16": F16,
    "BF16": BF16,
    "Q4_0": 2,
    "Q8_0": 8,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "MXFP4": 39,
}
"""Types of matrices that kernels read as they are stored, by the manifest's names."""
EXACT, FAST = 1, 0
"""Precision of matrix products: float32 activations, or those that are fastest."""
OK, CANCELLED, NONFINITE, NO_MEMORY, REFUSED = range(5)
"""Results of a pass."""


class Matrix(Structure):
    """A stored matrix."""

    _fields_ = (
        ("data", c_void_p),
        ("scales", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("row_stride", c_int64),
        ("type", c_int32),
        ("layout", c_int32),
        ("bytes", c_int64),
        ("num_scales", c_int64),
    )


class MatrixProduct(Structure):
    """A product of vectors with a matrix."""

    _fields_ = (
        ("w", Matrix),
        ("out", c_void_p),
        ("out_stride", c_int64),
        ("bias", c_void_p),
        ("accumulate", c_int32),
        ("reserved", c_int32),
    )


class ProgramSpec(Structure):
    """A `Program`."""

    _fields_ = (
        *(
            (name, c_void_p)
            for name in (
                "ops",
                "products",
                "buffers",
                "weights",
                "caches",
                "state_sizes",
                "rope_pairs",
            )
        ),
        *(
            (f"num_{name}", c_int64)
            for name in ("ops", "products", "buffers", "weights", "caches", "states", "ropes")
        ),
        ("logits", c_int64 * len(View._fields)),
    )


class RopeAngles(Structure):
    """The frequencies of a rotary embedding."""

    _fields_ = (
        ("frequencies", c_void_p),
        ("half", c_int64),
        ("factor", c_float),
        ("sin_sign", c_float),
    )


class Segment(Structure):
    """Consecutive tokens of one sequence, or as many of each of several consecutive ones."""

    _fields_ = tuple((name, c_int64) for name in ("slot", "batch", "tokens", "past", "angles"))


class Pass(Structure):
    """What a pass reads."""

    _fields_ = (
        ("segments", c_void_p),
        ("ids", c_void_p),
        ("angles", c_void_p),
        *(
            (name, c_int64)
            for name in ("num_segments", "num_ids", "num_angles", "all_logits", "precision")
        ),
        ("layers", c_void_p),
        ("layers_size", c_int64),
    )


class SamplingSpec(Structure):
    """Sampling parameters."""

    _fields_ = (
        ("temperature", c_float),
        ("top_k", c_int32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
    )


class GroupComparison(Structure):
    """Groups of quantized weights beside numbers, and how they differ."""

    _fields_ = (
        ("levels", c_void_p),
        ("level_stride", c_int64),
        *((name, c_void_p) for name in ("scales", "minimums", "reciprocals", "numbers")),
        ("groups", c_int64),
        ("size", c_int64),
        ("is_signed", c_int32),
        ("type", c_int32),
        ("beyond", c_void_p),
        *((name, c_int64) for name in ("num_beyond", "num_differing", "first_differing")),
        *((name, c_double) for name in ("square_difference", "square_value", "square_number")),
        ("largest_difference", c_float),
        ("largest_share", c_float),
    )


_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "path": (c_char_p, ()),
    "num_paths": (c_int32, ()),
    "path_name": (c_char_p, (c_int32,)),
    "path_supported": (c_int32, (c_int32,)),
    "set_path": (c_int32, (c_char_p,)),
    "pool_create": (c_void_p, (c_int32,)),
    "pool_destroy": (None, (c_void_p,)),
    "pool_threads": (c_int32, (c_void_p,)),
    "pool_wait": (None, (c_void_p,)),
    "pool_cancel": (None, (c_void_p,)),
    "row_bytes": (c_int64, (c_int32, c_int64)),
    "matmul": (c_int32, (c_void_p, c_void_p, c_int32, c_void_p, c_int64, c_int64, c_int32)),
    "dequantize_row": (c_int32, (c_void_p, POINTER(Matrix), c_int64)),
    "compare_groups": (c_int32, (POINTER(GroupComparison),)),
    "first_nonfinite": (c_int64, (c_void_p, c_void_p, c_int64)),
    "sample": (c_int32, (c_void_p, c_void_p, c_int64, POINTER(SamplingSpec), c_void_p, c_double)),
    "top_logprobs": (c_double, (c_void_p, c_void_p, c_int64, c_int32, c_void_p, c_void_p)),
    "engine_create": (
        c_void_p,
        (c_void_p, POINTER(ProgramSpec), POINTER(c_int64), c_char_p, c_int64),
    ),
    "engine_destroy": (None, (c_void_p,)),
    "session_create": (c_void_p, (c_void_p, c_int64, c_int64, c_int64)),
    "session_destroy": (None, (c_void_p,)),
    "session_reserve": (c_int32, (c_void_p, c_int64, c_int64)),
    "session_set_start": (c_int32, (c_void_p, c_int64, c_int32)),
    "session_can_truncate": (c_int32, (c_void_p, c_int64, c_int64)),
    "session_bytes": (c_int64, (c_void_p,)),
    "session_run": (c_int32, (c_void_p, POINTER(Pass), c_void_p, c_char_p, c_int64)),
    "session_logits": (c_void_p, (c_void_p, c_int64)),
    "session_buffer": (c_void_p, (c_void_p, c_int64, POINTER(c_int64))),
    "session_attention": (c_int32, (c_void_p, c_int64, c_void_p, c_int64)),
    "interrupts": (c_int32, (c_void_p,)),
    "quantize_int8": (c_int32, (c_void_p, c_void_p, POINTER(Matrix))),
}
"""Functions by name without the prefix `llamath_`: the type of the result and those of the
arguments."""


_INSTALL = "in the folder of llamath's sources, pip install ./native"


class NoLibrary(LlamathError):
    """The native library is missing and cannot be built."""


class Library:
    """The functions of the loaded library, as attributes without their prefix."""

    def __init__(self, path: Path) -> None:
        self.file = path
        library = ctypes.CDLL(str(path))
        library.llamath_version.restype = c_int32
        if library.llamath_version() != VERSION:
            raise NoLibrary(
                f"the native engine {path} belongs to another version of llamath", hint=_INSTALL
            )
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"llamath_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(name)


@lru_cache(maxsize=1)
def load_library() -> Library:
    """Return the library: that of the package `llamath_native`, or in a checkout of the sources one
    that is built at first use.
    """
    with _find_or_build() as path:
        try:
            return Library(path)
        except (OSError, AttributeError) as error:
            raise NoLibrary(f"the native engine cannot be loaded: {error}", hint=_INSTALL) from None


def find_library() -> Library | None:
    """Return the library if it has been compiled; None where `load_library` would compile it or
    fail.
    """
    try:
        return load_library() if _find() is not None else None
    except NoLibrary:
        return None


def _find() -> Path | None:
    """Return the library of the package, or that of a checkout: for all instruction sets, or else
    for this processor.

    A library in the cache is executed, so it must belong to this user or to root, like each folder
    on the way to it, and nobody else can write there: between this check and the loading, only they
    could replace it.
    """
    try:
        from llamath_native.build import FOLDER, LIBRARY, own_paths
    except ImportError:
        raise NoLibrary("the native engine is not installed", hint=_INSTALL) from None
    if (path := FOLDER / LIBRARY).exists():
        return path
    from .library_cache import find_cached

    return find_cached()[0] or find_cached(own_paths())[0]


@contextmanager
def _find_or_build() -> Iterator[Path]:
    """Yield the library to load. Where others could change the cache, it is compiled for this
    process, in a temporary folder.
    """
    if (found := _find()) is not None:
        yield found
        return
    from llamath_native.build import LIBRARY, CompilerError, build, find_compiler, own_paths

    from .library_cache import build_cached, find_cached, find_foreign_temporary

    if find_compiler() is None or os.environ.get("LLAMATH_NO_BUILD"):
        raise NoLibrary(
            "the native engine is not compiled, as no C++ compiler was found",
            hint="install g++ or clang++",
        )
    paths, foreign = own_paths(), find_foreign_temporary()
    if foreign:
        raise NoLibrary(
            f"the native engine is not compiled where others could change it: {foreign}",
            hint="set TMPDIR to your own folder",
        )
    with TemporaryDirectory(prefix="llamath-") as temporary:
        try:
            if problem := find_cached(paths)[1]:
                message = (
                    "the native engine is compiled for this command only, in a private "
                    f"folder, as {problem}"
                )
                print(f"note: {message}", file=sys.stderr)
                path = build(Path(temporary) / LIBRARY, paths=paths)
            else:
                path = build_cached(paths)
        except (CompilerError, OSError) as error:
            raise NoLibrary(
                f"the native engine cannot be compiled: {error}", hint="set CXX to another compiler"
            ) from None
        yield path
