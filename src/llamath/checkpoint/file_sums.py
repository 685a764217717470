"""The sums that a checkpoint's files should have: of `SHA256SUMS`, of a download's metadata, of the
Hub's cache, and of the Hub itself.

The Hub identifies a file that is stored with LFS or Xet by its SHA-256, and any other by the SHA-1
of its git blob; both are entity tags.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..utils.access import may_read
from ..utils.errors import Command, FormatError, LlamathError, Name, safe
from .formats.folder import check_file_name, resolve_inside
from .formats.folder_kind import METADATA_FILE
from .formats.source import LocalFile

SUMS_FILE = "SHA256SUMS"
_MAX_SUMS_BYTES, _MAX_METADATA_BYTES = 8 << 20, 4096
_HEX = frozenset("0123456789abcdef")
_SHA256_DIGITS, _SHA1_DIGITS = 64, 40
_DOWNLOADS = (".cache", "huggingface", "download")
"""Folder in which a download with `--local-dir` keeps the entity tag of each file."""
_MAX_PARENTS = 4
_LFS_OBJECTS = (".git", "lfs", "objects")


class ExpectedSum(NamedTuple):
    """The digest that a file should have, and who says so."""

    name: str
    algorithm: str  # sha256 or git-sha1
    digest: str
    source: str


def sum_of_etag(name: str, etag: str, source: str) -> ExpectedSum | None:
    """Return the sum that an entity tag of the Hub is; None for other tags."""
    tag = etag.strip().strip('"')
    algorithm = {_SHA256_DIGITS: "sha256", _SHA1_DIGITS: "git-sha1"}.get(len(tag), "")
    return ExpectedSum(name, algorithm, tag, source) if algorithm and _HEX.issuperset(tag) else None


def parse_sums(text: str, where: str) -> dict[str, str]:
    """Parse the output of `sha256sum` or `shasum -a 256`, also with `--tag`: name → digest."""
    sums: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, digest = _parse_line(line)
        name = name.removeprefix("./")
        if not name or len(digest) != _SHA256_DIGITS or not _HEX.issuperset(digest):
            raise FormatError(
                "sums",
                f"{where}: expected a SHA-256 sum and a file name in line {number:,}, found "
                f"{safe(repr(line), 60)}",
                hint="write it with sha256sum, or with "
                f"{Command('verify', Name('path'), output=SUMS_FILE)}",
            )
        if sums.setdefault(name, digest) != digest:
            raise FormatError(
                "sums", f"{where}: line {number:,} contradicts an earlier sum of {safe(name)}"
            )
    return sums


def _parse_line(line: str) -> tuple[str, str]:
    """Return the name and the digest in lower case that a line has if it is well-formed."""
    if line.startswith("SHA256 ("):
        name, _, digest = line[len("SHA256 (") :].rpartition(") = ")
        return name, digest.lower()
    digest, mark, name = (
        line[:_SHA256_DIGITS],
        line[_SHA256_DIGITS : _SHA256_DIGITS + 2],
        line[_SHA256_DIGITS + 2 :],
    )
    return (name if mark in ("  ", " *") else ""), digest.lower()


def format_sums(sums: Mapping[str, str]) -> str:
    """Return the sums as `sha256sum` writes them."""
    return "".join(
        f"{digest}  {'/'.join(map(check_file_name, name.split('/')))}\n"
        for name, digest in sorted(sums.items())
    )


def read_sums_file(folder: str) -> dict[str, str]:
    """Return the sums of the `SHA256SUMS` in a folder, by name; empty if there is none."""
    path = os.path.join(folder, SUMS_FILE)
    if not os.path.lexists(path):
        return {}
    with LocalFile(resolve_inside(folder, SUMS_FILE)) as file:
        if file.size > _MAX_SUMS_BYTES:
            raise FormatError(
                "sums",
                f"{safe(path)}: expected at most {_MAX_SUMS_BYTES:,} bytes, found {file.size:,}",
            )
        data = file.read(0, file.size)
    try:
        return parse_sums(data.decode(), safe(path))
    except UnicodeDecodeError:
        raise FormatError("sums", f"{safe(path)}: expected text in UTF-8") from None


def local_sums(folder: str, names: Sequence[str]) -> Iterator[ExpectedSum]:
    """Yield the sums that a download by huggingface_hub left for these files of a folder."""
    downloads = _find_downloads(folder)
    for name in names:
        if downloads and (etag := _downloaded_etag(os.path.join(downloads, f"{name}.metadata"))):
            if found := sum_of_etag(name, etag, "the Hub, when it was downloaded"):
                yield found
        elif found := _sum_of_blob(folder, name):
            yield found


def lfs_objects(folder: str) -> str:
    """Return the folder of the LFS objects of the git clone that a folder belongs to; empty if
    it belongs to none.
    """
    at = os.path.abspath(folder or ".")
    for _ in range(_MAX_PARENTS):
        if not may_read(at):
            return ""
        if os.path.isdir(os.path.join(at, ".git")):
            path = os.path.join(at, *_LFS_OBJECTS)
            return path if os.path.isdir(path) else ""
        at = os.path.dirname(at)
    return ""


def is_lfs_object(objects: str, digest: str) -> bool:
    """Whether a file with this SHA-256 is among the LFS objects of a clone."""
    return os.path.lexists(os.path.join(objects, digest[:2], digest[2:4], digest))


def visible_files(folder: str) -> list[str]:
    """Return the sorted names of a folder's files, without `SHA256SUMS` and hidden ones other
    than DCP's `.metadata`.
    """
    try:
        with os.scandir(folder or ".") as entries:
            names = [x.name for x in entries if x.is_file()]
            return sorted(
                x for x in names if x == METADATA_FILE or not (x.startswith(".") or x == SUMS_FILE)
            )
    except OSError as error:
        raise LlamathError(f"{safe(folder)} cannot be listed: {error.strerror}") from None


def _find_downloads(folder: str) -> str:
    """Return the folder with the metadata of the downloads into this folder, which may be inside
    of the one that was downloaded.
    """
    at, inside = os.path.abspath(folder or "."), ""
    for _ in range(_MAX_PARENTS):
        if not may_read(at):
            return ""
        path = os.path.join(at, *_DOWNLOADS)
        if os.path.isdir(path):
            return os.path.join(path, inside)
        inside = os.path.join(os.path.basename(at), inside)
        at = os.path.dirname(at)
    return ""


def _downloaded_etag(path: str) -> str:
    """Return the entity tag in the metadata of a download: lines with the commit, the tag and
    the time.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return ""
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_METADATA_BYTES:
        return ""
    with LocalFile(path, status) as file:
        lines = file.read(0, file.size).decode("utf-8", "replace").splitlines()
    return lines[1] if len(lines) >= 2 else ""


def _sum_of_blob(folder: str, name: str) -> ExpectedSum | None:
    """Return the sum by which the Hub's cache names the file that a link of a snapshot leads to."""
    path = os.path.join(folder, name)
    if not os.path.islink(path):
        return None
    blobs, tag = os.path.split(os.path.realpath(path))
    return sum_of_etag(name, tag, "the Hub's cache") if os.path.basename(blobs) == "blobs" else None
