"""`llamath cost`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import (
    context_option,
    dtype_option,
    kv_dtype_option,
    note_context,
    on_option,
    takes_model,
)
from .output import TABLES, echo_report

if TYPE_CHECKING:
    from ..model import Model

_EXAMPLES = (
    "llamath cost llama-3.3-70b --on 4xh100 --price '$2.5/h'",
    "llamath cost deepseek-v3 --on 16xh200 --price 3/h --context 8k --output 1k",
    "llamath cost llama-3.1-8b --on 1024xh100 --price 2/h --train 15T",
)


@make_command("cost", _EXAMPLES, brief=True, formats=TABLES)
@partial(takes_model, reads_files=True)
@on_option(
    "GPUs: 8xh100, rtx-4090, or '8x mem=80GiB bw=2TB/s bf16=300TF power=700W'.", required=True
)
@click.option(
    "--price", default="", metavar="PRICE", help="Price of a GPU for an hour: 2.5/h, $2.5/h."
)
@click.option(
    "--output",
    default="256",
    show_default=True,
    metavar="TOKENS",
    help="Generated tokens of a sequence; the rest of --context is its prompt.",
)
@click.option(
    "--batch", type=int, metavar="N", help="Sequences at once.  [default: as many as fit]"
)
@click.option(
    "--grid",
    type=float,
    metavar="KG",
    help="kg CO₂e per kWh of electricity.  [default: 0.45829, the world's average]",
)
@click.option(
    "--train",
    default="",
    metavar="COUNT",
    help="Also the cost of training on this many tokens: 15T.",
)
@dtype_option()
@kv_dtype_option
@context_option("Tokens of each sequence, prompt and output: 8192, 128k, max.")
def command(model: Model, *, form: str | None, **settings: Any) -> int:
    """Estimate the price, energy and CO₂ of a million tokens of MODEL on --on, and of a training
    run: intervals from published runs.
    """
    from ..api import cost

    with Progress("sizing the model"):
        report = cost(
            model, **{name: value for name, value in settings.items() if value not in ("", None)}
        )
    note_context(
        model, report.generation.prompt + report.generation.output, settings["context"], form
    )
    echo_report(report, form)
    return 0
