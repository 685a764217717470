"""`llamath ls` for programs: JSON, whose fields are added and never renamed, and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from math import prod
from typing import Any

from ..errors import safe
from ..views.listing import Listing, Row
from .ls import basename

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
        "bits_per_weight": None if found.bits is None else float(found.bits),
        "known": found.known,
        "companions": found.companions,
        "dtypes": {name: x._asdict() for name, x in found.dtypes.items()},
        "codecs": {name: x._asdict() for name, x in found.codecs.items()},
        "shared": [x._asdict() for x in found.shared],
        "metadata": dict(found.metadata),
        "notes": list(found.notes),
    }
    text = f'{json.dumps(head)[:-1]}, "tensors": [{", ".join(_tensors(found))}], {json.dumps(rest)[1:]}'
    return text.replace("\x7f", "\\u007f")


def _tensors(found: Listing) -> Iterator[str]:
    """The tensors, each as an object: what many have in common is written once."""
    columns, common, string = found.manifest.columns, {}, json.encoder.encode_basestring_ascii
    files = [f', "file": {string(basename(x.name))}, "offset": ' for x in found.files]
    for name, dtype, shape, file, start, end in zip(*columns[:6], strict=True):
        if (key := (dtype, shape)) not in common:
            common[key] = json.dumps({"dtype": dtype, "shape": shape, "elements": prod(shape)})[1:-1]
        row = f'{{"name": {string(name)}, {common[key]}, "bytes": {end - start}{files[file]}{start}'
        if (code := found.packed.get(name)) is not None:
            more = {"codec": code.kind, "role": code.role, "weight": code.weight, "parameters": code.elements, "logical_shape": code.shape}
            row += f", {json.dumps(more)[1:-1]}"
        yield row + "}"


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


def _cells(x: Row) -> tuple[Any, ...]:
    counts = (x.copies, x.elements * x.copies, x.bytes * x.copies, x.parameters * x.copies)
    return _cell(x.pattern), x.dtype, "×".join(map(str, x.shape)), *counts, x.kind, x.role


def _cell(name: str) -> str:
    """A stranger's name, escaped, and so that no spreadsheet takes it for a formula."""
    text = safe(name, LONGEST)
    return f"'{text}" if text[:1] in tuple("=+-@") else text
