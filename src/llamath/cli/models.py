"""`llamath models`."""

from __future__ import annotations

import click


@click.command("models")
@click.argument("words", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(words: tuple[str, ...], *, as_json: bool) -> None:
    """List the presets whose name, id or family has all these WORDS."""
    from ..analysis.preset_list import find_presets
    from ..render.text.models_text import models_text

    presets = find_presets(words)
    if as_json:
        import json

        click.echo(json.dumps(presets.to_json()))
    else:
        click.echo(models_text(presets))
