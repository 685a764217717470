"""`verify_diffusers`: check each part of a diffusers pipeline with its own files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....checkpoint.folders.diffusers import (
    Pipeline,
    PipelinePart,
    WeightFiles,
    read_pipeline,
    read_weights,
)
from ....checkpoint.formats.folder import resolve_inside
from ....checkpoint.formats.manifest import Manifest
from ....families.registry import FAMILIES
from ....utils.errors import ConfigError, FormatError, LlamathError, safe
from ....utils.number_format import format_count
from ....utils.strict_json import read_json
from ..verify.check_checkpoint import verify_checkpoint
from ..verify.structure_report import StructureReport
from ..verify.verify_tensors import Finding, summarize_names
from .files_check import files_facts, manifest_findings, problem_finding


def verify_diffusers(path: str) -> StructureReport:
    """Check the parts of the pipeline in a folder."""
    pipeline = read_pipeline(path)
    findings: list[Finding] = []
    parts: dict[str, str] = {}
    whole = 0
    for part in pipeline.parts:
        found, text = _check_part(part)
        findings += [x.replace(message=f"{safe(part.name, 60)}: {x.message}") for x in found]
        whole += all(x.severity == "info" for x in found)
        parts[part.name] = text
    return StructureReport(
        path=path,
        kind="diffusers",
        title=f"diffusers pipeline {safe(pipeline.class_name, 60)} of "
        f"{format_count(len(pipeline.parts), 'part')}",
        format="diffusers",
        checked="for each part: its configuration, and the headers, indexes, shards, dtypes and "
        "sizes of its weights",
        findings=(*findings, *_pipeline_findings(pipeline)),
        expected=len(pipeline.parts),
        matched=whole,
        facts={"version": pipeline.version or None, **parts},
        matches="all parts are whole",
    )


def _pipeline_findings(pipeline: Pipeline) -> Iterator[Finding]:
    if pipeline.missing:
        message = (
            f"optional parts that the pipeline does not have: {summarize_names(pipeline.missing)}"
        )
        yield Finding(code="optional", severity="info", message=message)


def _check_part(part: PipelinePart) -> tuple[list[Finding], str]:
    """Return the findings about a part, and what it is in words."""
    text = f"{safe(part.class_name, 60)} ({safe(part.library, 40) or 'pipeline code'})"
    if not part.exists:
        hint = "download the whole repository, with its folders"
        return [
            Finding(
                code="missing_part", severity="error", message="its folder is missing", hint=hint
            )
        ], text
    findings: list[Finding] = []
    config: Mapping[str, Any] = {}
    if not part.config and part.needs_weights:
        findings.append(
            Finding(
                code="config",
                severity="error",
                message="it has no configuration",
                hint="download config.json",
            )
        )
    elif part.config:
        try:
            config = read_json(resolve_inside(part.folder, part.config))
        except (ConfigError, FormatError) as error:
            findings.append(
                Finding(code="config", severity="error", message=str(error), hint=error.hint)
            )
    if part.needs_weights and not part.weights:
        if part.onnx:
            findings.append(
                Finding(code="onnx", severity="info", message="ONNX files are not read")
            )
        else:
            message = "it has no weights in safetensors or .bin"
            findings.append(
                Finding(
                    code="missing_weights",
                    severity="error",
                    message=message,
                    hint="download its folder again",
                )
            )
    manifests: list[tuple[WeightFiles, Manifest]] = []
    for weights in part.weights:
        problems: list[FormatError] = []
        try:
            manifest = read_weights(part, weights, problems)
        except FormatError as error:
            findings.append(problem_finding(error))
            continue
        manifests.append((weights, manifest))
        findings += [problem_finding(x) for x in problems]
        findings += manifest_findings(manifest, {} if weights.variant else config)
    findings += _other_variants(manifests)
    findings += _known_model(part, config)
    if manifests:
        facts = files_facts(manifests[0][1])
        text += (
            f", {format_count(facts['tensors'], 'tensor')}, {facts['elements']:,} elements, "
            f"{', '.join(facts['dtypes'])}"
        )
        text += f"; also as {', '.join(x.title for x, _ in manifests[1:])}" if manifests[1:] else ""
    return findings, text


def _other_variants(manifests: list[tuple[WeightFiles, Manifest]]) -> Iterator[Finding]:
    """Yield findings about variants (fp16, .bin) with other tensors than the first files."""
    if not manifests:
        return
    first = dict(zip(manifests[0][1].columns.name, manifests[0][1].columns.shape, strict=True))
    for weights, manifest in manifests[1:]:
        shapes = dict(zip(manifest.columns.name, manifest.columns.shape, strict=True))
        if other := [
            x
            for x in (first | shapes)
            if first.get(x) != shapes.get(x) and not x.endswith("position_ids")
        ]:
            message = (
                f"{weights.title} has other tensors or shapes than "
                f"{manifests[0][0].title}: {summarize_names(other)}"
            )
            yield Finding(code="variant", severity="error", message=message, tensors=tuple(other))


def _known_model(part: PipelinePart, config: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings of a text model of a known family, which is verified against its
    config.
    """
    if FAMILIES.find(str(config.get("model_type"))) is None or not any(
        not x.variant for x in part.weights
    ):
        return
    try:
        report = verify_checkpoint(part.folder)
    except LlamathError as error:
        yield Finding(code="model", severity="error", message=str(error), hint=error.hint)
        return
    yield from (x for x in report.findings if x.code not in ("missing_shard", "index", "duplicate"))
