"""`llamath gpus`."""

from __future__ import annotations

import click

from ..api import gpus as find_gpus
from ..questions.value_kinds import GPU_NAMES
from .command_group import command as make_command
from .output import TABLES, echo_report
from .question_options import completed

_EXAMPLES = (
    "llamath gpus",
    "llamath gpus rtx 40",
    "llamath gpus h100-sxm",
    "llamath gpus amd --format csv",
)


@make_command("gpus", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("words", nargs=-1, type=completed(GPU_NAMES))
def command(words: tuple[str, ...], *, form: str | None) -> None:
    """List GPUs and other accelerators whose name or vendor contains all WORDS; for a single one,
    everything known about it.

    Exit code 2: none does.
    """
    echo_report(find_gpus(*words), form)
