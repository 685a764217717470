"""`llamath models`."""

from __future__ import annotations

import click

from ..render.progress import Progress
from .command_group import command as make_command
from .output import echo, echo_json

_EXAMPLES = ("llamath models", "llamath models qwen 3", "llamath models mixtral --json")


@make_command("models", _EXAMPLES, brief=True)
@click.argument("words", nargs=-1)
def command(words: tuple[str, ...], *, form: str | None) -> None:
    """List the presets whose name, id or family contains all WORDS. Exit code 2: none does."""
    from ..api import models
    from ..render.text.catalog_text import models_text

    with Progress("counting the presets"):
        presets = models(*words)
    if form == "json":
        echo_json(presets.to_json())
    else:
        echo(presets.summary if form == "brief" else models_text(presets))
