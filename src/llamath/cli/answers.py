"""What `ls`, `verify` and `count` answer, once it is known what is asked; each gives its exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import ConfigError, RemoteError, UnknownModel
from .output import say


def ls(path: str, *, unfold: bool = False, tree: bool = False, form: str | None = None) -> int:
    """What is in the checkpoint."""
    from ..analysis.verify.listing import list_tensors
    from ..checkpoint.open import open_checkpoint

    checkpoint = open_checkpoint(path)
    if checkpoint.commit_note:
        say(checkpoint.commit_note, err=True)
    declared = None
    try:
        declared = checkpoint.packing_config
    except (ConfigError, RemoteError) as error:
        say(f"note: {error}; how the values are packed is told from the headers alone", err=True)
    found = list_tensors(checkpoint.manifest, declared)
    if form == "json":
        import json

        say(json.dumps(found.to_json()).replace("\x7f", "\\u007f"))  # no control character of a file's names reaches the terminal
    elif form == "csv":
        from ..render.text.ls_text import ls_csv

        say(ls_csv(found, unfold))
    else:
        from ..render.text.ls_text import ls_text

        say("\n".join(ls_text(path, found, unfold, tree)))
    return 0


def verify(path: str, *, model: str | None = None, changes: Mapping[str, Any] | None = None, as_json: bool = False) -> int:
    """Whether the checkpoint is what its configuration says."""
    from ..analysis.verify.check_checkpoint import verify_checkpoint
    from ..render.text.verify_text import verify_text

    checked = verify_checkpoint(path, model, changes)
    if checked.note:
        say(checked.note, err=True)
    if as_json:
        import json

        say(json.dumps(checked.to_json()))
    else:
        say(verify_text(checked))
    return 0 if checked.verdict.ok else 1


def count(name: str, *, form: str | None = None) -> int | None:
    """The parameters of a model; None, and nothing said, where there is no family to count by."""
    from ..loading import load

    try:
        model = load(name)
    except UnknownModel:
        return None
    if form == "json":
        import json

        from ..analysis.count.count_report import CountReport

        say(json.dumps(CountReport(model=model).to_json()))
    else:
        from ..render.text.count_text import count_text

        say(count_text(model))
    return 0
