"""`verify_path`: check whatever is at a path or address, by the kind of checkpoint that it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...checkpoint.adapters import find_adapter
from ...checkpoint.open import open_checkpoint
from ...core.errors import ArgumentError, safe
from ...loading import Source
from .check_checkpoint import VerifyReport, verify_opened
from .structure_report import StructureReport


def verify_path(
    path: str, model: Source | None = None, changes: Mapping[str, Any] | None = None, base: Source | None = None
) -> VerifyReport | StructureReport:
    """Verify a checkpoint against a model or its own config, or an adapter against its base model."""
    opened = open_checkpoint(path, allow_partial=True)
    if model is None and (adapter := find_adapter(opened)) is not None:
        from .adapter_check import verify_adapter

        return verify_adapter(adapter, path, base, changes).replace(note=opened.commit_note)
    if base is not None:
        raise ArgumentError("base", f" is for adapters, and {safe(path)} is none", hint="verify it against another model: --as MODEL")
    return verify_opened(opened, path, model, changes)
