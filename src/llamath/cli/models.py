"""`llamath models`."""

from __future__ import annotations

from typing import Any

import click

from ..render.progress import Progress
from .command_group import command as make_command
from .output import TABLES, echo_report

_EXAMPLES = (
    "llamath models",
    "llamath models qwen 3",
    "llamath models --type moe --max 80GiB --sort params",
)


@make_command("models", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("words", nargs=-1)
@click.option(
    "--sort",
    type=click.Choice(["params", "active", "context", "date"]),
    help="Sort, the largest or newest first.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["dense", "moe", "hybrid", "recurrent", "vision"]),
    help="Only models of this type.",
)
@click.option(
    "--max",
    "max_size",
    metavar="SIZE",
    help="Only models whose weights, as published, fit in SIZE.",
)
def command(
    words: tuple[str, ...], *, sort: Any, kind: Any, max_size: str | None, form: str | None
) -> None:
    """List the presets whose name, id or family contains all WORDS. Exit code 2: none does."""
    from ..api import models

    with Progress("counting the presets"):
        presets = models(*words, sort=sort, kind=kind, max_size=max_size)
    echo_report(presets, form)
