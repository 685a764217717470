"""`llamath models`."""

from __future__ import annotations

import click


@click.command("models")
@click.argument("words", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(words: tuple[str, ...], *, as_json: bool) -> None:
    """List the presets whose name, id or family has all these WORDS."""
    from ..render.text.models_text import models_json, models_text

    if as_json:
        import json

        click.echo(json.dumps(models_json(words)))
    else:
        click.echo(models_text(words))
