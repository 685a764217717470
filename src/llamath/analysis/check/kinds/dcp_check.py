"""`verify_dcp`: check that the shards of a distributed checkpoint (FSDP,
torch.distributed.checkpoint) cover each tensor exactly once.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from ....checkpoint.folders.dcp import Chunk, ChunkedTensor, DcpCheckpoint, read_dcp
from ....checkpoint.formats.dtypes import PLAIN
from ....checkpoint.formats.folder import LocalFolder
from ....checkpoint.formats.source import Part, Source
from ....checkpoint.formats.torch_files import torch_checkpoint
from ....utils.errors import FormatError, safe
from ....utils.number_format import format_count
from ..verify.structure_report import StructureReport
from ..verify.verify_tensors import Finding, summarize_names

_MAX_SPLIT_AXES = 6
"""Maximum axes along which one tensor may be split; DTensor splits along as many as the mesh has
dimensions."""


def verify_dcp(path: str) -> StructureReport:
    """Check the distributed checkpoint in a folder: files, chunks, and the tensors in them."""
    checkpoint = read_dcp(LocalFolder(path))
    findings = [
        *_file_findings(checkpoint),
        *_cover_findings(checkpoint.tensors),
        *_item_findings(checkpoint),
    ]
    bad = {name for x in findings for name in x.tensors}
    tensors = format_count(len(checkpoint.tensors), "tensor")
    return StructureReport(
        path=path,
        kind="fsdp",
        title=f"distributed checkpoint (FSDP, DCP), {tensors} in "
        f"{format_count(len(checkpoint.files), 'file')}",
        format="dcp",
        checked="each tensor's chunks are compared with its shape, and with the tensors in the "
        "files",
        findings=tuple(findings),
        expected=len(checkpoint.tensors),
        matched=sum(x.name not in bad for x in checkpoint.tensors),
        facts=_facts(checkpoint),
        matches="the chunks cover each tensor exactly once",
    )


def _facts(checkpoint: DcpCheckpoint) -> dict[str, Any]:
    elements = {x.name: prod(x.shape) for x in checkpoint.tensors}
    ranks = {int(x[1]) for name in checkpoint.files if (x := re.match(r"__(\d{1,9})_", name))}
    return {
        "tensors": len(checkpoint.tensors),
        "objects": len(checkpoint.objects),
        "elements": sum(elements.values()),
        "bytes": sum(PLAIN[x.dtype].size(elements[x.name]) for x in checkpoint.tensors),
        "dtypes": dict(Counter(x.dtype for x in checkpoint.tensors)),
        "files": len(checkpoint.files),
        "ranks": len(ranks),
        "chunks": sum(len(x.chunks) for x in checkpoint.tensors),
        "version": checkpoint.version or None,
    }


def _file_findings(checkpoint: DcpCheckpoint) -> Iterator[Finding]:
    missing = [x for x in checkpoint.files if x not in checkpoint.sizes]
    if missing:
        message = (
            f"{len(missing)} of {format_count(len(checkpoint.files), 'file')} named in .metadata "
            f"{'is' if len(missing) == 1 else 'are'} "
        )
        affected = [x.name for x in checkpoint.tensors if any(y.file in missing for y in x.chunks)]
        yield Finding(
            code="missing_shard",
            severity="error",
            message=message + f"missing: {summarize_names(missing)}",
            hint="copy the folders of all nodes together: each rank writes its own files",
            tensors=tuple(affected),
        )
    extra = sorted(checkpoint.sizes.keys() - set(checkpoint.files))
    if extra:
        message = (
            f"{format_count(len(extra), 'file')} that .metadata does not name: "
            f"{summarize_names(extra)}"
        )
        yield Finding(
            code="extra_file",
            severity="warning",
            message=message,
            hint="left from another save into this folder?",
        )
    unstored = [x.name for x in checkpoint.tensors if any(not y.file for y in x.chunks)]
    unstored += [name for name, x in checkpoint.objects.items() if not x.file]
    if unstored:
        message = (
            f"the metadata say not where {summarize_names(unstored)} "
            f"{'is' if len(unstored) == 1 else 'are'} stored"
        )
        yield Finding(code="storage", severity="error", message=message, tensors=tuple(unstored))


def _cover_findings(tensors: Iterable[ChunkedTensor]) -> Iterator[Finding]:
    """Yield a finding for each way in which chunks do not cover their tensors."""
    groups: dict[str, list[str]] = {}
    for x in tensors:
        if problem := cover_problem(x.shape, [(y.offsets, y.sizes) for y in x.chunks]):
            groups.setdefault(problem, []).append(x.name)
    for problem, names in groups.items():
        message = f"the chunks of {summarize_names(names)} {problem}"
        yield Finding(
            code="cover",
            severity="error",
            message=message,
            hint="a shard is missing or was saved twice",
            tensors=tuple(names),
        )


def cover_problem(
    shape: tuple[int, ...], chunks: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> str:
    """Return how chunks fail to cover a tensor exactly once, or an empty string.

    Exact cover needs no comparison of pairs: the indicator of a box is given by the signed sum of
    its corners, so the boxes cover the tensor exactly if the signed corners of all boxes add up to
    those of the tensor.
    """
    axes = range(len(shape))
    boxes = []
    for offsets, sizes in chunks:
        if len(offsets) != len(shape) or len(sizes) != len(shape):
            return f"have {len(sizes)} dimensions, the tensor {len(shape)}"
        if any(offsets[i] + sizes[i] > shape[i] for i in axes):
            return f"reach outside of the tensor: {list(sizes)} at {list(offsets)} in {list(shape)}"
        if all(sizes):
            boxes.append((offsets, sizes))
    total, covered = prod(shape), sum(prod(sizes) for _, sizes in boxes)
    if covered != total:
        return f"have {covered:,} elements, the tensor {total:,}"
    split = [i for i in axes if any(sizes[i] != shape[i] for _, sizes in boxes)]
    if len(split) > _MAX_SPLIT_AXES:
        return (
            f"are split along {len(split)} axes, of which at most {_MAX_SPLIT_AXES} can be checked"
        )
    if not total:
        return ""
    corners: Counter[tuple[int, ...]] = Counter()
    for offsets, sizes, sign in [*((o, s, 1) for o, s in boxes), ((0,) * len(shape), shape, -1)]:
        for ends in itertools.product((0, 1), repeat=len(split)):
            corner = tuple(offsets[i] + end * sizes[i] for i, end in zip(split, ends, strict=True))
            corners[corner] += sign * (-1) ** sum(ends)
    return "overlap, and leave other elements out" if any(corners.values()) else ""


def _item_findings(checkpoint: DcpCheckpoint) -> Iterator[Finding]:
    """Yield findings about items in the files that overlap, reach beyond the end, or hold
    another tensor than the metadata say.
    """
    items: dict[str, list[tuple[Chunk, str, str]]] = {}
    for x in checkpoint.tensors:
        for chunk in x.chunks:
            items.setdefault(chunk.file, []).append((chunk, x.name, x.dtype))
    for name, chunk in checkpoint.objects.items():
        items.setdefault(chunk.file, []).append((chunk, name, ""))
    wrong: dict[str, list[str]] = {}
    folder = LocalFolder(checkpoint.folder)
    for file, entries in items.items():
        if file not in checkpoint.sizes or (source := folder.open(file)) is None:
            continue
        with source:
            for name, problem in _wrong_items(source, entries):
                wrong.setdefault(problem, []).append(name)
    for problem, names in wrong.items():
        message = f"{summarize_names(names)}: {problem}"
        yield Finding(
            code="item",
            severity="error",
            message=message,
            hint="copy the file again",
            tensors=tuple(names),
        )


def _wrong_items(
    source: Source, entries: list[tuple[Chunk, str, str]]
) -> Iterator[tuple[str, str]]:
    file, end = safe(source.name.rpartition("/")[2], 80), 0
    for chunk, name, dtype in sorted(entries, key=lambda x: (x[0].start, x[0].length)):
        if chunk.start < end:
            yield name, f"its item in {file} overlaps the one before it"
            continue
        end = chunk.start + chunk.length
        if end > source.size:
            yield (
                name,
                (f"its item reaches beyond the end of {file}, which has {source.size:,} bytes"),
            )
        elif (
            dtype
            and not chunk.is_transformed
            and (problem := _wrong_tensor(Part(source, chunk.start, chunk.length), chunk, dtype))
        ):
            yield name, f"in {file}, {problem}"


def _wrong_tensor(item: Source, chunk: Chunk, dtype: str) -> str:
    """Return how the tensor in an item differs from its chunk, or an empty string."""
    try:
        tensors = torch_checkpoint.read(item).tensors
    except FormatError as error:
        return f"no tensor that torch.save wrote: {error}"
    if len(tensors) != 1:
        return f"expected one tensor, found {len(tensors)}"
    x = tensors[0]
    if (x.dtype, x.shape) != (dtype, chunk.sizes):
        return f"expected {dtype} {list(chunk.sizes)}, found {x.dtype} {list(x.shape)}"
    return ""
