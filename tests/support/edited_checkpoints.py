"""`edit`: an edited checkpoint, written as it is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llamath


def edit(
    source: Path, target: Path, *, force: bool = False, dry_run: bool = False, **edits: Any
) -> llamath.ConversionReport:
    """Write an edited checkpoint."""
    return llamath.convert(source, target, edit=llamath.Edit(**edits), force=force, dry_run=dry_run)
