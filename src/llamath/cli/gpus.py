"""`llamath gpus`."""

from __future__ import annotations

import click

from ..api import gpus as find_gpus
from .command_group import command as make_command
from .model_options import GPU
from .output import TABLES, echo_report

_EXAMPLES = (
    "llamath gpus",
    "llamath gpus rtx 40",
    "llamath gpus h100-sxm",
    "llamath gpus amd --format csv",
)


@make_command("gpus", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("words", nargs=-1, type=GPU)
def command(words: tuple[str, ...], *, form: str | None) -> None:
    """List GPUs and other accelerators whose name or vendor contains all WORDS; for a single one,
    everything known about it.

    Exit code 2: none does.
    """
    echo_report(find_gpus(*words), form)
