"""`llamath names`."""

from __future__ import annotations

import click

from ..api import Scheme
from ..model import Model
from .command_group import command as make_command
from .model_options import dtype_option, takes_built_model
from .output import TABLES, echo, echo_json, echo_report, note

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
@dtype_option("Format of the weights, if not MODEL's own: fp8, nvfp4, awq, gptq, mxfp4, q4_k_m, …")
def command(model: Model, *, names: Scheme | None, dtype: str, form: str | None) -> None:
    """Show the names of every weight in HF, Meta and GGUF files, or list all tensors of one of
    them.
    """
    from .. import api
    from ..render.text.checkpoints.verify_text import names_text

    if form is not None:
        report = (
            api.names(model, names=names, dtype=dtype) if names else api.names(model, dtype=dtype)
        )
        if form == "json":
            echo_json({"model": model.name, **report.to_json()})
        else:
            echo_report(report, form, lambda x: x.summary)
    elif names is None:
        echo(names_text(api.names(model, dtype=dtype)))
    else:
        stored = api.names(model, names=names, dtype=dtype)
        for x in stored.tensors:
            shape = "×".join(str(int(n)) for n in x.shape)
            echo("\t".join((x.name, shape, str(x.parameters), *([x.dtype] if x.dtype else []))))
        for text in stored.notes:
            note(text)
