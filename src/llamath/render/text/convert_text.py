"""What a conversion wrote, on a terminal and as JSON."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...core.errors import safe
from ..table import align, bold, dim, wrap

if TYPE_CHECKING:
    from ...conversion.convert_checkpoint import ConversionReport


def format_conversion(done: ConversionReport, seconds: float, dry: bool) -> str:
    """A line of summary, the files, and what there is to say."""
    size = sum(done.files.values())
    written = size - sum(done.files[x] for x in done.kept)
    rate = f", {seconds:.1f} s, {written / 1e9 / seconds:.2f} GB/s" if seconds >= 0.1 and written and not dry else ""
    kept = f" ({len(done.kept)} of them from an earlier run)" if done.kept else ""
    verb = "would write" if dry else "wrote"
    lines = [bold(f"{verb} {done.tensors:,} tensors, {size:,} bytes, in {len(done.files)} files{kept} to {safe(done.folder)}{rate}")]
    lines += [f"  {x}" for x in align([(safe(name), f"{n:,}") for name, n in done.files.items()], right=(1,))]
    return "\n".join(lines + [dim(line) for note in done.notes for line in wrap(f"· {safe(note, 400)}", indent="  ")])


def converted_json(done: ConversionReport) -> dict[str, Any]:
    """The contract: `folder`, `files`, `bytes`, `tensors`, `dtype`, `kept` and `notes`."""
    files = [{"path": os.path.join(done.folder, name), "bytes": n} for name, n in done.files.items()]
    return {
        "folder": done.folder,
        "files": files,
        "bytes": sum(done.files.values()),
        "tensors": done.tensors,
        "dtype": done.dtype,
        "kept": list(done.kept),
        "notes": list(done.notes),
    }
