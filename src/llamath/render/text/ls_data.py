"""`llamath ls` for programs: JSON, whose fields are added and never renamed, and CSV."""

from __future__ import annotations

import csv
import io
import json
from math import prod
from operator import add, sub
from typing import TYPE_CHECKING, Any

from ...analysis.verify.listing import Listing, TensorRow
from ...core.errors import safe
from .ls_text import basename

if TYPE_CHECKING:
    from ...checkpoint.quantization.packed_tensors import Packing

HEADER = ("name", "dtype", "shape", "copies", "elements", "bytes", "parameters", "codec", "role")
LONGEST = 1 << 16
"""Of a name, so many characters are written; none that a reader here accepts is longer."""


def ls_json(found: Listing) -> str:
    """One object, in ASCII: what a stranger's name holds cannot reach a terminal."""
    head = {
        "format": found.manifest.format,
        "files": [{"name": basename(x.name), "path": x.name, **{k: getattr(x, k) for k in x._fields[1:]}} for x in found.files],
    }
    rest = {
        "elements": found.total.elements,
        "parameters": found.total.parameters,
        "bytes": found.total.bytes,
        "bits_per_weight": None if found.bits_per_weight is None else float(found.bits_per_weight),
        "known": found.known,
        "companions": found.companions,
        "dtypes": {name: x._asdict() for name, x in found.dtypes.items()},
        "codecs": {name: x._asdict() for name, x in found.codecs.items()},
        "shared": [x._asdict() for x in found.shared],
        "metadata": dict(found.metadata),
        "notes": list(found.notes),
    }
    rows = _tensors(found) or [""]
    rows[0] = f'{json.dumps(head)[:-1]}, "tensors": [{rows[0]}'
    rows[-1] += f"{'}' * bool(found.manifest.columns.name)}], {json.dumps(rest)[1:]}"
    return "}, ".join(rows).replace("\x7f", "\\u007f")


def _tensors(found: Listing) -> list[str]:
    """The tensors, each as an object without its end: what many have in common is written once."""
    columns, string = found.manifest.columns, json.encoder.encode_basestring_ascii
    kinds = list(zip(columns.dtype, columns.shape, strict=True))
    common = {x: json.dumps({"dtype": x[0], "shape": x[1], "elements": prod(x[1])})[1:-1] for x in set(kinds)}
    files = [f', "file": {string(basename(x.name))}, "offset": ' for x in found.files]
    sizes, places = map(sub, columns.end, columns.start), map(files.__getitem__, columns.file)
    parts = zip(map(string, columns.name), map(common.__getitem__, kinds), sizes, places, columns.start, strict=True)
    rows = [f'{{"name": {name}, {kind}, "bytes": {size}{place}{start}' for name, kind, size, place, start in parts]
    return list(map(add, rows, map(_code, map(found.packings.get, columns.name)))) if found.packings else rows


def _code(x: Packing | None) -> str:
    """How a tensor is packed, further fields of its object."""
    if x is None:
        return ""
    more = {"codec": x.kind, "role": x.role, "weight": x.weight, "parameters": x.elements, "logical_shape": x.shape}
    return f", {json.dumps(more)[1:-1]}"


def ls_csv(found: Listing, unfold: bool) -> str:
    """A line for each folded row, or for each tensor with its file and offset."""
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    write((*HEADER, "file", "offset") if unfold else HEADER)
    if unfold:
        names = [_cell(basename(x.name)) for x in found.files]
        for row, x in zip(found.unfolded(), found.manifest.tensors, strict=True):
            write((*_cells(row), names[x.file], x.start))
    else:
        for row in found.rows:
            write(_cells(row))
    return text.getvalue().rstrip("\n")


def _cells(x: TensorRow) -> tuple[Any, ...]:
    counts = (x.copies, x.elements * x.copies, x.bytes * x.copies, x.parameters * x.copies)
    return _cell(x.pattern), x.dtype, "×".join(map(str, x.shape)), *counts, x.kind, x.role


def _cell(name: str) -> str:
    """A stranger's name, escaped, and so that no spreadsheet takes it for a formula."""
    text = safe(name, LONGEST)
    return f"'{text}" if text[:1] in tuple("=+-@") else text
