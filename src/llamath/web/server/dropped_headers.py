"""Headers of files that are dropped on a page, which sends their first bytes: what the library
reads there, or how many bytes that needs.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from ...checkpoint.formats.checkpoint_files import read_source
from ...checkpoint.formats.source import Source
from ...utils.errors import Call, LlamathError, Name, safe
from .error_page import PageError
from .posted_configs import MAX_FIRST_BYTES

MAX_SIZE = 1 << 50
"""The largest file whose first bytes are read."""
_SHOWN = {"safetensors": "safetensors", "gguf": "GGUF"}
_MAX_VALUE = 200
"""Characters of a metadata value."""


class _BytesMissing(Exception):
    """More bytes are needed, up to this one."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


class FirstBytes(Source):
    """The first bytes of a larger file."""

    def __init__(self, data: bytes, name: str, size: int) -> None:
        self.data, self.name, self.size = data, name, size

    def fetch(self, start: int, length: int) -> bytes:
        """Return a slice, or end the reading with what it needs."""
        if start + length > len(self.data):
            raise _BytesMissing(start + length)
        return self.data[start : start + length]


def header_json(data: bytes, name: str, size: int) -> str:
    """Return what a header declares, or as `needs` the number of first bytes to send."""
    if not len(data) <= size <= MAX_SIZE:
        raise PageError(400, f"size should be the bytes of the whole file: found {size:,}")
    source = FirstBytes(data, f"the file {name}", size)
    try:
        manifest = read_source(source)
    except _BytesMissing as missing:
        if missing.end > MAX_FIRST_BYTES:
            raise _other_file(source.name) from None
        needs = max(missing.end, min(4 * len(data), MAX_FIRST_BYTES, size))
        return json.dumps({"needs": needs})
    if manifest.format not in _SHOWN:
        raise _other_file(source.name)
    is_plain = manifest.format == "safetensors"
    base = manifest.files[0].header_bytes if is_plain else 0
    return json.dumps(
        {
            "format": _SHOWN[manifest.format],
            "tensors": [
                [x.name, x.dtype, [str(n) for n in x.shape], str(x.bytes), str(x.start - base)]
                for x in manifest.tensors
            ],
            "metadata": [
                [key, shown] for key, x in manifest.metadata.items() if (shown := _shown(x)) != ""
            ],
        }
        | ({"data_start": base} if is_plain else {})
    )


def _other_file(name: str) -> LlamathError:
    return LlamathError(
        f"{safe(name)}: expected safetensors or GGUF with a header within the first "
        f"{MAX_FIRST_BYTES:,} bytes, found another",
        hint=f"{Call('count', Name('file'))} reads more kinds",
    )


def _shown(value: Any) -> bool | float | str:
    """Return a value as the page shows it, integers with all digits; "" for arrays."""
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    return str(value)[:_MAX_VALUE] if isinstance(value, int | str) else ""
