"""`llamath quants`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import (
    MODEL,
    batch_option,
    context_option,
    kv_dtype_option,
    load_model,
    note_context,
    on_option,
    parse_changes,
    set_option,
)
from .output import TABLES, echo_report

if TYPE_CHECKING:
    from ..model import Model

_EXAMPLES = (
    "llamath quants llama-3.1-8b",
    "llamath quants qwen3-32b --on rtx-4090 --context 16k",
    "llamath quants bartowski/Llama-3.3-70B-Instruct-GGUF --on 2x3090  # which file to download",
)


@make_command("quants", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("model", required=False, type=MODEL)
@set_option
@on_option("GPUs: rtx-4090, 2x3090, 4090+3060 in one machine, or 'mem=24GiB bw=1TB/s'.")
@kv_dtype_option
@context_option("Tokens of each sequence: 8192, 128k, max.")
@batch_option
def command(
    model: str | Model | None, *, changes: tuple[str, ...], form: str | None, **settings: Any
) -> int:
    """List MODEL in each dtype and mixture of types, or the GGUF files of a folder or repository:
    sizes, and what fits on --on.

    Exit code 1: nothing fits.
    """
    from ..api import quants

    changed = parse_changes(changes)
    source: str | Model = (
        model
        if isinstance(model, str) and model != "-" and not changed
        else load_model(model, changed)
    )
    with Progress("sizing the model in each dtype"):
        report = quants(source, **settings)
    note_context(report.model, report.context, settings["context"], form)
    echo_report(report, form)
    return int(not report)
