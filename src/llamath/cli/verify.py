"""`llamath verify`."""

from __future__ import annotations

import click

from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import MODEL, parse_changes, set_option
from .output import echo, echo_json

_EXAMPLES = (
    "llamath verify ./my-checkpoint",
    "llamath verify owner/name",
    "llamath verify consolidated.00.pth --as llama-2-7b",
)


@make_command("verify", _EXAMPLES, brief=True)
@click.argument("path", type=MODEL)
@click.option("--as", "model", type=MODEL, metavar="MODEL", help="The expected model.  [default: the config next to the files]")
@set_option
def command(path: str, *, model: str | None, changes: tuple[str, ...], form: str | None) -> int:
    """Check the checkpoint at PATH against its config. Exit code 0: complete and matching, 1: findings, 2: unreadable."""
    from ..analysis.verify.check_checkpoint import verify_checkpoint
    from ..render.text.verify_text import verify_text

    with Progress("reading headers"):
        report = verify_checkpoint(path, model, parse_changes(changes))
    if report.note:
        echo(report.note, err=True)
    if form == "json":
        echo_json(report.to_json())
    else:
        echo(report.summary if form == "brief" else verify_text(report))
    return int(not report.ok)
