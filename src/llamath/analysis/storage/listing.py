"""`list_tensors`: the content of a checkpoint by its headers: folded rows, totals by dtype, file
and codec, and shared storage.

`elements` are stored values as the headers count them; `parameters` are what they represent: a
packed value counts as the values in it, scales and the like count as none, and values that several
tensors share count once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from math import prod
from operator import add, sub
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ...checkpoint.formats.dtypes import PLAIN
from ...checkpoint.formats.manifest import Manifest, Tensor, TensorColumns
from ...checkpoint.naming.training_names import describe_wrappers, training_state
from ...checkpoint.open import file_notes, packings_of
from ...render.report import Report
from ...render.tables import Part
from ...utils.number_format import format_count
from ...utils.record_type import Record, encode_json
from .listing_tables import STATE, listing_tables
from .name_folding import MAX_NAME_PARTS, NameGroup, fold_groups

if TYPE_CHECKING:
    from fractions import Fraction

    from ...checkpoint.open import OpenedCheckpoint
    from ...checkpoint.quantization.packed_tensors import Packing

_MAX_METADATA_CHARS = 1000
"""A longer metadata value is cut."""
_MAX_SORTED_PARTS = 32
"""Names are sorted by this many parts."""
_INTEGER_DTYPES, _MIN_PACKED_ELEMENTS = frozenset(("U8", "I8", "U16", "I16", "U32", "I32")), 4096
"""A matrix of at least this many integers is likely to be a packed weight."""


class TensorRow(NamedTuple):
    """Tensors whose names form one pattern, and that agree in everything else."""

    parts: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    copies: int
    elements: int  # of one of them, as are bytes and parameters
    bytes: int
    parameters: int
    kind: str = ""  # of the codec, if it is packed
    role: str = ""
    known: bool = True
    tied: bool = False  # its values are another tensor's, and are counted there

    @property
    def pattern(self) -> str:
        """The names as one pattern, `model.layers.{0..31}.mlp.up_proj.weight`."""
        return ".".join(self.parts)


class TensorTotals(NamedTuple):
    """Sums over tensors; bytes that tensors share count once."""

    tensors: int = 0
    elements: int = 0
    parameters: int = 0
    bytes: int = 0

    def __add__(self, other: tuple[Any, ...]) -> TensorTotals:
        return TensorTotals(*map(add, self, other))


class _FileTotal(Record):
    """One file: its size, and the bytes of its header and of its tensors."""

    path: str
    size: int
    header: int
    tensors: int
    bytes: int

    json_fields: ClassVar[tuple[str, ...]] = ("name", "path", "size", "header", "tensors", "bytes")

    @property
    def name(self) -> str:
        """The last part of the path or address."""
        return self.path.rpartition("/")[2] or self.path


class _SharedStorage(NamedTuple):
    """Tensors of a torch checkpoint that share storage, in file order."""

    names: tuple[str, ...]
    bytes: int  # from the first used byte to the last
    same: bool  # whether they are equal (a tied head); else they are views of the same bytes


class _TensorEntries(Record):
    """The tensors of a listing as JSON; of up to 45,000 tensors, so what they have in common is
    encoded once.
    """

    listing: Listing

    @property
    def columns(self) -> dict[str, Iterable[Any]]:
        """The values of all tensors by key."""
        columns = self.listing.manifest.columns
        files = [x.name for x in self.listing.files]
        elements = {shape: prod(shape) for shape in set(columns.shape)}
        return {
            "name": columns.name,
            "dtype": columns.dtype,
            "shape": columns.shape,
            "elements": map(elements.__getitem__, columns.shape),
            "bytes": map(sub, columns.end, columns.start),
            "file": map(files.__getitem__, columns.file),
            "offset": columns.start,
        }

    def to_json(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return an object for each tensor."""
        columns, packings = self.columns, self.listing.packings
        entries = [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
        if packings:
            for entry in entries:
                if (packing := packings.get(entry["name"])) is not None:
                    entry |= _packing_json(packing)
        return entries

    def json_text(self) -> str:
        """Return `to_json` as text, column by column, in a third of the time of `json.dumps`."""
        columns, packings = self.columns, self.listing.packings
        template = ", ".join(f"{json.dumps(key)}: %s" for key in columns)
        texts: Iterator[str] = map(
            template.__mod__, zip(*map(_encode_column, columns.values()), strict=True)
        )
        if packings:
            found = map(packings.get, self.listing.manifest.columns.name)
            texts = (
                f"{text}, {json.dumps(_packing_json(x))[1:-1]}" if x else text
                for text, x in zip(texts, found, strict=True)
            )
        inside = "}, {".join(texts)
        return f"[{{{inside}}}]" if inside else "[]"


def _encode_column(values: Iterable[Any]) -> Iterator[str]:
    """Return the JSON of each value of a column, whose values have one type."""
    values = list(values)
    distinct = set(values)
    if 4 * len(distinct) < len(values):
        return map({x: json.dumps(x) for x in distinct}.__getitem__, values)
    first = next(iter(values), None)
    return map(
        str
        if isinstance(first, int)
        else encode_basestring_ascii
        if isinstance(first, str)
        else json.dumps,
        values,
    )


class Listing(Report):
    """The tensors of a checkpoint."""

    manifest: Manifest
    folded: tuple[TensorRow, ...]
    packings: Mapping[str, Packing]  # by stored name
    tied: frozenset[int]  # indices of the tensors that are tied to an earlier one
    state: frozenset[int] = frozenset()  # indices of the tensors that are state of a training run
    total: TensorTotals
    dtypes: Mapping[str, TensorTotals]
    files: tuple[_FileTotal, ...]
    codecs: Mapping[str, TensorTotals]  # by kind, scales and the like included
    companions: int = 0  # elements of scales and the like
    shared: tuple[_SharedStorage, ...] = ()
    metadata: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    path: str = ""  # as it was given
    remarks: tuple[str, ...] = ()  # on how the checkpoint was found and read

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=name",
            "format=manifest.format",
            "files",
            "tensors",
            "elements=total.elements",
            "parameters=total.parameters",
        ),
        *(
            "bytes=total.bytes",
            "bits_per_weight",
            "known",
            "companions",
            "dtypes",
            "codecs",
            "shared",
            "metadata",
            "notes",
            "training_state",
        ),
    )

    @property
    def name(self) -> str:
        """The name of the file, or of the folder of several."""
        path = self.files[0].path if self.files else ""
        return (
            self.files[0].name
            if len(self.files) == 1
            else path.rpartition("/")[0].rpartition("/")[2]
        )

    @property
    def tensors(self) -> _TensorEntries:
        """Every tensor with its file and offset, in file order."""
        return _TensorEntries(listing=self)

    def json_text(self) -> str:
        """Return `to_json` as text."""
        values = {
            key: x.json_text() if isinstance(x, _TensorEntries) else json.dumps(encode_json(x))
            for key, x in self.json_items()
        }
        return f"{{{', '.join(f'{json.dumps(key)}: {text}' for key, text in values.items())}}}"

    @property
    def summary(self) -> str:
        """The format and the totals."""
        files, tensors = (
            format_count(len(self.files), "file"),
            format_count(self.total.tensors, "tensor"),
        )
        at_least = "" if self.known else "at least "
        sizes = (
            f"{at_least}{format_count(self.total.parameters, 'parameter')}, "
            f"{self.total.bytes:,} bytes"
        )
        return f"{self.manifest.format}, {files}, {tensors}, {sizes}"

    @property
    def headline(self) -> str:
        """The format, the files and the tensors."""
        files = format_count(len(self.files), "file")
        tensors = format_count(self.total.tensors, "tensor")
        return f"{self.path or self.name}: {self.manifest.format}, {files}, {tensors}"

    @property
    def entries(self) -> Sequence[TensorRow]:
        """The tensors, equal ones of several layers together."""
        return self.folded

    def tables(self) -> Iterable[Part]:
        """The tensors, the totals by dtype, codec and file, and the metadata."""
        return listing_tables(self)

    def unfolded(self) -> Iterator[TensorRow]:
        """Yield a row for every tensor, in file order."""
        for i, x in enumerate(self.manifest.tensors):
            yield _row(
                tuple(x.name.split(".", MAX_NAME_PARTS)),
                1,
                x,
                self.packings.get(x.name),
                i in self.tied,
                i in self.state,
            )

    @property
    def known(self) -> bool:
        """Return whether the headers determine how many values each packed element holds; else
        there are more parameters than counted.
        """
        return all(x.known for x in self.folded)

    @property
    def bits_per_weight(self) -> Fraction | None:
        """Bits per weight over everything that is stored, if both are known."""
        from fractions import Fraction

        stored = self.total.bytes - self.training_state.bytes
        return (
            Fraction(8 * stored, self.total.parameters)
            if self.total.parameters and self.known
            else None
        )

    @property
    def weight_dtypes(self) -> Mapping[str, TensorTotals]:
        """The totals of the weights by dtype, without the state of a training run."""
        rows = [x for x in self.folded if x.role != STATE]
        return _totals(rows, [x.dtype for x in rows])

    @property
    def training_state(self) -> TensorTotals:
        """The totals of the tensors that are state of an optimizer or a training run; they have
        no parameters.
        """
        return sum((_total(x) for x in self.folded if x.role == STATE), TensorTotals())


def list_tensors(
    manifest: Manifest,
    quantization: Mapping[str, Any] | None = None,
    packings: Mapping[str, Packing] | None = None,
) -> Listing:
    """List the tensors of a checkpoint; `quantization` is its config's section on packed
    weights, `packings` what is known of them.
    """
    columns = manifest.columns
    packings = packings_of(manifest, quantization) if packings is None else packings
    sharing, tied = (
        _find_shared_storage(manifest.tensors)
        if manifest.format == "torch"
        else ((), frozenset[int]())
    )
    state = training_state(manifest)
    rows = tuple(_rows(manifest, columns, packings, tied, state))
    packed = [x for x in rows if x.kind]
    return Listing(
        manifest=manifest,
        folded=rows,
        packings=packings,
        tied=tied,
        state=state,
        total=sum(map(_total, rows), TensorTotals()),
        dtypes=_totals(rows, [x.dtype for x in rows]),
        files=tuple(_files(manifest, columns, tied)),
        codecs=_totals(packed, [x.kind for x in packed]),
        companions=sum(x.elements * x.copies for x in rows if x.role not in ("", "values", STATE)),
        shared=sharing,
        metadata=dict(_metadata(manifest.metadata)),
        notes=tuple(_notes(manifest, columns, rows)),
    )


def _stored_elements(x: Tensor) -> int:
    """Return the number of elements of a plain tensor: with strides, no more than its bytes
    hold.
    """
    return x.elements if x.strides is None else min(x.elements, x.bytes // PLAIN[x.dtype].bytes)


def _rows(
    manifest: Manifest,
    columns: TensorColumns,
    packings: Mapping[str, Packing],
    tied: frozenset[int],
    state: frozenset[int],
) -> Iterator[TensorRow]:
    """Yield the folded tensors, those of one branch together."""
    tensors, names = manifest.tensors, columns.name
    keys: list[Sequence[Hashable]] = [columns.dtype, columns.shape]
    if manifest.format == "torch":
        keys += [
            list(map(sub, columns.end, columns.start)),
            columns.strides,
            *(list(map(x.__contains__, range(len(names)))) for x in (tied, state)),
        ]
    if packings:
        keys.append([x and (x.kind, x.role, x.elements, x.known) for x in map(packings.get, names)])
    for x in _branches(fold_groups(names, *keys, distinct=manifest.num_distinct_names)):
        yield _row(
            x.parts,
            x.copies,
            tensors[x.first],
            packings.get(names[x.first]),
            x.first in tied,
            x.first in state,
        )


def _row(
    parts: tuple[str, ...], copies: int, x: Tensor, packing: Packing | None, tied: bool, state: bool
) -> TensorRow:
    if state:
        return TensorRow(
            parts,
            x.dtype,
            x.shape,
            copies,
            x.elements,
            0 if tied else x.bytes,
            0,
            role=STATE,
            tied=tied,
        )
    kind, role, parameters, known = (
        (packing.kind, packing.role, packing.elements, packing.known)
        if packing
        else ("", "", _stored_elements(x), True)
    )
    counts = (x.elements, 0, 0) if tied else (x.elements, x.bytes, parameters)
    return TensorRow(parts, x.dtype, x.shape, copies, *counts, kind, role, known, tied)


def _branches(groups: list[NameGroup]) -> list[NameGroup]:
    """Return groups in tree order: names with a common beginning together, in order of first
    appearance.
    """
    positions: dict[tuple[str, ...], int] = {}
    keys: dict[int, list[int]] = {}
    for x in groups:
        words = tuple("" if part.isdigit() or part.startswith("{") else part for part in x.parts)
        keys[x.first] = [
            positions.setdefault(words[: i + 1], len(positions))
            for i in range(min(len(words), _MAX_SORTED_PARTS))
        ]
    return sorted(groups, key=lambda x: keys[x.first])


def _total(row: TensorRow) -> TensorTotals:
    return TensorTotals(
        row.copies, row.copies * row.elements, row.copies * row.parameters, row.copies * row.bytes
    )


def _totals(rows: Sequence[TensorRow], keys: Sequence[str]) -> dict[str, TensorTotals]:
    totals: dict[str, TensorTotals] = {}
    for key, row in zip(keys, rows, strict=True):
        totals[key] = totals.get(key, TensorTotals()) + _total(row)
    return totals


def _files(
    manifest: Manifest, columns: TensorColumns, tied: frozenset[int]
) -> Iterator[_FileTotal]:
    tensors, sizes = Counter(columns.file), [0] * len(manifest.files)
    start = 0
    for i, n in tensors.items():  # the tensors of a file are contiguous
        sizes[i] = sum(columns.end[start : start + n]) - sum(columns.start[start : start + n])
        start += n
    for x in (manifest.tensors[i] for i in tied):
        sizes[x.file] -= x.bytes
    for i, file in enumerate(manifest.files):
        yield _FileTotal(
            path=file.name,
            size=file.size,
            header=file.header_bytes,
            tensors=tensors[i],
            bytes=sizes[i],
        )


def _metadata(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield keys and the beginnings of their values."""
    for key, value in metadata.items():
        if isinstance(value, Mapping):
            yield from _metadata(value)
        elif isinstance(value, tuple) and hasattr(value, "head"):
            yield key, f"{getattr(value, 'type', '')} × {getattr(value, 'count', 0):,}"
        elif isinstance(value, int) and value.bit_length() > 128:
            yield key, f"an integer of {value.bit_length():,} bits"
        else:
            text = str(value)
            yield (
                key,
                text
                if len(text) <= _MAX_METADATA_CHARS
                else f"{text[:_MAX_METADATA_CHARS]}… ({len(text):,} characters)",
            )


def _notes(manifest: Manifest, columns: TensorColumns, rows: Sequence[TensorRow]) -> Iterator[str]:
    yield from file_notes(manifest)
    if note := describe_wrappers(columns.name):
        yield note
    if duplicates := len(columns.name) - manifest.num_distinct_names:
        yield f"{format_count(duplicates, 'tensor')} with the name of another: all are counted"
    for kind in dict.fromkeys(x.kind for x in rows if not x.known):
        n = sum(x.copies for x in rows if x.kind == kind and not x.known)
        weights = f"{format_count(n, 'weight')} packed as {kind}"
        yield (
            f"{weights}: the headers leave open how many values are in each element, so "
            "elements are counted"
        )
    unpacked = [
        x
        for x in rows
        if not x.kind
        and not x.role
        and x.dtype in _INTEGER_DTYPES
        and len(x.shape) > 1
        and x.elements >= _MIN_PACKED_ELEMENTS
    ]
    if unpacked:
        n = sum(x.copies for x in unpacked)
        yield (
            f"{format_count(n, 'integer matrix', 'integer matrices')} of unknown packing "
            f"({unpacked[0].pattern}, …): elements are counted"
        )


def _find_shared_storage(
    tensors: Sequence[Tensor],
) -> tuple[tuple[_SharedStorage, ...], frozenset[int]]:
    """Return the storages with more than one tensor, and the indices of the tensors that are
    equal to an earlier one.
    """
    storages: dict[tuple[int, str], list[int]] = {}
    for i, x in enumerate(tensors):
        if x.storage:
            storages.setdefault((x.file, x.storage), []).append(i)
    shared: list[_SharedStorage] = []
    tied: list[int] = []
    for indices in storages.values():
        if len(indices) > 1:
            ties = list(_tied_to_earlier(tensors, indices))
            first, last = (
                min(tensors[i].start for i in indices),
                max(tensors[i].end for i in indices),
            )
            shared.append(
                _SharedStorage(
                    tuple(tensors[i].name for i in indices),
                    last - first,
                    len(ties) == len(indices) - 1,
                )
            )
            tied += ties
    return tuple(shared), frozenset(tied)


def _tied_to_earlier(tensors: Sequence[Tensor], indices: Sequence[int]) -> Iterator[int]:
    """Yield those with the same dtype, bytes and number of elements as an earlier one: the same
    tensor, possibly transposed or reshaped.
    """
    seen: set[tuple[int, int, str, int]] = set()
    for i in indices:
        key = (tensors[i].start, tensors[i].end, tensors[i].dtype, tensors[i].elements)
        if key in seen:
            yield i
        seen.add(key)


def _packing_json(x: Packing) -> dict[str, Any]:
    return {
        "codec": x.kind,
        "role": x.role,
        "weight": x.weight,
        "parameters": x.elements,
        "logical_shape": None if x.shape is None else list(x.shape),
    }


def list_checkpoint(path: str) -> Listing:
    """Return the tensors of the checkpoint at a path or address."""
    from ...checkpoint.adapters import adapter_note
    from ...checkpoint.folders.open_any import open_any
    from ...utils.errors import ConfigError, RemoteError

    opened, kind_notes = open_any(path)
    packing, remarks = None, [opened.commit_note] if opened.commit_note else []
    try:
        packing = opened.packing_config
    except (ConfigError, RemoteError) as error:
        remarks.append(f"note: {error}; quantization is detected from the headers alone")
    listing = list_tensors(opened.manifest, packing)
    notes = tuple(
        x
        for x in (
            *kind_notes,
            adapter_note(opened),
            *listing.notes,
            *_recipe_notes(opened, listing),
        )
        if x
    )
    return listing.replace(path=path, notes=notes, remarks=tuple(remarks))


def _recipe_notes(opened: OpenedCheckpoint, listing: Listing) -> Iterator[str]:
    """Yield how the config next to the tensors disagrees with their headers about quantization."""
    from ...utils.errors import LlamathError

    if (
        opened.manifest.format == "gguf"
        or (opened.is_remote and not listing.codecs)
        or (not opened.is_remote and not opened.has_config_json)
    ):
        return
    try:
        section = opened.quantization_config
    except LlamathError:
        return  # said above
    if section is not None or listing.codecs:
        from .recipe_disagreements import recipe_disagreements

        yield from recipe_disagreements(section, {x.kind for x in listing.packings.values()})
