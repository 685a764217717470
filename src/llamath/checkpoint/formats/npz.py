"""Read numpy's `.npz` archives: the name, dtype and shape of each array, without loading or
unpickling anything.

An archive is a ZIP file of `NAME.npy` members, stored or deflated. Each begins with a header
(numpy/lib/format.py, version 1.0 to 3.0): a Python dictionary of `descr`, `fortran_order` and
`shape`, which is matched by a fixed grammar and never evaluated.
"""

from __future__ import annotations

import re
import zlib
from math import prod

from ...utils.errors import FormatError, safe
from .dtypes import PLAIN
from .manifest import CheckpointFile, Manifest, Tensor
from .source import Source
from .torch_files.torch_zip import Archive, Member

COMPRESSED = "deflated"
"""`storage` of a tensor in a deflated member, whose bytes cannot be read in place."""
_MAX_HEADER = 1 << 16
_MAX_INFLATED = 1 << 17
"""Maximum bytes of an array's header, and of the start of a member that is inflated for it."""
_HEADER = re.compile(
    r"\{ {0,8}'descr': {0,8}(?:'([^'\\]{1,40})'|(\[)[^\n]*), {0,8}'fortran_order': {0,8}(True"
    r"|False), {0,8}"
    r"'shape': {0,8}\((|I,|I(?:, I){1,63})\),? {0,8}\} *\n".replace("I", "[0-9]{1,19}")
)
_DTYPES = {
    "b1": "BOOL", "i1": "I8", "u1": "U8", "i2": "I16", "u2": "U16", "i4": "I32", "u4": "U32",
    "i8": "I64", "u8": "U64",
    "f2": "F16", "f4": "F32", "f8": "F64", "c8": "C64",
}  # fmt: skip
"""numpy's type codes → canonical names."""


def read(source: Source) -> Manifest:
    """Read the manifest of one archive."""
    try:
        archive = Archive(source, is_of_torch=False)
        found = [_read_array(source, x) for x in archive.members.values()]
    except FormatError as error:
        raise error.in_file(source.name) from None
    tensors = tuple(x for x in found if isinstance(x, Tensor))
    texts = [x for x in found if isinstance(x, str)]
    stored = sum(x.packed for x in archive.members.values())
    metadata = {"text arrays": ", ".join(texts)} if texts else {}
    return Manifest(
        format="npz",
        files=(CheckpointFile(source.name, source.size, source.size - stored),),
        tensors=tensors,
        metadata=metadata,
    )


def _read_array(source: Source, member: Member) -> Tensor | str:
    """Return an array's tensor, or the name of an array of text."""
    if not member.name.endswith(".npy"):
        raise FormatError(
            "member", f"{safe(member.name)} is not an array: expected names that end in .npy"
        )
    name = member.name.removesuffix(".npy")
    head = _head(source, member)
    if head[:6] != b"\x93NUMPY" or head[6:8] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise FormatError(
            "magic", f"{safe(name)} does not begin as an array of numpy's format 1 to 3"
        )
    width = 2 if head[6] == 1 else 4
    start = 8 + width
    length = int.from_bytes(head[8:start], "little")
    if length > _MAX_HEADER or start + length > len(head):
        raise FormatError(
            "header_length",
            f"{safe(name)} has a header of {length:,} bytes, "
            f"longer than the array or than {_MAX_HEADER:,}",
        )
    try:
        text = head[start : start + length].decode("utf-8" if head[6] == 3 else "latin-1")
    except UnicodeDecodeError:
        raise FormatError("header_text", f"{safe(name)} has a header that is not UTF-8") from None
    match = _HEADER.fullmatch(text)
    if match is None:
        raise FormatError(
            "header_text",
            f"{safe(name)} has a header that numpy does not write: {safe(repr(text), 80)}",
        )
    dtype, is_text = _parse_dtype(match[1] or "[", name)
    if is_text:
        return name
    shape = tuple(int(x) for x in match[4].split(",") if x)
    expected = prod(shape) * PLAIN[dtype].bytes
    stored = member.size - start - length
    if expected != stored:
        raise FormatError(
            "size",
            f"{safe(name)} is {dtype} {list(shape)}, which takes "
            f"{expected:,} bytes, and has {stored:,}",
        )
    strides = None
    if match[3] == "True" and sum(n > 1 for n in shape) > 1:
        strides = tuple(prod(shape[:i]) for i in range(len(shape)))
    if member.method:
        return Tensor(
            name, dtype, shape, 0, member.start, member.start + expected, None, COMPRESSED
        )
    begin = member.start + start + length
    return Tensor(name, dtype, shape, 0, begin, begin + expected, strides)


def _head(source: Source, member: Member) -> bytes:
    """Return the start of a member, with its whole header."""
    if not member.method:
        return source.read(member.start, min(member.size, _MAX_HEADER + 16))
    packed = source.read(member.start, min(member.packed, _MAX_INFLATED))
    try:
        return zlib.decompressobj(-15).decompress(packed, min(member.size, _MAX_HEADER + 16) or 1)
    except zlib.error as error:
        raise FormatError(
            "deflated", f"{safe(member.name)} cannot be inflated: {safe(str(error), 80)}"
        ) from None


def _parse_dtype(text: str, name: str) -> tuple[str, bool]:
    """Return a dtype, and whether the array is of text instead."""
    kind = text[1:]
    if text[0] in "<|" and (dtype := _DTYPES.get(kind)) is not None:
        return dtype, False
    if text in ("[",) or "O" in text:
        what = "pickled Python objects" if "O" in text else "records"
        raise FormatError(
            "objects", f"{safe(name)} is an array of {what}, which could run code and is refused"
        )
    if kind[:1] in ("U", "S") and kind[1:].isdecimal():
        return "", True
    if kind in ("V1", "V2"):
        hint = (
            "numpy does not store the names of bfloat16 and float8: save as float32, or with "
            "safetensors"
        )
        raise FormatError(
            "dtype",
            f"{safe(name)} has elements of {kind[1:]} bytes without a type ({safe(text)})",
            hint=hint,
        )
    hint = "byte order and precision of other machines are not supported: save .astype('<f4')"
    raise FormatError(
        "dtype", f"{safe(name)} has the unsupported dtype {safe(repr(text), 40)}", hint=hint
    )
