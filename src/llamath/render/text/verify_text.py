"""A verdict on a terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.errors import safe
from ..table import bold, dim, wrap

if TYPE_CHECKING:
    from ...analysis.verify.check_checkpoint import VerifyReport

MARKS = {"error": "✗", "warning": "!", "info": "·"}


def verify_text(check: VerifyReport) -> str:
    """One line for the verdict, one for each cause."""
    verdict, manifest = check.verdict, check.manifest
    size = sum(x.size for x in manifest.files)
    files = f"{len(manifest.files):,} {manifest.format} file{'s' if len(manifest.files) != 1 else ''}"
    what = f"{len(manifest.tensors):,} tensors in {files}, {size:,} bytes, {verdict.scheme} names"
    answer = "whole" if verdict.ok else "not what its configuration says"
    lines = [bold(f"{safe(check.path)}: {answer}")]
    lines += [dim(line) for line in wrap(f"{what}; held against {check.model.name} ({check.model.source})", indent="")]
    lines.append(f"{verdict.matched:,} of the {verdict.expected:,} tensors of {check.model.parameters.total:,} parameters are there")
    for x in verdict.findings:
        first, *rest = wrap(f"{x.message}", indent="  ")
        lines += [f"{MARKS[x.severity]}{first[1:]}", *rest]
        lines += [dim(line) for line in wrap(f"hint: {x.hint}", indent="    ")] if x.hint else []
    return "\n".join(lines)


def verdict_json(check: VerifyReport) -> dict[str, Any]:
    """The contract: `ok`, `scheme` and `findings` with code, severity, message, hint and tensors."""
    verdict = check.verdict
    return {
        "ok": verdict.ok,
        "scheme": verdict.scheme,
        "path": check.path,
        "model": check.model.name,
        "format": check.manifest.format,
        "expected": verdict.expected,
        "matched": verdict.matched,
        "findings": [{name: list(x.tensors) if name == "tensors" else getattr(x, name) for name in x.fields} for x in verdict.findings],
    }
