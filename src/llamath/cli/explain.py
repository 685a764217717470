"""`llamath explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import MODEL, note_broken_files
from .output import TABLES, echo_report

if TYPE_CHECKING:
    from ..model import Model

_EXAMPLES = (
    "llamath explain 8030261248",
    "llamath explain 3540389888",
    "llamath explain 685B --like deepseek-v3",
)


@make_command("explain", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("number")
@click.option("--like", type=MODEL, metavar="MODEL", help="Consider this model only.")
@click.option("--all", "everything", is_flag=True, help="Show unlikely explanations, too.")
def command(number: str, *, like: str | Model | None, everything: bool, form: str | None) -> int:
    """Explain a number of parameters: which model, and what was changed, left out, added or
    quantized. Exit code 1: nothing found.

    A number written in full is explained exactly; for one of few digits (685B, 1.5e9), all counts
    that round to it are listed.
    """
    from ..api import explain

    with Progress("searching"):
        report = explain(number, like=like, all=everything)
    note_broken_files(like)
    echo_report(report, form)
    return int(not report)
