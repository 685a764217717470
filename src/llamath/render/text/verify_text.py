"""`verify` on a terminal: the verdict, and one line for each finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import safe
from ...core.number_format import format_count
from ..table import bold, dim, wrap

if TYPE_CHECKING:
    from ...analysis.verify.check_checkpoint import VerifyReport

_MARKS = {"error": "✗", "warning": "!", "info": "·"}


def verify_text(report: VerifyReport) -> str:
    """Return the verdict and the findings with their hints."""
    verdict, manifest, model = report.verdict, report.manifest, report.model
    size = sum(x.size for x in manifest.files)
    files = format_count(len(manifest.files), f"{manifest.format} file")
    what = f"{format_count(len(manifest.tensors), 'tensor')} in {files}, {size:,} bytes, {verdict.scheme} names"
    expected = "its config" if report.has_own_config else model.name
    answer = f"matches {expected}" if verdict.ok else f"does not match {expected}"
    lines = [bold(line) for line in wrap(f"{safe(report.path)}: {answer}", "")]
    lines += [dim(line) for line in wrap(f"{what}; verified against {model.name} ({model.source})", "")]
    total = f"{format_count(verdict.expected, 'tensor')} of {format_count(model.parameters.total, 'parameter')}"
    lines += wrap(f"{verdict.matched:,} of the {total} {'is' if verdict.matched == 1 else 'are'} there", "")
    for x in verdict.findings:
        first, *rest = wrap(x.message, "  ")
        lines += [f"{_MARKS[x.severity]}{first[1:]}", *rest]
        lines += [dim(line) for line in wrap(f"hint: {x.hint}", "    ")] if x.hint else []
    return "\n".join(lines)
