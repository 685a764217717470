"""`llamath names`."""

from __future__ import annotations

import click

from ..api import Scheme
from ..model import Model
from ..questions.shared_fields import WEIGHT_DTYPE
from .command_group import command as make_command
from .model_options import takes_built_model
from .output import TABLES, echo_json, echo_report
from .question_options import completed

_EXAMPLES = (
    "llamath names llama-3-8b",
    "llamath names llama-3-8b --names gguf",
    "llamath names llama-3-8b --names hf --dtype fp8",
)


@make_command("names", _EXAMPLES, brief=True, formats=TABLES)
@takes_built_model
@click.option(
    "--names",
    type=click.Choice(["hf", "meta", "gguf"]),
    help="List every tensor under these names.",
)
@click.option(
    "--dtype",
    type=completed(WEIGHT_DTYPE),
    default="",
    metavar="NAME",
    help="Format of the weights, if not MODEL's own: fp8, nvfp4, awq, gptq, mxfp4, q4_k_m, …",
)
def command(model: Model, *, names: Scheme | None, dtype: str, form: str | None) -> None:
    """Show the names of every weight in HF, Meta and GGUF files, or list all tensors of one of
    them.
    """
    from .. import api

    report = api.names(model, names=names, dtype=dtype) if names else api.names(model, dtype=dtype)
    if form == "json":
        echo_json({"model": model.name, **report.to_json()})
    else:
        echo_report(report, form)
