"""`llamath quants`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..model import with_family
from ..questions.fit_questions import QuantsQuestion
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import MODEL, load_model, note_context, parse_changes, set_option
from .output import LONG, echo_report
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..model import FamilyModel, Model

_EXAMPLES = (
    "llamath quants llama-3.1-8b",
    "llamath quants qwen3-32b --on rtx-4090 --context 16k",
    "llamath quants bartowski/Llama-3.3-70B-Instruct-GGUF --on 2x3090  # which file to download",
)


@make_command("quants", _EXAMPLES, brief=True, formats=LONG)
@click.argument("model", required=False, type=MODEL)
@set_option
@asks(QuantsQuestion)
def command(
    model: str | Model | None, *, changes: tuple[str, ...], asked: Asked, form: str | None
) -> int:
    """List MODEL in each dtype and mixture of types, or the GGUF files of a folder or repository:
    sizes, and what fits on --on.

    Exit code 1: nothing fits.
    """
    from ..api import answer_quants

    changed = parse_changes(changes)
    source: str | FamilyModel = (
        model
        if isinstance(model, str) and model != "-" and not changed
        else with_family(load_model(model, changed))
    )
    question = asked.parse(QuantsQuestion)
    with Progress("sizing the model in each dtype"):
        report = answer_quants(source, question)
    note_context(report.model, report.context, question.context, form)
    echo_report(report, form)
    return int(not report.fits)
