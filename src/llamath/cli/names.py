"""`llamath names`."""

from __future__ import annotations

import click

from ..model import Model
from .model_options import takes_model


@click.command("names")
@takes_model
@click.option("--scheme", type=click.Choice(["hf", "meta", "gguf"]), help="List every tensor as these files have it.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(model: Model, *, scheme: str | None, as_json: bool) -> None:
    """Say every weight's names in HF, Meta and GGUF files, or list the tensors that one of them holds."""
    from ..analysis.verify.weight_names import weight_names
    from ..render.text.names_text import names_text

    if scheme is None and not as_json:
        click.echo(names_text(weight_names(model)))
    elif as_json:
        import json

        from ..analysis.count.count_report import stored_names

        click.echo(json.dumps((stored_names(model, scheme) if scheme else weight_names(model)).to_json()))
    else:
        from ..render.csv_rows import unfolded_rows

        for line in unfolded_rows(model, model.scheme(scheme or "hf"), None, None):
            click.echo(line)
