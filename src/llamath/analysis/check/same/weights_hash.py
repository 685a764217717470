"""`hash_checkpoint`: one hash of a checkpoint's weights that does not depend on how a lossless
format stores them.

docs/reference/hash.md has the definition. Each weight is hashed in the first of the dtypes BF16,
F16, F32 and F64 that holds all its values exactly; −0 is hashed as 0, and every NaN as one.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

from ....checkpoint.canonical_reader import CanonicalWeight, RowChunk
from ....checkpoint.formats.dtypes import PLAIN_FLOATS
from ....checkpoint.formats.number_arrays import require_numpy
from ....render.report import Report
from ....render.tables import Code, Column, Part, Table
from ....utils.errors import safe
from ....utils.number_format import format_count
from .adapted_side import open_side
from .compared_side import ComparedSide, SideFacts

Array = Any
"""A numpy array."""
Progress = Callable[[int, int], None]
"""Called with the number of bytes hashed so far and in all."""
DEFINITION = "llamath-hash-1"
"""The first line of the hashed list; it changes with the definition."""
_DTYPES = ("BF16", "F16", "F32", "F64")
_MAX_WORKERS = 4


class WeightHash(NamedTuple):
    """The hash of one weight."""

    path: str
    dtype: str  # in which it was hashed
    shape: tuple[int, ...]
    sha256: str

    @property
    def line(self) -> str:
        """The line of the list that is hashed."""
        return f"{self.path} {self.dtype} {'x'.join(map(str, self.shape))} {self.sha256}\n"


class HashReport(Report):
    """The canonical hash of a checkpoint's weights."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "model=checkpoint.model",
        "hash",
        "definition",
        "checkpoint",
        "weights",
        "notes",
    )

    hash: str
    checkpoint: SideFacts
    weights: tuple[WeightHash, ...]
    notes: tuple[str, ...] = ()

    @property
    def definition(self) -> str:
        """The name of the definition."""
        return DEFINITION

    @property
    def summary(self) -> str:
        """The hash and the checkpoint, as sha256sum writes it."""
        return f"{self.hash}  {safe(self.checkpoint.path)}"

    @property
    def headline(self) -> str:
        """Nothing: the hash stands alone."""
        return ""

    @property
    def entries(self) -> Sequence[WeightHash]:
        """The hash of each weight."""
        return self.weights

    @property
    def stated_notes(self) -> tuple[str, ...]:
        """None, for the same reason."""
        return ()

    def tables(self) -> Iterable[Part]:
        """The hash of each weight; a terminal shows that of all alone."""
        yield Code(self.summary)
        yield Table(columns=_COLUMNS, rows=self.weights, most=0)


_COLUMNS = (Column("weight"), Column("dtype"), Column("shape", "shape"), Column("sha256"))


def hash_checkpoint(path: str, progress: Progress = lambda _done, _all: None) -> HashReport:
    """Hash the weights of the checkpoint at a path."""
    with open_side(path) as side:
        hashes = _hash_weights(side, progress)
        facts = side.facts
        others = side.others()
    embed, head = hashes.get("embed.weight"), hashes.get("head.weight")
    if embed is not None and head is not None and embed[1:] == head[1:]:
        del hashes["head.weight"]  # a tied head, stored twice
    found = sorted(hashes.values())
    text = f"{DEFINITION}\n" + "".join(x.line for x in found)
    notes = []
    if facts.adapter:
        notes.append(
            f"the hash is that of {safe(facts.base, 80)} with the {facts.adapter} "
            "merged in float64, without rounding"
        )
    # DeepSeek-V4's tables of experts have integers
    if packed := [x for x in facts.dtypes if x not in (*PLAIN_FLOATS, "I64")]:
        notes.append(
            f"the weights are quantized ({safe(', '.join(packed), 80)}): the hash is "
            "that of the dequantized values"
        )
    if others:
        first = safe(next(iter(others)), 80)
        notes.append(
            f"{format_count(len(others), 'tensor')} outside of the language model "
            f"({first}, …) are not part of the hash"
        )
    return HashReport(
        hash=hashlib.sha256(text.encode()).hexdigest(),
        checkpoint=facts,
        weights=tuple(found),
        notes=tuple(notes),
    )


def _hash_weights(side: ComparedSide, progress: Progress) -> dict[str, WeightHash]:
    """Hash all weights, several at a time."""
    total, done = sum(map(side.bytes_of, side.weights.values())), 0
    hashes: dict[str, WeightHash] = {}
    workers = min(_MAX_WORKERS, os.cpu_count() or 1)
    pending: deque[tuple[CanonicalWeight, Future[WeightHash]]] = deque()

    def finish() -> None:
        nonlocal done
        weight, future = pending.popleft()
        hashes[weight.path] = future.result()
        done += side.bytes_of(weight)
        progress(done, total)

    with ThreadPoolExecutor(workers) as pool:
        try:
            for weight in side.weights.values():
                if len(pending) > 2 * workers:
                    finish()
                pending.append((weight, pool.submit(_hash_weight, side, weight)))
            while pending:
                finish()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    progress(total, total)
    return hashes


def _hash_weight(side: ComparedSide, weight: CanonicalWeight) -> WeightHash:
    for dtype in _DTYPES:
        digest = hashlib.sha256()
        for first, last in weight.spans():
            data = encode_exactly(side.read(weight, first, last), dtype)
            if data is None:
                break
            digest.update(data)
        else:
            return WeightHash(weight.path, dtype, weight.shape, digest.hexdigest())
    raise AssertionError("F64 holds every value")


def encode_exactly(chunk: RowChunk, dtype: str) -> Array:
    """Return the values in a dtype, with one zero and one NaN; None if it cannot hold one of
    them.
    """
    np = require_numpy()
    if chunk.dtype == "BF16" and chunk.bits is not None:
        return _normalize_bf16(chunk.bits.reshape(-1)) if dtype == "BF16" else None
    values = chunk.values
    if values.dtype.itemsize == 8:
        if dtype == "F64":
            return _normalize(values.astype("<f8"), "<f8")
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = values.astype("f4")
        if not ((narrow == values) | np.isnan(values)).all():
            return None
        values = narrow
    if dtype == "F64":
        return _normalize(values.astype("<f8"), "<f8")
    if dtype == "F32":
        return _normalize(values, "<f4")
    if dtype == "F16":
        with np.errstate(over="ignore", invalid="ignore"):
            half = values.astype("<f2")
        return _normalize(half, "<f2") if ((half == values) | np.isnan(values)).all() else None
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    if (bits & 0xFFFF).any():
        with np.errstate(invalid="ignore"):
            is_nan = np.isnan(values)
        if ((bits & 0xFFFF != 0) & ~is_nan).any():
            return None
        bits = np.where(is_nan, np.uint32(0x7FC00000), bits)
    return _normalize_bf16((bits >> 16).astype("<u2"))


def _normalize_bf16(bits: Array) -> Array:
    """Return bits of BF16 with one zero and one NaN; reductions tell whether there is anything
    to change.
    """
    np = require_numpy()
    signed = bits.view("<i2")
    if not len(bits) or (
        signed.min() > -0x8000 and signed.max() <= 0x7F80 and bits.max() <= 0xFF80
    ):
        return np.ascontiguousarray(bits)
    bits = np.where(bits == 0x8000, 0, bits)
    return np.where((bits & 0x7FFF) > 0x7F80, 0x7FC0, bits).astype("<u2")


def _normalize(x: Array, dtype: str) -> Array:
    np = require_numpy()
    x = x + np.array(0, dtype)  # −0 + 0 is 0
    is_nan = np.isnan(x)
    if is_nan.any():
        quiet = {"<f2": 0x7E00, "<f4": 0x7FC00000, "<f8": 0x7FF8000000000000}[dtype]
        bits = x.view(f"<u{x.dtype.itemsize}")
        bits[is_nan] = quiet
    return np.ascontiguousarray(x, dtype)
