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
    "llamath verify ./my-adapter --base ./my-checkpoint",
)


@make_command("verify", _EXAMPLES, brief=True)
@click.argument("path", type=MODEL)
@click.option("--as", "model", type=MODEL, metavar="MODEL", help="The expected model.  [default: the config next to the files]")
@click.option("--base", type=MODEL, metavar="MODEL", help="The base model of an adapter.  [default: the one that it names]")
@set_option
def command(path: str, *, model: str | None, base: str | None, changes: tuple[str, ...], form: str | None) -> int:
    """Check the checkpoint at PATH against its config, or an adapter against its base model.

    Exit code 0: complete and matching, 1: findings, 2: unreadable.
    """
    from ..analysis.verify.structure_report import StructureReport
    from ..analysis.verify.verify_path import verify_path
    from ..render.text.verify_text import structure_text, verify_text

    with Progress("reading headers"):
        report = verify_path(path, model, parse_changes(changes), base)
    if report.note:
        echo(report.note, err=True)
    if form == "json":
        echo_json(report.to_json())
    else:
        text = structure_text(report) if isinstance(report, StructureReport) else verify_text(report)
        echo(report.summary if form == "brief" else text)
    return int(not report.ok)
