"""`llamath names`."""

from __future__ import annotations

import click

from ..api import Scheme
from ..model import Model
from .command_group import command as make_command
from .model_options import takes_model
from .output import echo, echo_json

_EXAMPLES = ("llamath names llama-3-8b", "llamath names llama-3-8b --names gguf")


@make_command("names", _EXAMPLES, brief=True)
@takes_model
@click.option("--names", type=click.Choice(["hf", "meta", "gguf"]), help="List every tensor under these names.")
def command(model: Model, *, names: Scheme | None, form: str | None) -> None:
    """Show the names of every weight in HF, Meta and GGUF files, or list all tensors of one of them."""
    from .. import api
    from ..render.text.verify_text import names_text

    if form is not None:
        report = api.names(model, names=names) if names else api.names(model)
        if form == "json":
            echo_json({"model": model.name, **report.to_json()})
        else:
            echo(report.summary)
    elif names is None:
        echo(names_text(api.names(model)))
    else:
        from ..render.csv_rows import unfolded_rows

        for line in unfolded_rows(model, model.scheme(names), None, None):
            echo(line)
