"""The report of `convert` and `merge` on a terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ....utils.errors import safe
from ...table import align, bold, dim, wrap

if TYPE_CHECKING:
    from ....conversion.convert_checkpoint import ConversionReport


def conversion_text(report: ConversionReport, seconds: float, dry_run: bool) -> str:
    """Return a line with the summary, the files, and the notes."""
    written = sum(x.bytes for x in report.files if os.path.basename(x.path) not in report.kept)
    rate = (
        f", {seconds:.1f} s, {written / 1e9 / seconds:.2f} GB/s"
        if seconds >= 0.1 and written and not dry_run
        else ""
    )
    kept = f" ({len(report.kept)} of them from an earlier run)" if report.kept else ""
    verb = "would write" if dry_run else "wrote"
    files = "1 file" if len(report.files) == 1 else f"{len(report.files)} files"
    lines = [
        bold(
            f"{verb} {report.tensors:,} tensors, {report.bytes:,} bytes, in {files}{kept} "
            f"to {safe(report.folder)}{rate}"
        )
    ]
    lines += [
        f"  {x}"
        for x in align(
            [(safe(os.path.basename(x.path)), f"{x.bytes:,}") for x in report.files], right=(1,)
        )
    ]
    return "\n".join(
        lines
        + [dim(line) for note in report.notes for line in wrap(f"· {safe(note, 400)}", indent="  ")]
    )
