"""`verify_state_dict`: compare the tensors of a checkpoint with those of a model without a
family: names, shapes, files.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from math import prod

from ...checkpoint.naming.tied_copies import find_tied_copies
from ...checkpoint.naming.training_names import fold_numbers, model_tensors
from ...checkpoint.open import OpenedCheckpoint, packings_of
from ...model import TensorModel
from ...utils.errors import ConfigError, RemoteError, safe
from ...utils.number_format import format_count
from .kinds.files_check import files_facts, manifest_findings, problem_finding
from .verify.structure_report import StructureReport
from .verify.verify_tensors import Finding, is_buffer, summarize_names, tied_copy_finding

Shape = tuple[int, ...]


def verify_state_dict(opened: OpenedCheckpoint, path: str, model: TensorModel) -> StructureReport:
    """Compare a checkpoint with the state dict of a model; a tied tensor may be stored or not."""
    plain = model_tensors(opened.manifest, [frozenset(fold_numbers(x.name) for x in model.tensors)])
    manifest = plain.manifest
    expected = _expected_shapes(model, frozenset(manifest.columns.name))
    shapes, packed = _stored_shapes(opened.replace(manifest=manifest), expected)
    findings = [
        *map(problem_finding, opened.problems),
        *manifest_findings(manifest, model.config.data),
    ]
    if plain.description:
        findings.append(Finding(code="prefix", severity="warning", message=plain.description))
    if packed:
        findings.append(
            Finding(
                code="packed",
                severity="info",
                message=f"{format_count(len(packed), 'tensor')} of packed weights: {packed[0]}",
            )
        )
    incomplete = bool(manifest.absent_files or opened.problems)
    findings += _differences(model, expected, shapes, incomplete)
    findings += map(
        tied_copy_finding, find_tied_copies(opened.replace(manifest=manifest), model.tied_names)
    )
    return StructureReport(
        path=path,
        kind="state_dict",
        title=f"{format_count(len(manifest.tensors), 'tensor')} in "
        f"{format_count(len(manifest.files), f'{manifest.format} file')}",
        format=manifest.format,
        checked=f"names and shapes {model.claim}; headers, indexes, shards, dtypes and sizes",
        findings=tuple(findings),
        expected=len(expected),
        matched=sum(shapes.get(name) == shape for name, shape in expected.items()),
        model=model.name,
        scheme="hf",
        facts=files_facts(manifest),
        note=opened.commit_note,
        matches=f"matches {model.name} {model.claim}",
    )


def _expected_shapes(model: TensorModel, stored: Container[str]) -> dict[str, Shape]:
    """Return the shapes of the tensors that files hold; of tied ones, a copy does if it is the
    only one that is stored.
    """
    copies = {
        x.tied: x.name
        for x in model.tensors
        if x.tied and x.tied not in stored and x.name in stored
    }
    return {copies.get(x.name, x.name): x.shape for x in model.tensors if not x.tied}


def _stored_shapes(
    opened: OpenedCheckpoint, expected: Mapping[str, Shape]
) -> tuple[dict[str, Shape], list[str]]:
    """Return the shapes of stored tensors once unpacked, and the names of the packings."""
    columns = opened.manifest.columns
    try:
        section = opened.packing_config
    except (ConfigError, RemoteError):
        section = None
    packings = packings_of(opened.manifest, section)
    shapes = {
        name: shape
        for name, shape in zip(columns.name, columns.shape, strict=True)
        if name not in packings
    }
    for x in packings.values():
        if x.role == "values":
            wanted = expected.get(x.weight)
            shapes[x.weight] = wanted if wanted is not None and x.fits(wanted) else x.shape or ()
    return shapes, list(dict.fromkeys(x.kind for x in packings.values() if x.kind))


def _differences(
    model: TensorModel,
    expected: Mapping[str, Shape],
    shapes: Mapping[str, Shape],
    incomplete: bool,
) -> Iterator[Finding]:
    tied, buffers = (
        {x.name for x in model.tensors if x.tied},
        {x.name for x in model.tensors if x.is_buffer},
    )
    missing = [name for name in expected if name not in shapes]
    if missing and not incomplete:
        size = sum(prod(expected[name]) for name in missing)
        weights = [name for name in missing if name not in buffers]
        message = (
            f"{format_count(len(missing), 'tensor')} with {format_count(size, 'element')} "
            f"missing: {summarize_names(missing)}"
        )
        hint = "" if weights else "they are buffers, which the class fills with its own values"
        severity = "error" if weights else "warning"
        yield Finding(
            code="missing", severity=severity, message=message, hint=hint, tensors=tuple(missing)
        )
    unexpected = [name for name in shapes if name not in expected]
    for code, severity, what, names in (
        (
            "buffer",
            "info",
            "recomputed by every loader (buffers)",
            [x for x in unexpected if x not in tied and is_buffer(x)],
        ),
        (
            "unexpected",
            "warning",
            "not in the class that is built",
            [x for x in unexpected if x not in tied and not is_buffer(x)],
        ),
    ):
        if names:
            is_or_are = "is" if len(names) == 1 else "are"
            message = (
                f"{format_count(len(names), 'tensor')} {is_or_are} {what}: {summarize_names(names)}"
            )
            yield Finding(code=code, severity=severity, message=message, tensors=tuple(names))
    by_shape: dict[tuple[Shape, Shape], list[str]] = {}
    for name, shape in expected.items():
        if (found := shapes.get(name, shape)) != shape:
            by_shape.setdefault((found, shape), []).append(name)
    for (found, shape), names in by_shape.items():
        message = f"{safe(summarize_names(names))}: {list(found)}, expected {list(shape)}"
        yield Finding(code="shape", severity="error", message=message, tensors=tuple(names))
