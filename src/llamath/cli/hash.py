"""`llamath hash`."""

from __future__ import annotations

import click

from .command_group import command as make_command
from .model_options import MODEL
from .output import TABLES, echo, echo_report, note

_EXAMPLES = ("llamath hash ./Llama-3.2-1B", "llamath hash model.gguf --brief")


@make_command("hash", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("path", type=MODEL)
def command(path: str, *, form: str | None) -> None:
    """Print one hash of the weights at PATH, equal for equal weights in any lossless format.

    --brief prints the hash alone, and --json and --format also the hash of each weight.
    """
    from .. import api
    from ..render.progress import Bar

    with Bar("reading headers") as bar:
        report = api.hash_weights(path, progress=bar.update)
    for text in report.notes if form != "json" else ():
        note(text)
    if form == "brief":
        echo(report.hash)
    else:
        echo_report(report, form)
