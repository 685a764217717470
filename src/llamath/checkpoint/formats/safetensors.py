"""Read safetensors headers: 8 bytes of length, a JSON object of a fixed grammar, then the tensors without gaps or overlaps.

The header is parsed by that grammar alone and parsing stops at the first violation, so that no declared number causes an allocation.
Everything that the reference (safetensors 0.8) refuses is refused, and also duplicate declarations, unknown fields, and headers larger
than any model needs.
"""

from __future__ import annotations

from itertools import accumulate

from ...core.errors import FormatError, safe
from .manifest import CheckpointFile, Manifest, TensorColumns, TensorTable
from .safetensors_grammar import (
    ARRAY,
    MAX_CACHED_KIND,
    MAX_IRREGULAR,
    MAX_NAME,
    MAX_TENSORS,
    SPACE,
    HeaderColumns,
    HeaderParser,
    TensorKind,
    parse_kind,
    pattern,
)
from .source import SHORTER, Source

LIMIT = 16 << 20
"""Maximum bytes of a header; the largest published checkpoint in a single file would need 12 million."""


def read(source: Source) -> Manifest:
    """Read the header of a safetensors file; an error about tensor positions alone carries the manifest."""
    name = safe(source.name)
    length = int.from_bytes(source.read(0, 8), "little")
    if length > source.size - 8:
        message = f"{name}: expected a header of {length:,} bytes, found only {source.size - 8:,}"
        raise FormatError("header_length", message, hint=SHORTER)
    if length > LIMIT:
        raise FormatError("header_length", f"{name}: expected a header of at most {LIMIT:,} bytes, found {length:,}")
    header, metadata = _header(source.read(8, length), name)
    columns, file = _tensors(header, 8 + length, name), CheckpointFile(source.name, source.size, 8 + length)
    manifest = Manifest(format="safetensors", files=(file,), tensors=TensorTable(columns), metadata=metadata)
    if error := _check_positions(columns, 8 + length, source.size, name):
        error.manifest = manifest
        raise error
    return manifest


def _header(data: bytes, name: str) -> tuple[HeaderColumns, dict[str, str]]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FormatError("header_text", f"{name}: the header is not UTF-8 at byte {8 + error.start}") from None
    if not text.startswith("{"):
        raise FormatError("header_text", f"{name}: the header should begin with {{, not with {safe(repr(text[:1]))}")
    scanner = HeaderParser(text, name)
    metadata = scanner.parse_leading_metadata()
    if columns := _parse_regular(text, scanner.at, name):
        return columns, metadata
    metadata.clear()  # it may be long and is read again
    return scanner.header()


_FIELDS = r'("dtype"~:~"[^"]*+"~,~"shape"~:~\[[0-9, \t\n\r]*+\])', r'"data_offsets"~:~\[~([0-9]++)~,~([0-9]++)~\]'
_PRINTABLE = bytes(set(range(32, 256)) - set(b"\\"))
_ENTRIES = [rf'"([^"]*+)"~:~\{{~{"~,~".join(fields)}~\}}~(?:,~(?=")|(?=\}}))' for fields in (_FIELDS, _FIELDS[::-1])]
"""A tensor as safetensors writes it, and with its fields in alphabetical order, as MLX does; matches are checked again."""
_KIND = rf'"dtype"~:~"([A-Z0-9_]+)"~,~"shape"~:~{ARRAY}'


def _parse_regular(text: str, at: int, name: str) -> HeaderColumns | None:
    """Parse a header whose tensors are all written like its first one with a regular expression; None for other headers."""
    entries = (pattern(entry, space) for space in ("", SPACE.pattern) for entry in _ENTRIES)
    entry = next((x for x in entries if x.match(text, at)), None)
    if entry is None:
        return None
    parts = entry.split(text)
    between, names, *columns = (parts[i::5] for i in range(5))
    if len(between[0]) != at or any(between[1:-1]) or between[-1].rstrip(" \t\n\r") != "}" or "__metadata__" in names:
        return None
    if "".join(names).encode().translate(None, _PRINTABLE) or (len(text) > MAX_NAME and max(map(len, names)) > MAX_NAME):
        return None
    written, firsts, lasts = columns if columns[0][0][0] == '"' else (columns[2], *columns[:2])
    try:
        kinds = list(map(_KINDS.__getitem__, written))
    except KeyError:
        if (learnt := _parse_kinds(dict(zip(written, names, strict=True)), name)) is None:
            return None
        kinds = list(map(learnt.__getitem__, written))
    return HeaderColumns(names, kinds, firsts, lasts)


_KINDS: dict[str, TensorKind] = {}
"""Cache of types and shapes by their text, which the shards of a checkpoint share; it is bounded."""


def _parse_kinds(written: dict[str, str], name: str) -> dict[str, TensorKind] | None:
    """Parse these texts of types and shapes, each given with the name of a tensor; None if one is malformed."""
    if len(written) > MAX_IRREGULAR:
        raise FormatError("too_large", f"{name}: tensors of more than {MAX_IRREGULAR:,} types and shapes")
    found: dict[str, TensorKind] = {}
    for kind, tensor in written.items():
        if (parts := pattern(_KIND).fullmatch(kind)) is None:
            return None
        found[kind] = parse_kind(parts[1], parts[2], f"{name}: {safe(tensor)}")
    if len(_KINDS) < MAX_IRREGULAR:
        _KINDS.update((kind, x) for kind, x in found.items() if len(kind) <= MAX_CACHED_KIND)
    return found


def _tensors(header: HeaderColumns, base: int, name: str) -> TensorColumns:
    """Return the manifest's columns; duplicate names and sizes that contradict the offsets are errors."""
    names, kinds, firsts, lasts = header
    n = len(names)
    if n > MAX_TENSORS:
        raise FormatError("too_large", f"{name} declares {n:,} tensors; at most {MAX_TENSORS:,} are read")
    if len(set(names)) != n:
        seen = set[str]()
        double = next(x for x in names if x in seen or seen.add(x))  # type: ignore[func-returns-value]
        raise FormatError("duplicate", f"{name}: the tensor {safe(double)} is declared twice")
    dtypes, shapes, sizes = map(list, zip(*kinds, strict=True)) if n else ([], [], [])
    ends = list(accumulate(sizes))
    if ", ".join(lasts) == repr(ends)[1:-1] and firsts == ["0", *lasts][:n]:
        edges = list(accumulate(sizes, initial=base))
        starts, ends = edges[:-1], edges[1:]
    else:
        starts, ends = _offsets(header, base, name)
    if max(ends, default=base) - base >> 64:
        raise FormatError("overflow", f"{name}: its tensors end at byte {max(ends):,}, which exceeds 64 bits")
    return TensorColumns(names, dtypes, shapes, [0] * n, starts, ends, [None] * n, [""] * n)


def _offsets(columns: HeaderColumns, base: int, name: str) -> tuple[list[int], list[int]]:
    """Return the starts and ends of tensors that are not stored in order; sizes that contradict the offsets are errors."""
    starts: list[int] = []
    ends: list[int] = []
    integer = pattern("I")
    for tensor, kind, first, last in zip(*columns, strict=True):
        if not integer.fullmatch(first) or not integer.fullmatch(last):
            raise FormatError("header_text", f"{name}: the offsets of {safe(tensor)} should be integers of at most 64 bits")
        start, end = int(first), int(last)
        if end - start != kind.bytes:
            what = f"{safe(tensor)} is {kind.dtype} {safe(str(list(kind.shape)))}, which takes {kind.bytes:,} bytes"
            raise FormatError("span", f"{name}: {what}; its offsets {start:,} to {end:,} are {end - start:,}")
        starts.append(start + base)
        ends.append(end + base)
    return starts, ends


def _check_positions(columns: TensorColumns, base: int, size: int, name: str) -> FormatError | None:
    """Return the error of tensors that do not fill the file without gaps and overlaps, in any order."""
    names, starts, ends = columns.name, columns.start, columns.end
    in_order = starts == [base, *ends][:-1]
    at, before = (ends[-1], names[-1]) if names and in_order else (base, "the header")
    for i in sorted(() if in_order else range(len(names)), key=lambda i: (starts[i], ends[i])):
        if starts[i] != at:
            kind, gap = ("hole", starts[i] - at) if starts[i] > at else ("overlap", at - starts[i])
            return FormatError(kind, f"{name}: {gap:,} bytes of {kind} between {safe(before)} and {safe(names[i])} at byte {at:,}")
        at, before = ends[i], names[i]
    if at > size:
        short = f"{name} is {at - size:,} bytes short: {safe(before)} ends at byte {at:,}, the file at {size:,}"
        return FormatError("truncated", short, hint=SHORTER)
    if at < size:
        return FormatError("trailing", f"{name}: {size - at:,} bytes after {safe(before)} belong to no tensor")
    return None
