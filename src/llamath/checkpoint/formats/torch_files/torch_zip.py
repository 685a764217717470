"""Read ZIP archives strictly as torch writes them: members are uncompressed, and every byte belongs
to exactly one record.

The end record must be the last 22 bytes, the directory must end where the end records begin, and
the members must fill the space before the directory without gaps and overlaps, so that nothing can
be hidden or read in two ways. The format is PKWARE's APPNOTE 6.3.10 as torch 1.6 to 2.13 writes it
(miniz: data descriptors, `FB` padding, always zip64 end records).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from ....utils.errors import FormatError, safe
from ..source import Source

_END = Struct("<4s4H2LH")
_LOCATOR = Struct("<4sLQL")
_END64 = Struct("<4sQ2H2L4Q")
_ENTRY = Struct("<4s6H3L5H2L")
_LOCAL = Struct("<4s5H3L2H")
_FIELD = Struct("<2H").unpack_from
_DESCRIPTOR, _DESCRIPTOR64 = Struct("<4s3L"), Struct("<4sL2Q")
_MAX_U16, _MAX_U32 = 0xFFFF, 0xFFFFFFFF
_HAS_DESCRIPTOR, _UTF8, _FOLDER = 0x8, 0x800, 0x10
_DEFLATED, _MAX_VERSION = 8, 63
_MAX_NAME_BYTES = 511  # maximum bytes of a name; torch truncates longer ones
_MAX_DIRECTORY_BYTES = 64 << 20
"""Maximum bytes of the directory, about 900,000 members."""


class Member(NamedTuple):
    """A file in the archive; its bytes are `start` to `start + size`."""

    name: str  # without the archive's top folder
    start: int
    size: int
    crc: int
    packed: int = 0  # bytes in the file
    method: int = 0  # 8: deflated


class _Entry(NamedTuple):
    name: bytes
    flags: int
    crc: int
    size: int
    at: int
    packed: int
    method: int


class Archive:
    """The members of an archive by name, without the top folder that torch's archives have;
    others may have deflated members.
    """

    def __init__(self, source: Source, is_of_torch: bool = True) -> None:
        self.source = source
        directory, count, end = _read_directory(source)
        entries = list(_parse_entries(directory, count, (0,) if is_of_torch else (0, _DEFLATED)))
        starts = _data_starts(source, entries, end)
        self.folder = _top_folder(entries) if is_of_torch else b""
        _check_distinct(entries)
        self.summed = any(entry.crc for entry in entries)  # all 0 if torch wrote no checksums
        cut = len(self.folder) + 1 if is_of_torch else 0
        self.members = {
            name: Member(name, start, entry.size, entry.crc, entry.packed, entry.method)
            for entry, start in zip(entries, starts, strict=True)
            for name in (entry.name[cut:].decode(),)
        }

    def read(self, name: str, limit: int) -> bytes:
        """Read a small member and verify its checksum."""
        member = self.members.get(name)
        if member is None:
            raise FormatError(
                "missing_member",
                f"the archive has no {safe(name)}",
                hint="was this file written by torch.save?",
            )
        if member.size > limit:
            raise FormatError(
                "too_large", f"{safe(name)} has {member.size:,} bytes; at most {limit:,} are read"
            )
        data = self.source.read(member.start, member.size)
        if self.summed and crc32(data) != member.crc:
            raise FormatError(
                "crc",
                f"{safe(name)}: its checksum is {crc32(data):08x}, the "
                f"directory says {member.crc:08x}",
            )
        return data


def _read_directory(source: Source) -> tuple[bytes, int, int]:
    """Read the central directory; returns its bytes, the expected number of entries and its
    start.
    """
    tail = source.read(
        max(0, source.size - _END.size - _LOCATOR.size - _END64.size), min(source.size, 98)
    )
    if len(tail) < _END.size:
        raise FormatError("truncated", f"expected a ZIP archive, found {len(tail)} bytes")
    mark, disk, first, here, count, size, start, comment = _END.unpack(tail[-_END.size :])
    if mark != b"PK\5\6" or comment:
        raise FormatError(
            "end_record",
            "the last 22 bytes are not a ZIP end record: the file is "
            "truncated, or bytes follow the archive",
        )
    records = _END.size
    if tail[-42:-38] == b"PK\6\7":
        claimed = (here, count, size, start)
        disk, first, here, count, size, start = _read_zip64_end(
            tail, source.size - 98, disk | first
        )
        if claimed != (
            min(here, _MAX_U16),
            min(count, _MAX_U16),
            min(size, _MAX_U32),
            min(start, _MAX_U32),
        ):
            raise FormatError("end_record", "the end record contradicts the zip64 end record")
        records = 98
    if disk or first or here != count:
        raise FormatError("multi_disk", "the archive spans several disks")
    if start + size != source.size - records:
        raise FormatError(
            "end_record",
            f"the directory of {size:,} bytes at {start:,} does not "
            "end where the end records begin",
        )
    if size > _MAX_DIRECTORY_BYTES or count * _ENTRY.size > size:
        raise FormatError(
            "directory",
            f"{count:,} entries in {size:,} bytes: more than fit, or "
            f"more than {_MAX_DIRECTORY_BYTES:,} bytes",
        )
    return source.read(start, size), count, start


def _read_zip64_end(tail: bytes, at: int, narrow: int) -> tuple[int, int, int, int, int, int]:
    """Read the zip64 end record: disk, first disk, entries on this disk, entries, size and start
    of the directory.
    """
    if len(tail) < 98:
        raise FormatError("end_record", "a zip64 locator without a zip64 end record before it")
    mark, length, _, _, disk, first, here, count, size, start = _END64.unpack(tail[:56])
    _, located, where, disks = _LOCATOR.unpack(tail[56:76])
    if mark != b"PK\6\6" or length != _END64.size - 12 or where != at:
        raise FormatError("end_record", "the zip64 end record is not directly before its locator")
    return disk | located | narrow, first + (disks != 1), here, count, size, start


def _parse_entries(directory: bytes, count: int, methods: tuple[int, ...]) -> Iterator[_Entry]:
    """Yield the directory's entries; each must be stored by one of the methods, and on this
    disk.
    """
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(directory):
            raise FormatError("directory", "the directory ends within an entry")
        (
            mark,
            _,
            needed,
            flags,
            method,
            _,
            _,
            crc,
            packed,
            size,
            name_length,
            extra,
            comment,
            disk,
            _,
            kind,
            start,
        ) = _ENTRY.unpack_from(directory, at)
        name = directory[at + _ENTRY.size : at + _ENTRY.size + name_length]
        at += _ENTRY.size + name_length + extra + comment
        if mark != b"PK\1\2" or at > len(directory) or comment:
            raise FormatError("directory", f"the directory is damaged near {_display(name)}")
        _check_entry(name, flags, method if method not in methods else 0, kind)
        if _DEFLATED in methods and needed & 0xFF > _MAX_VERSION:
            raise FormatError(
                "version",
                f"{_display(name)} needs version {(needed & 0xFF) / 10} "
                "of ZIP; 6.3 is the last one",
            )
        if disk:
            raise FormatError("multi_disk", f"{_display(name)} is on another disk")
        if _MAX_U32 in (packed, size, start):
            size, packed, start = _zip64_fields(
                directory[at - extra : at], (size, packed, start), name
            )
        if packed != size and not method:
            raise FormatError(
                "compressed",
                f"{_display(name)} is not compressed, but its two "
                f"sizes differ: {packed:,} and {size:,}",
            )
        yield _Entry(name, flags, crc, size, start, packed, method)
    if at != len(directory):
        raise FormatError(
            "directory", f"{len(directory) - at:,} bytes follow the directory's {count:,} entries"
        )


def _check_entry(name: bytes, flags: int, method: int, kind: int) -> None:
    if method:
        raise FormatError(
            "compressed",
            f"{_display(name)} is compressed (method {method})",
            hint="torch.save does not compress; was it zipped again?",
        )
    if flags & 0x2041:
        raise FormatError("encrypted", f"{_display(name)} is encrypted")
    if flags & ~(_HAS_DESCRIPTOR | _UTF8):
        raise FormatError("flags", f"{_display(name)} has flags {flags:#x} that torch never sets")
    path = b"/%b/" % name
    is_unsafe = b"//" in path or b"/./" in path or b"/../" in path or b"\\" in path or b"\0" in path
    if is_unsafe or kind & _FOLDER or len(name) > _MAX_NAME_BYTES:
        raise FormatError(
            "name",
            f"{_display(name)} is not a valid member name: empty, absolute, with .. or "
            f"\\ or NUL, a folder, or too long",
        )
    try:
        name.decode("utf-8" if flags & _UTF8 else "ascii")
    except UnicodeDecodeError as error:
        raise FormatError("name", f"{_display(name)}: its name is not text") from error


def _zip64_fields(extra: bytes, fields: tuple[int, ...], name: bytes) -> list[int]:
    """Replace saturated fields, in order, by those of the zip64 extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = _FIELD(extra, at)
        at += 4 + length
        if kind == 1:
            break
    else:
        kind = length = 0
    if kind != 1 or at > len(extra) or length != 8 * fields.count(_MAX_U32):
        raise FormatError(
            "zip64", f"{_display(name)}: its zip64 field does not contain the expected sizes"
        )
    wide = iter([int.from_bytes(extra[i : i + 8], "little") for i in range(at - length, at, 8)])
    return [next(wide) if field == _MAX_U32 else field for field in fields]


def _data_starts(source: Source, entries: list[_Entry], end: int) -> list[int]:
    """Return where each member's data starts; local headers, data and descriptors must fill the
    file up to the directory.
    """
    starts = [0] * len(entries)
    at, before = 0, None
    for index in sorted(range(len(entries)), key=lambda index: entries[index].at):
        entry = entries[index]
        gap = _gap(before, at, entry.at)
        if entry.at + _LOCAL.size + len(entry.name) > end:
            raise FormatError("overlap", f"{_display(entry.name)} reaches into the directory")
        data = source.read(at, gap + _LOCAL.size + len(entry.name))
        _check_descriptor(before, data[:gap])
        starts[index] = start = (
            entry.at
            + _LOCAL.size
            + len(entry.name)
            + _check_local_header(source, entry, data[gap:])
        )
        at, before = start + entry.packed, entry
        if at > end:
            raise FormatError("overlap", f"{_display(entry.name)} reaches into the directory")
    _check_descriptor(before, source.read(at, _gap(before, at, end)))
    return starts


def _gap(before: _Entry | None, at: int, until: int) -> int:
    """Return the number of bytes between a member's data and the next record: none, or a data
    descriptor.
    """
    gap = until - at
    if gap < 0:
        raise FormatError(
            "overlap",
            f"{_display(before.name) if before else 'a member'} "
            f"overlaps the next record by {-gap:,} bytes",
        )
    after = (
        (_DESCRIPTOR.size, _DESCRIPTOR64.size)
        if before and before.flags & _HAS_DESCRIPTOR
        else (0,)
    )
    if gap not in after and (gap or (before and before.packed)):
        raise FormatError("gap", f"{gap:,} bytes at {at:,} belong to no member")
    return gap


def _check_descriptor(entry: _Entry | None, after: bytes) -> None:
    """Verify the data descriptor, if there is one."""
    layout = _DESCRIPTOR if len(after) == _DESCRIPTOR.size else _DESCRIPTOR64
    if (
        entry
        and after
        and layout.unpack(after) != (b"PK\7\x08", entry.crc, entry.packed, entry.size)
    ):
        raise FormatError(
            "local_header", f"{_display(entry.name)}: its data descriptor contradicts the directory"
        )


def _check_local_header(source: Source, entry: _Entry, header: bytes) -> int:
    """Verify a local header and return the length of its extra field."""
    mark, _, flags, method, _, _, crc, packed, size, name_length, extra = _LOCAL.unpack_from(header)
    expected = entry.flags, entry.method, len(entry.name)
    same = (
        mark == b"PK\3\4"
        and (flags, method, name_length) == expected
        and header[_LOCAL.size :] == entry.name
    )
    sizes: tuple[int, ...] = (size, packed)
    if _MAX_U32 in sizes:
        more = source.read(entry.at + len(header), min(extra, source.size - entry.at - len(header)))
        sizes = tuple(_zip64_fields(more, sizes, entry.name))
    found = (crc, *sizes)
    if not same or (
        found != (entry.crc, entry.size, entry.packed)
        and (any(found) or not flags & _HAS_DESCRIPTOR)
    ):
        raise FormatError(
            "local_header", f"{_display(entry.name)}: its local header contradicts the directory"
        )
    return int(extra)


def _top_folder(entries: list[_Entry]) -> bytes:
    """Return the top folder of all members."""
    if not entries:
        raise FormatError("missing_member", "the archive is empty")
    folder, slash, _ = entries[0].name.partition(b"/")
    for entry in entries:
        if not slash or not entry.name.startswith(folder + b"/"):
            raise FormatError(
                "name", f"{_display(entry.name)} is not in the archive's folder {_display(folder)}"
            )
    return folder


def _check_distinct(entries: list[_Entry]) -> None:
    """Refuse names that differ only in case, which some systems and torch ignore."""
    seen: set[bytes] = set()
    for entry in entries:
        if entry.name.lower() in seen:
            raise FormatError("duplicate_member", f"{_display(entry.name)} occurs twice")
        seen.add(entry.name.lower())


def _display(name: bytes) -> str:
    return repr(safe(name.decode("utf-8", "replace")))
