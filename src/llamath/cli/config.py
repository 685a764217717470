"""`llamath config`."""

from __future__ import annotations

import click

from ..model import Model
from .model_options import takes_model


@click.command("config")
@takes_model
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.option("--params-json", "form", flag_value="params", help="As Meta's params.json.")
def command(model: Model, *, form: str | None) -> None:
    """Say MODEL's configuration as HF keys and as Meta's ModelArgs, and what each key moves."""
    from ..render.text import config_text as show

    if form == "json":
        import json

        click.echo(json.dumps(show.config_json(model), default=list))
    elif form == "params":
        click.echo(show.params_json_text(model))
        for remark in show.explained(model).remarks:
            click.echo(f"note: {remark}", err=True)
    else:
        click.echo(show.config_text(model))
