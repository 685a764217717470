"""`llamath models`."""

from __future__ import annotations

import click

from ..core.errors import UnknownModel, nearest, safe
from .command_group import command as make_command
from .output import echo, echo_json

EXAMPLES = ("llamath models", "llamath models qwen 3", "llamath models mixtral --json")


@make_command("models", EXAMPLES)
@click.argument("words", nargs=-1)
def command(words: tuple[str, ...], *, form: str | None) -> None:
    """List the presets whose name, id or family contains all WORDS. Exit code 2: none does."""
    from ..api import models
    from ..render.text.models_text import models_text

    presets = models(*words)
    if words and not presets.models:
        from ..catalog import slugs

        near = nearest(" ".join(words), slugs())
        hint = f"did you mean {near[0]}? `llamath models` lists all" if near else "`llamath models` lists all"
        raise UnknownModel(f"no preset matches {safe(repr(' '.join(words)), 60)}", hint=hint)
    if form == "json":
        echo_json(presets.to_json())
    else:
        echo(models_text(presets))
