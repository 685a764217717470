"""`listing`: what is in a checkpoint, by its headers alone: folded rows, totals by dtype, file and codec, and what is stored twice.

`elements` are stored numbers as the headers count them; `parameters` are what they stand for: a packed value counts as the values in it,
scales and the like as none, and numbers that several tensors share once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from operator import add, sub
from typing import TYPE_CHECKING, Any, NamedTuple

from ...checkpoint.formats.dtypes import PLAIN
from ...checkpoint.formats.manifest import Manifest, Tensor, TensorColumns
from ...checkpoint.open import missing_shards_note
from ...core.record_type import Record
from ..count.name_folding import MAX_NAME_PARTS, NameGroup, fold_groups
from .shared_storage import SharedStorage, find_shared_storage

if TYPE_CHECKING:
    from fractions import Fraction

    from ...checkpoint.quantization.packed_tensors import Packing

PLAIN_DTYPES = frozenset(("F64", "F32", "F16", "BF16", "BOOL", "C64"))
"""Dtypes that no packing begins with."""
MAX_METADATA_CHARS = 1000
"""So many characters of a metadata value are kept."""
MAX_SORTED_PARTS = 32
"""Parts of a name by which it is put in order."""
INTEGER_DTYPES, MIN_PACKED_ELEMENTS = frozenset(("U8", "I8", "U16", "I16", "U32", "I32")), 4096
"""A matrix of so many integers, at the least, is likely to be a packed weight."""


class TensorRow(NamedTuple):
    """Tensors whose names make one pattern, and that agree in everything else."""

    parts: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    copies: int
    elements: int  # of one of them, as the rest
    bytes: int
    parameters: int
    kind: str = ""  # of the codec, if one is at work
    role: str = ""
    known: bool = True
    tied: bool = False  # its numbers are another tensor's, and are counted there

    @property
    def pattern(self) -> str:
        """The names as one pattern, `model.layers.{0..31}.mlp.up_proj.weight`."""
        return ".".join(self.parts)


class TensorTotals(NamedTuple):
    """Some of the tensors, summed; bytes that tensors share count once."""

    tensors: int = 0
    elements: int = 0
    parameters: int = 0
    bytes: int = 0

    def __add__(self, other: tuple[Any, ...]) -> TensorTotals:
        return TensorTotals(*map(add, self, other))


class FileTotal(NamedTuple):
    """One file: its name, its size, what of it is no tensor, and what is."""

    name: str
    size: int
    header: int
    tensors: int
    bytes: int


class Listing(Record):
    """Everything `llamath ls` shows."""

    manifest: Manifest
    rows: tuple[TensorRow, ...]
    packings: Mapping[str, Packing]  # by stored name
    tied: frozenset[int]  # places of the tensors that an earlier one is tied to
    total: TensorTotals
    dtypes: Mapping[str, TensorTotals]
    files: tuple[FileTotal, ...]
    codecs: Mapping[str, TensorTotals]  # by kind; scales and the like are among their tensors and bytes
    companions: int = 0  # of the elements, what is scales and the like
    shared: tuple[SharedStorage, ...] = ()
    metadata: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()

    def unfolded(self) -> Iterator[TensorRow]:
        """A row for every tensor, in file order."""
        for i, x in enumerate(self.manifest.tensors):
            yield _row(tuple(x.name.split(".", MAX_NAME_PARTS)), 1, x, self.packings.get(x.name), i in self.tied)

    @property
    def known(self) -> bool:
        """Whether the headers tell how many values every packed number holds; else the parameters are as many at the least."""
        return all(x.known for x in self.rows)

    @property
    def bits_per_weight(self) -> Fraction | None:
        """Bits per weight, all that is stored taken together, if both are known."""
        from fractions import Fraction

        return Fraction(8 * self.total.bytes, self.total.parameters) if self.total.parameters and self.known else None


def list_tensors(manifest: Manifest, quantization: Mapping[str, Any] | None = None) -> Listing:
    """List a checkpoint; `quantization` is what its configuration says of the way it is packed."""
    columns = manifest.columns
    codes = find_packings(manifest, quantization)
    sharing, again = find_shared_storage(manifest.tensors) if manifest.format == "torch" else ((), frozenset[int]())
    rows = tuple(_rows(manifest, columns, codes, again))
    coded = [x for x in rows if x.kind]
    return Listing(
        manifest=manifest,
        rows=rows,
        packings=codes,
        tied=again,
        total=sum(map(_total, rows), TensorTotals()),
        dtypes=_totals(rows, [x.dtype for x in rows]),
        files=tuple(_files(manifest, columns, again)),
        codecs=_totals(coded, [x.kind for x in coded]),
        companions=sum(x.elements * x.copies for x in rows if x.role not in ("", "values")),
        shared=sharing,
        metadata=dict(_metadata(manifest.metadata)),
        notes=tuple(_notes(manifest, columns, rows)),
    )


def find_packings(manifest: Manifest, quantization: Mapping[str, Any] | None = None) -> Mapping[str, Packing]:
    """The packings by name, if any dtype speaks for one: else the module that knows them is not even loaded."""
    if PLAIN_DTYPES.issuperset(manifest.columns.dtype):
        return {}
    from ...checkpoint.quantization.schemes import find_packings

    return find_packings(manifest.tensors, quantization)


def stored_elements(x: Tensor) -> int:
    """How many numbers a plain tensor has: not more than its bytes hold, where strides let a shape promise more."""
    return x.elements if x.strides is None else min(x.elements, x.bytes // PLAIN[x.dtype].bytes)


def _rows(manifest: Manifest, columns: TensorColumns, packed: Mapping[str, Packing], again: frozenset[int]) -> Iterator[TensorRow]:
    """The tensors folded, those of one branch together."""
    tensors, names = manifest.tensors, columns.name
    keys: list[Sequence[Hashable]] = [columns.dtype, columns.shape]
    if manifest.format == "torch":
        keys += [list(map(sub, columns.end, columns.start)), columns.strides, list(map(again.__contains__, range(len(names))))]
    if packed:
        keys.append([x and (x.kind, x.role, x.elements, x.known) for x in map(packed.get, names)])
    for x in _branches(fold_groups(names, *keys, distinct=manifest.num_distinct_names)):
        yield _row(x.parts, x.copies, tensors[x.first], packed.get(names[x.first]), x.first in again)


def _row(parts: tuple[str, ...], copies: int, x: Tensor, code: Packing | None, tied: bool) -> TensorRow:
    kind, role, parameters, known = (code.kind, code.role, code.elements, code.known) if code else ("", "", stored_elements(x), True)
    counts = (x.elements, 0, 0) if tied else (x.elements, x.bytes, parameters)
    return TensorRow(parts, x.dtype, x.shape, copies, *counts, kind, role, known, tied)


def _branches(found: list[NameGroup]) -> list[NameGroup]:
    """Groups in the order of a tree: what begins alike stands together, where the first of it appeared."""
    places: dict[tuple[str, ...], int] = {}
    keys: dict[int, list[int]] = {}
    for x in found:
        words = tuple("" if part.isdigit() or part.startswith("{") else part for part in x.parts)
        keys[x.first] = [places.setdefault(words[: i + 1], len(places)) for i in range(min(len(words), MAX_SORTED_PARTS))]
    return sorted(found, key=lambda x: keys[x.first])


def _total(row: TensorRow) -> TensorTotals:
    return TensorTotals(row.copies, row.copies * row.elements, row.copies * row.parameters, row.copies * row.bytes)


def _totals(rows: Sequence[TensorRow], keys: Sequence[str]) -> dict[str, TensorTotals]:
    found: dict[str, TensorTotals] = {}
    for key, row in zip(keys, rows, strict=True):
        found[key] = found.get(key, TensorTotals()) + _total(row)
    return found


def _files(manifest: Manifest, columns: TensorColumns, again: frozenset[int]) -> Iterator[FileTotal]:
    tensors, sizes = Counter(columns.file), [0] * len(manifest.files)
    at = 0
    for i, n in tensors.items():  # the tensors of a file stand together
        sizes[i] = sum(columns.end[at : at + n]) - sum(columns.start[at : at + n])
        at += n
    for x in (manifest.tensors[i] for i in again):
        sizes[x.file] -= x.bytes
    for i, file in enumerate(manifest.files):
        yield FileTotal(file.name, file.size, file.header_bytes, tensors[i], sizes[i])


def _metadata(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys and the beginnings of their values."""
    for key, value in found.items():
        if isinstance(value, Mapping):
            yield from _metadata(value)
        elif isinstance(value, tuple) and hasattr(value, "head"):
            yield key, f"{getattr(value, 'type', '')} × {getattr(value, 'count', 0):,}"
        elif isinstance(value, int) and value.bit_length() > 128:
            yield key, f"an integer of {value.bit_length():,} bits"
        else:
            text = str(value)
            yield key, text if len(text) <= MAX_METADATA_CHARS else f"{text[:MAX_METADATA_CHARS]}… ({len(text):,} characters)"


def _notes(manifest: Manifest, columns: TensorColumns, rows: Sequence[TensorRow]) -> Iterator[str]:
    if note := missing_shards_note(manifest):
        yield note
    if twice := len(columns.name) - manifest.num_distinct_names:
        yield f"{twice:,} tensors have the name of another, and are counted with it"
    for kind in dict.fromkeys(x.kind for x in rows if not x.known):
        n = sum(x.copies for x in rows if x.kind == kind and not x.known)
        yield f"{n:,} weights are packed as {kind} in a way that the headers leave open: stored numbers are counted, not what is in them"
    plain = [x for x in rows if not x.kind and x.dtype in INTEGER_DTYPES and len(x.shape) > 1 and x.elements >= MIN_PACKED_ELEMENTS]
    if plain:
        n = sum(x.copies for x in plain)
        yield f"{n:,} matrices of integers ({plain[0].pattern}, …) belong to no packing known here: stored numbers are counted"
