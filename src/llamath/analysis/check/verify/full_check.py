"""`check_values`: read every byte of a checkpoint once, for the statistics of its values and the
sums of its files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ....checkpoint.file_stream import CHUNK_BYTES, FileTask, Progress, stream_files
from ....checkpoint.file_sums import (
    SUMS_FILE,
    ExpectedSum,
    is_lfs_object,
    lfs_objects,
    local_sums,
    read_sums_file,
    sum_of_etag,
    visible_files,
)
from ....checkpoint.formats.dtypes import PLAIN
from ....checkpoint.formats.folder import resolve_inside
from ....checkpoint.formats.source import LocalFile
from ....checkpoint.open import packings_of
from ....checkpoint.tensor_reader import check_expansion
from ....render.tables import Text
from ....utils.errors import LlamathError, safe
from ....utils.number_format import format_count, format_list
from ....utils.record_type import Record
from .verify_tensors import Finding, summarize_names

if TYPE_CHECKING:
    from ....checkpoint.formats.manifest import Manifest, Tensor
    from ....checkpoint.open import OpenedCheckpoint
    from ....checkpoint.quantization.packed_tensors import Packing
    from ....checkpoint.tensor_stats import TensorStats


class FileSum(Record):
    """A file that was read, its SHA-256 if it was computed, and who says what its sum should be."""

    json_fields: ClassVar[tuple[str, ...]] = ("name", "bytes", "sha256", "compared_with", "matches")

    name: str
    bytes: int
    sha256: str | None
    compared_with: tuple[str, ...] = ()
    matches: bool | None = None  # None: there is nothing to compare it with


class FullCheck(Record):
    """The result of reading every byte of a checkpoint."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "bytes=bytes_read",
        "tensors",
        "values_checked",
        "files",
    )

    bytes_read: int
    tensors: int  # whose values were examined
    values_checked: bool  # False: only sums were computed
    folder: str
    files: tuple[FileSum, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return all(x.severity != "error" for x in self.findings)

    @property
    def compared(self) -> int:
        """The number of files whose sums were compared."""
        return sum(x.matches is not None for x in self.files)

    @property
    def summary(self) -> str:
        """The result in a few words."""
        counts = [
            sum(x.severity == severity for x in self.findings) for severity in ("error", "warning")
        ]
        found = [
            format_count(n, word) for n, word in zip(counts, ("error", "warning"), strict=True) if n
        ]
        parts = [
            "values" if self.values_checked else "",
            f"sums of {format_count(self.compared, 'file')}" if self.compared else "",
        ]
        what = " and ".join(x for x in parts if x)
        return (
            f"{what or 'sums'}: "
            f"{', '.join(found) or ('no error and no warning' if what else 'computed')}"
        )

    def parts(self) -> Iterator[Text]:
        """Yield how much was read, what the files were compared with, and what values cannot
        tell.
        """
        what = (
            f"values of {format_count(self.tensors, 'tensor')} examined"
            if self.values_checked
            else "values not examined"
        )
        sources = list(dict.fromkeys(source for x in self.files for source in x.compared_with))
        files = format_count(len(self.files), "file")
        compared = f"sums of {self.compared} of {files} compared with {format_list(sources)}"
        sums = compared if sources else "no sums to compare with"
        yield Text(f"{self.bytes_read:,} bytes read, {what}; {sums}")
        if self.values_checked:
            yield Text(
                "swapped or permuted weights cannot be found this way: `llamath same` compares "
                "with another copy",
                "dim",
            )


def check_files(
    checkpoint: OpenedCheckpoint,
    roles: Mapping[str, str],
    *,
    values: bool = True,
    all_sums: bool = False,
    is_tied: bool = False,
    hub_sums: Mapping[str, str] | None = None,
    listed_sums: Mapping[str, str] | None = None,
    skip: Container[str] = (),
    progress: Progress | None = None,
) -> FullCheck:
    """Read the files of a local checkpoint: the statistics of all `values`, and the sums that can
    be compared.

    `roles` are those of the weights that a model has, by stored name. With `all_sums`, the SHA-256
    of every file of the folder is computed and `SHA256SUMS` is not read, since it will be replaced.
    `hub_sums` are entity tags of the Hub by file name; `listed_sums` replace those of `SHA256SUMS`.
    Of the files that are no weights of this checkpoint, those in `skip` are not read.
    """
    manifest = checkpoint.manifest
    if checkpoint.is_remote:
        raise LlamathError(
            f"{safe(checkpoint.name)}: expected local files to read in full, found a remote "
            "checkpoint",
            hint="download the files first, or give a repository on the Hub (owner/name)",
        )
    check_expansion(manifest)
    folder = os.path.dirname(manifest.files[0].name) if manifest.files else checkpoint.folder
    weights = {os.path.basename(x.name): i for i, x in enumerate(manifest.files)}
    listed = {} if all_sums else read_sums_file(folder) if listed_sums is None else listed_sums
    others = (
        [x for x in visible_files(folder) if x not in weights and x not in skip]
        if os.path.isdir(checkpoint.name)
        else []
    )
    expected, missing = _expected_sums(folder, list(weights), others, checkpoint, hub_sums, listed)
    objects = lfs_objects(folder)
    names = dict.fromkeys([*weights, *expected])
    if all_sums:
        names |= dict.fromkeys(others)
    stats: list[TensorStats] = []
    tasks, unchecked = [], []
    for name in names:
        algorithms = {x.algorithm for x in expected.get(name, ())} | (
            {"sha256"} if all_sums or (objects and name in weights) else set()
        )
        consumer = None
        path = (
            manifest.files[weights[name]].name if name in weights else resolve_inside(folder, name)
        )
        if name in weights and values:
            from ....checkpoint.tensor_stats import FileScan

            own, left_out = _stats_of_file(manifest, weights[name], checkpoint)
            unchecked += left_out
            stats += own
            consumer = FileScan(own)
        size = manifest.files[weights[name]].size if name in weights else _size_of(path)
        tasks.append(
            FileTask(path=path, size=size, algorithms=tuple(sorted(algorithms)), consumer=consumer)
        )
    tasks = [x for x in tasks if x.algorithms or x.consumer]
    digests = dict(
        zip([os.path.basename(x.path) for x in tasks], stream_files(tasks, progress), strict=True)
    )
    files = [_file_sum(x, digests, expected, objects) for x in tasks]
    findings = [*_sum_findings(files, digests, expected, weights), *missing]
    findings += _lfs_findings(files, weights) if objects else []
    if values:
        findings += _value_findings(manifest, stats, roles, checkpoint, is_tied=is_tied)
        findings += _unchecked(
            [
                *unchecked,
                *(x.tensor.name for x in stats if not x.complete and _is_whole(x.tensor, manifest)),
            ]
        )
    return FullCheck(
        bytes_read=sum(x.size for x in tasks),
        tensors=sum(x.complete for x in stats),
        values_checked=values,
        folder=folder,
        files=tuple(files),
        findings=tuple(findings),
    )


def _expected_sums(
    folder: str,
    weights: Sequence[str],
    others: Sequence[str],
    checkpoint: OpenedCheckpoint,
    hub_sums: Mapping[str, str] | None,
    listed: Mapping[str, str],
) -> tuple[dict[str, list[ExpectedSum]], list[Finding]]:
    """Return the sums that files of the folder should have, and findings about files that are
    listed and missing.

    For a single file that was named, only its own sums are compared.
    """
    is_folder = os.path.isdir(checkpoint.name)
    sums = [
        ExpectedSum(name, "sha256", digest, SUMS_FILE)
        for name, digest in listed.items()
        if is_folder or name in weights
    ]
    sums += local_sums(folder, [*weights, *others])
    sums += [
        x
        for name, tag in (hub_sums or {}).items()
        if (x := sum_of_etag(name, tag, "the Hub")) and (is_folder or name in weights)
    ]
    expected: dict[str, list[ExpectedSum]] = {}
    missing, inner = [], []
    for x in sums:
        if "/" in x.name:
            inner.append(x.name)
        elif x.name in weights or os.path.isfile(os.path.join(folder, x.name)):
            expected.setdefault(x.name, []).append(x)
        elif x.source == SUMS_FILE:
            missing.append(x.name)
    findings = []
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        message = (
            f"{format_count(len(missing), 'file')} listed in {SUMS_FILE} {verb} not in the "
            f"folder: {summarize_names(missing)}"
        )
        findings.append(Finding(code="missing_file", severity="warning", message=message))
    if inner:
        message = (
            f"the sums of {format_count(len(inner), 'file')} in sub-folders were not "
            f"compared: {summarize_names(inner)}"
        )
        findings.append(Finding(code="not_examined", severity="info", message=message))
    return expected, findings


def _size_of(path: str) -> int:
    with LocalFile(path) as file:
        return file.size


def _file_sum(
    task: FileTask,
    digests: Mapping[str, Mapping[str, str]],
    expected: Mapping[str, Sequence[ExpectedSum]],
    objects: str,
) -> FileSum:
    name = os.path.basename(task.path)
    found, sums = digests[name], expected.get(name, ())
    matches = all(found[x.algorithm] == x.digest for x in sums) if sums else None
    sources = tuple(dict.fromkeys(x.source for x in sums))
    sha256 = found.get("sha256")
    if objects and not sums and sha256 and is_lfs_object(objects, sha256):
        matches, sources = True, ("the clone's LFS objects",)
    return FileSum(
        name=name, bytes=task.size, sha256=sha256, compared_with=sources, matches=matches
    )


def _sum_findings(
    files: Iterable[FileSum],
    digests: Mapping[str, Mapping[str, str]],
    expected: Mapping[str, Sequence[ExpectedSum]],
    weights: Mapping[str, int],
) -> Iterable[Finding]:
    """Yield a finding for each file with a wrong sum; files other than weights may have been
    edited since they were downloaded.
    """
    for file in files:
        wrong = [
            x for x in expected.get(file.name, ()) if digests[file.name][x.algorithm] != x.digest
        ]
        if wrong:
            x = wrong[0]
            is_certain = file.name in weights or x.source == SUMS_FILE
            found = digests[file.name][x.algorithm]
            yield Finding(
                code="wrong_sum",
                severity="error" if is_certain else "warning",
                message=f"{safe(file.name, 100)} differs from what {safe(x.source)} says: "
                f"expected {x.algorithm} {x.digest}, found {found}",
                hint="download it again"
                if is_certain
                else "it was edited since it was downloaded, or is damaged",
                tensors=(),
            )


def _lfs_findings(files: Iterable[FileSum], weights: Mapping[str, int]) -> Iterable[Finding]:
    """Yield a finding about weights of a git clone that are not among its LFS objects."""
    unknown = [x.name for x in files if x.name in weights and x.matches is None and x.sha256]
    if unknown and len(unknown) < len(weights):
        message = (
            f"{summarize_names(unknown)}: not among the LFS objects of this git clone, as "
            "the other files are"
        )
        yield Finding(
            code="unknown_sum",
            severity="warning",
            message=message,
            hint="git lfs fsck compares them with what was committed",
        )


def _stats_of_file(
    manifest: Manifest, file: int, checkpoint: OpenedCheckpoint
) -> tuple[list[TensorStats], list[str]]:
    """Return statistics to fill for each tensor of a file, and the names of tensors that cannot be
    examined in the order of their bytes.

    Of tensors that are the same bytes in the same way, the first is examined.
    """
    from ....checkpoint.tensor_stats import TensorStats

    packings, swap = (
        _packings(checkpoint),
        manifest.format == "gguf" and _is_big_endian(manifest.files[file].name),
    )
    stats: dict[tuple[Any, ...], TensorStats] = {}
    left_out = []
    for x in manifest.tensors:
        if x.file != file or not x.bytes or not x.elements:
            continue
        if x.strides is not None and x.elements * PLAIN[x.dtype].bytes != x.bytes:
            left_out.append(x.name)
            continue
        kind = _kind_of(x, packings.get(x.name))
        stats.setdefault(
            (x.start, x.end, x.dtype, x.shape, x.strides), TensorStats(x, kind, swap=swap)
        )
    return list(stats.values()), left_out


def _packings(checkpoint: OpenedCheckpoint) -> Mapping[str, Packing]:
    try:
        config = checkpoint.packing_config
    except LlamathError:
        config = None
    return packings_of(checkpoint.manifest, config)


def _kind_of(x: Tensor, packing: Packing | None) -> str:
    """Return the dtype as which values are examined; packed integers are not floats, whatever
    dtype they are stored as.
    """
    from ....checkpoint.tensor_stats import BLOCK_TYPES, is_float

    if (
        packing is not None
        and packing.role == "values"
        and not x.dtype.startswith("F8_")
        and x.dtype not in BLOCK_TYPES
    ):
        return "packed"
    if (
        packing is not None
        and packing.role == "scale"
        and packing.kind == "mxfp4"
        and x.dtype == "U8"
    ):
        return "F8_E8M0"
    return x.dtype if is_float(x.dtype) or x.dtype in BLOCK_TYPES else "packed"


def _is_big_endian(path: str) -> bool:
    from ....checkpoint.formats.gguf import preamble

    with LocalFile(path) as file:
        return preamble(file).order == ">"


def _is_whole(x: Tensor, manifest: Manifest) -> bool:
    """Whether the file is long enough for a tensor."""
    return x.end <= manifest.files[x.file].size


def _unchecked(names: Sequence[str]) -> Iterable[Finding]:
    if names:
        message = (
            f"the values of {summarize_names(names)} were not examined: they are not "
            "contiguous in the file"
        )
        hint = "save .contiguous() or .clone() of them"
        yield Finding(
            code="not_examined",
            severity="warning",
            message=message,
            hint=hint,
            tensors=tuple(names),
        )


def _value_findings(
    manifest: Manifest,
    stats: Sequence[TensorStats],
    roles: Mapping[str, str],
    checkpoint: OpenedCheckpoint,
    *,
    is_tied: bool,
) -> list[Finding]:
    from .value_findings import ValueContext, value_findings

    def equal(units: Sequence[tuple[TensorStats, int]]) -> Iterable[Sequence[int]]:
        groups: dict[bytes, list[int]] = {}
        for i, (x, unit) in enumerate(units):
            groups.setdefault(_digest(manifest, x, unit), []).append(i)
        return [x for x in groups.values() if len(x) > 1]

    context = ValueContext(
        packings=_packings(checkpoint), roles=roles, is_tied=is_tied, equal=equal
    )
    return value_findings(stats, context)


def _digest(manifest: Manifest, x: TensorStats, unit: int) -> bytes:
    """Read a unit again and return a digest of it."""
    digest = hashlib.blake2b()
    start = x.tensor.start + unit * x.unit_bytes
    with LocalFile(manifest.files[x.tensor.file].name) as file:
        for at in range(start, start + x.unit_bytes, CHUNK_BYTES):
            digest.update(file.read(at, min(CHUNK_BYTES, start + x.unit_bytes - at)))
    return digest.digest()
