"""The report of `edit` on a terminal."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from ....utils.errors import safe
from ....utils.number_format import format_count, format_signed
from ...table import align, bold, fit_table, note_lines, wrap, wrap_hanging

if TYPE_CHECKING:
    from ....conversion.edit.edit_checkpoint import EditReport

_MAX_VALUE = 60


def edit_text(report: EditReport, dry_run: bool = False) -> str:
    """Return the edits, the change that they make, the changed keys of the config, and the
    files.
    """
    lines = [bold(x) for x in wrap(f"{safe(report.model)}: {'; '.join(report.edits)}", indent="")]
    rows = [("", "before", "after", "change", "")]
    for name, x in report.changes.items():
        share = (
            f"{x.difference / x.before:+.2%}".replace("-", "−") if x.before and x.difference else ""
        )
        rows.append((name, f"{x.before:,}", f"{x.after:,}", format_signed(x.difference), share))
    lines += fit_table(rows, right=(1, 2, 3, 4), drop=(4, 3))
    lines += wrap(
        f"FLOPs of a forward pass over one sequence of {format_count(report.context, 'token')}",
        indent="  ",
    )
    if report.config:
        lines += ["", bold("config.json")]
        for key, value in report.config.items():
            text = (
                "removed"
                if value is None
                else safe(json.dumps(value, ensure_ascii=False), _MAX_VALUE)
            )
            lines += wrap_hanging(f"{safe(key, 80)} = {text}", "  ", "    ")
    kept = f" ({len(report.kept)} of them from an earlier run)" if report.kept else ""
    size = sum(x.bytes for x in report.files)
    files = f"{format_count(len(report.files), 'file')}{kept} to {safe(report.folder)}"
    verb = "would write" if dry_run else "wrote"
    lines += [
        "",
        *map(
            bold, wrap(f"{verb} {report.tensors:,} tensors, {size:,} bytes, in {files}", indent="")
        ),
    ]
    lines += [
        f"  {x}"
        for x in align(
            [(safe(os.path.basename(x.path)), f"{x.bytes:,}") for x in report.files], right=(1,)
        )
    ]
    return "\n".join([*lines, *note_lines(report.notes)])
