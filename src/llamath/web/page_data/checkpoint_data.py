"""The page's data about a checkpoint: the contents of its files, and whether they match its
config.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...analysis.check.checkpoint_weights import loaded_weights
from ...analysis.check.verify.check_checkpoint import (
    VerifyReport,
    expectation_of,
    verify_checkpoint,
)
from ...analysis.check.verify.verify_tensors import Finding
from ...analysis.storage.listing import Listing, list_tensors
from ...analysis.storage.weight_bytes import StoredWeights
from ...checkpoint.formats.manifest import Manifest
from ...checkpoint.naming.detect_scheme import detect_scheme
from ...checkpoint.naming.scheme import StoredPart, StoredTensor
from ...checkpoint.open import is_remote_name, names_checkpoint, packings_of
from ...core.tree import Stack
from ...embedded import resolve_name
from ...loading import Source, load_family, with_stored_head
from ...model import FamilyModel
from ...utils.errors import FormatError, safe

_NAME_CODES = frozenset(
    "duplicate further layers missing missing_shard unexpected other_part packed tied_copy "
    "untied_copy not_compared buffer".split()
)
_VOCABULARY_CODES = frozenset(("padded_vocabulary", "tokenizer", "vocabulary"))
_MAX_TENSORS, _MAX_FILES = 50, 200
"""The number of tensors listed per finding, and of files."""
_SEVERITY_SIGNS = {"error": "✗", "warning": "!", "info": "·"}


class CheckpointModel(FamilyModel):
    """A model and the checkpoint that it was loaded from."""

    report: VerifyReport
    listing: Listing
    stored: StoredWeights  # that inference loads


class StoredWeight(NamedTuple):
    """The stored bytes of a weight, and its layer."""

    layer: int | None
    part: StoredPart
    bytes: int


def load_with_checkpoint(source: Source) -> FamilyModel:
    """Load a model, and verify the headers of a local checkpoint against it."""
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    if (
        not isinstance(source, str)
        or is_remote_name(source)
        or not names_checkpoint(resolve_name(source))
    ):
        return load_family(source)
    try:
        report = verify_checkpoint(source)
    except FormatError as error:
        model = load_family(source)
        if error.code == "no_checkpoint":
            return model
        note = f"its files were not verified: {error}" + (f"; {error.hint}" if error.hint else "")
        return model.replace(notes=(*model.notes, note))
    model = with_stored_head(report.model, report.checkpoint)
    listing = list_tensors(report.manifest)
    return CheckpointModel(
        **{name: getattr(model, name) for name in model.fields},
        report=report,
        listing=listing,
        stored=loaded_weights(model, report.manifest, listing),
    )


def checkpoint_findings(model: FamilyModel) -> dict[str, Any] | None:
    """Return the checkpoint data of the page; None without a checkpoint."""
    if not isinstance(model, CheckpointModel):
        return None
    listing, findings = model.listing, model.report.verdict.findings
    num_files, num_bytes = len(listing.files), sum(x.size for x in listing.files)
    return {
        "ok": model.report.verdict.ok,
        "says": f"{listing.total.tensors:,} tensors, {num_files:,} "
        f"{'file' if num_files == 1 else 'files'}, {num_bytes:,} bytes",
        "of": _size_formulas(listing),
        "bytes": str(listing.total.bytes),
        "verdicts": [
            _check_result(model, check, [x for x in findings if _check_of(x) == check])
            for check in _CHECKS
        ],
    }


_CHECKS = ("names", "shapes", "types", "files", "vocabulary")


def _text_without_findings(model: CheckpointModel, check: str) -> str:
    """Return the summary of a check without findings."""
    verdict, listing = model.report.verdict, model.listing
    return {
        "names": f"{verdict.matched:,} of {verdict.expected:,} tensors, by {verdict.scheme} names",
        "shapes": "as in the config",
        "types": ", ".join(map(safe, listing.dtypes)),
        "files": f"{listing.manifest.format}, {sum(x.size for x in listing.files):,} bytes",
        "vocabulary": "no findings",
    }[check]


def _check_of(finding: Finding) -> str:
    """Return the check that a finding belongs to."""
    if finding.code in _NAME_CODES:
        return "names"
    if finding.code in _VOCABULARY_CODES:
        return "vocabulary"
    return (
        "files"
        if not finding.tensors or finding.code == "index"
        else "types"
        if finding.code == "dtype"
        else "shapes"
    )


def _check_result(
    model: CheckpointModel, check: str, findings: Sequence[Finding]
) -> dict[str, Any]:
    problem = next((x for x in findings if x.severity != "info"), None)
    tables = {"types": _dtype_rows, "files": _file_rows}
    return {
        "what": check,
        "ok": problem is None,
        "says": _text_without_findings(model, check)
        if problem is None
        else f"does not match: {safe(problem.message, 2000)}",
        "of": _name_formulas(model)
        if check == "names"
        else _size_formulas(model.listing)[-1:]
        if check == "files"
        else [],
        "findings": [_encode_finding(x) for x in findings],
        "table": tables[check](model.listing) if check in tables else None,
    }


def _size_formulas(listing: Listing) -> list[list[str]]:
    """Return the numbers of tensors, files and bytes as formulas."""
    rows = _file_rows(listing)[1:-1]
    tensors, sizes = (" + ".join(x[i] for x in rows) for i in (1, 3))
    return [
        ["tensors of each file", tensors, f"{listing.total.tensors:,} tensors"],
        ["files", f"{len(listing.files):,}"],
        [
            "bytes of each file, with its header",
            sizes,
            f"{sum(x.size for x in listing.files):,} bytes",
        ],
    ]


def _name_formulas(model: CheckpointModel) -> list[list[str]]:
    """Return the numbers of expected and found tensor names as formulas."""
    verdict = model.report.verdict
    scheme = next((x for x in model.family.schemes.values() if x.name == verdict.scheme), None)
    expected = ["names expected from the config", f"{verdict.expected:,}"]
    if scheme is not None:
        tree = model.tree
        num_outside = sum(
            len(list(scheme.tensors_of_field(tree, field)))
            for field, x in tree.children
            if not isinstance(x, Stack)
        )
        names_per_layer = [
            (int(n), len(list(scheme.tensors_of_block(field, x))))
            for field, y in tree.children
            if isinstance(y, Stack)
            for x, n in y.distinct()
        ]
        if num_outside + sum(n * each for n, each in names_per_layer) == verdict.expected:
            expected[:1] = [
                "names outside of layers + layers·names per layer",
                " + ".join([f"{num_outside}", *(f"{n}·{each}" for n, each in names_per_layer)]),
            ]
    return [
        expected,
        [
            "expected − missing",
            f"{verdict.expected:,} − {verdict.expected - verdict.matched:,}",
            f"{verdict.matched:,} found",
        ],
    ]


def _encode_finding(finding: Finding) -> dict[str, Any]:
    names = [safe(name) for name in finding.tensors[:_MAX_TENSORS]]
    more = (
        [f"and {len(finding.tensors) - _MAX_TENSORS:,} more"]
        if len(finding.tensors) > _MAX_TENSORS
        else []
    )
    return {
        "says": f"{_SEVERITY_SIGNS[finding.severity]} {finding.severity}: "
        f"{safe(finding.message, 2000)}",
        "hint": safe(finding.hint, 2000),
        "tensors": "\n".join(names + more),
    }


def _dtype_rows(listing: Listing) -> list[list[str]]:
    """Return a row for each stored dtype."""
    rows = [
        [safe(name), f"{x.tensors:,}", f"{x.elements:,}", f"{x.bytes:,}"]
        for name, x in listing.dtypes.items()
    ]
    return [["dtype", "tensors", "elements", "bytes"], *rows]


def _file_rows(listing: Listing) -> list[list[str]]:
    """Return a row for each of the first files, and one for the rest."""
    rows = [
        [safe(x.name), f"{x.tensors:,}", f"{x.bytes:,}", f"{x.size:,}"]
        for x in listing.files[:_MAX_FILES]
    ]
    if rest := listing.files[_MAX_FILES:]:
        rows.append(
            [
                f"{len(rest):,} more",
                *(f"{sum(getattr(x, y) for x in rest):,}" for y in ("tensors", "bytes", "size")),
            ]
        )
    all_files = [
        "all",
        *(f"{sum(getattr(x, y) for x in listing.files):,}" for y in ("tensors", "bytes", "size")),
    ]
    return [["file", "tensors", "tensor bytes", "file bytes"], *rows, all_files]


def stored_weights(model: CheckpointModel) -> Iterator[StoredWeight]:
    """Yield the stored bytes of each weight including scales; each part of a fused weight gets
    its share.
    """
    manifest, tree = model.report.manifest, model.tree
    bytes_by_weight = _bytes_by_weight(manifest)
    schemes = expectation_of(model, model.report.checkpoint).schemes
    scheme = detect_scheme(tree, schemes, dict.fromkeys(bytes_by_weight, ())).scheme
    for field, child in tree.children:
        if not isinstance(child, Stack):
            for x in scheme.tensors_of_field(tree, field):
                yield from _split_bytes(x, bytes_by_weight.get(x.name), None)
            continue
        tensors_of_block = {id(x): scheme.tensors_of_block(field, x) for x, _ in child.distinct()}
        for i, block in enumerate(child):
            for x in tensors_of_block[id(block)]:
                yield from _split_bytes(x, bytes_by_weight.get(scheme.in_layer(x.name, i)), i)


def _bytes_by_weight(manifest: Manifest) -> Mapping[str, int]:
    """Return the bytes of each weight by its unpacked name."""
    packings, columns = packings_of(manifest), manifest.columns
    bytes_by_weight: dict[str, int] = {}
    for name, start, end in zip(columns.name, columns.start, columns.end, strict=True):
        weight = packings[name].weight if name in packings else name
        bytes_by_weight[weight] = bytes_by_weight.get(weight, 0) + end - start
    return bytes_by_weight


def _split_bytes(
    tensor: StoredTensor, num_bytes: int | None, layer: int | None
) -> Iterator[StoredWeight]:
    num_elements = sum(int(part.weight.size) for part in tensor.parts)
    if num_bytes is None or not num_elements:
        return
    assigned = elements_so_far = 0
    for part in tensor.parts:
        elements_so_far += int(part.weight.size)
        share = num_bytes * elements_so_far // num_elements - assigned
        assigned += share
        yield StoredWeight(layer, part, share)
