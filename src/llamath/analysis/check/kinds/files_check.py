"""`verify_files`: check headers, indexes, shards, dtypes and sizes of a checkpoint that no family
here describes.

Encoders (BERT, T5, CLIP, Whisper, …) and models of unknown families are checked so: no formula
gives their tensors, so names and shapes are not compared with the config.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from ....checkpoint.formats.manifest import Manifest
from ....checkpoint.open import OpenedCheckpoint, packings_of
from ....checkpoint.quantization.weight_format import stated_dtype
from ....families.gguf_config import with_gguf_keys
from ....families.multimodal_registry import TEXT_KEYS
from ....families.registry import FAMILIES
from ....utils.errors import ConfigError, FormatError, LlamathError, RemoteError, safe
from ....utils.number_format import format_count
from ..verify.structure_report import StructureReport
from ..verify.verify_tensors import Finding, file_findings, summarize_names

_FLOATS = frozenset(("F64", "F32", "F16", "BF16"))


def verify_files(
    opened: OpenedCheckpoint, path: str, config: Mapping[str, Any], reason: str
) -> StructureReport:
    """Check the files of a model whose family is unknown; `reason` says why it is."""
    manifest = opened.manifest
    model_type = str(config.get("model_type") or "")
    architectures = config.get("architectures")
    class_name = (
        architectures[0]
        if isinstance(architectures, list) and architectures and isinstance(architectures[0], str)
        else ""
    )
    what = safe(class_name or model_type, 60) or "a checkpoint without a config"
    compared = "are not compared with the config" if config else "have nothing to be compared with"
    return StructureReport(
        path=path,
        kind="files",
        title=f"{what}, {format_count(len(manifest.tensors), 'tensor')} in "
        f"{format_count(len(manifest.files), f'{manifest.format} file')}",
        format=manifest.format,
        checked=f"{reason}: headers, indexes, shards, dtypes and sizes are checked; names and "
        f"shapes {compared}",
        findings=(
            *(problem_finding(x) for x in opened.problems),
            *manifest_findings(manifest, config),
        ),
        expected=len(manifest.index.weight_map) if manifest.index else len(manifest.tensors),
        matched=len(manifest.tensors),
        facts=files_facts(manifest) | {"model_type": model_type},
        note=opened.commit_note,
        matches="its files are whole",
    )


def problem_finding(error: FormatError) -> Finding:
    """Return the finding about a file that cannot be read, or only in part."""
    return Finding(code=error.code, severity="error", message=str(error), hint=error.hint)


def files_facts(manifest: Manifest) -> dict[str, Any]:
    """Return the numbers of tensors, elements and bytes, and the dtypes."""
    columns = manifest.columns
    return {
        "tensors": len(columns.name),
        "elements": sum(map(prod, columns.shape)),
        "bytes": sum(columns.end) - sum(columns.start),
        "dtypes": dict(Counter(columns.dtype)),
        "files": len(manifest.files),
    }


def manifest_findings(manifest: Manifest, config: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings about files, and about dtypes that the config does not have."""
    columns = manifest.columns
    yield from file_findings(manifest, manifest.num_distinct_names < len(columns.name))
    if not columns.name:
        yield Finding(
            code="empty",
            severity="error",
            message="the files have no tensors",
            hint="download them again",
        )
    try:
        if packings_of(manifest):
            return
        declared = stated_dtype(config)
    except LlamathError:
        return
    if declared is None or declared.name not in _FLOATS:
        return
    floats = _FLOATS - {declared.name}
    stored = zip(columns.name, columns.dtype, columns.shape, strict=True)
    other = [name for name, dtype, shape in stored if dtype in floats and len(shape) > 1]
    if other:
        matrices = format_count(len(other), "matrix", "matrices")
        message = (
            f"{matrices} of another dtype than {declared.name}, which the config names: "
            f"{summarize_names(other)}"
        )
        yield Finding(code="dtype", severity="warning", message=message, tensors=tuple(other))


def is_unknown_family(config: Mapping[str, Any]) -> bool:
    """Whether a config is of a model type that no family here builds, and contains no text model
    of one.
    """
    texts = [config[x] for x in TEXT_KEYS if isinstance(config.get(x), Mapping)]
    types = [config.get("model_type"), *(x.get("model_type") for x in texts)]
    return not any(isinstance(x, str) and FAMILIES.find(x) is not None for x in types)


def config_of(opened: OpenedCheckpoint) -> Mapping[str, Any] | None:
    """Return the keys of the config next to a checkpoint; None if there is none that can be
    read.
    """
    try:
        return with_gguf_keys(opened.config).keys
    except (ConfigError, FormatError, RemoteError):
        return None
