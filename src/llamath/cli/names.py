"""`llamath names`."""

from __future__ import annotations

import click

from ..model import Model
from .options import takes_model


@click.command("names")
@takes_model
@click.option("--scheme", type=click.Choice(["hf", "meta", "gguf"]), default="hf", help="Whose files.", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(model: Model, *, scheme: str, as_json: bool) -> None:
    """Every tensor of MODEL as a checkpoint on disk has it: name and shape."""
    if as_json:
        import json

        from ..show.json import names_json

        click.echo(json.dumps(names_json(model, scheme), ensure_ascii=False))
        return
    from ..show.rows import unfolded

    for line in unfolded(model, model.scheme(scheme), None, None):
        click.echo(line)
