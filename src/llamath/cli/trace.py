"""`llamath trace`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..embedded import MODEL_NAME
from ..questions.pass_questions import TraceQuestion
from ..render.progress import Bar, Progress
from ..utils.errors import LlamathError, safe
from .command_group import command as make_command
from .generation_options import device_option
from .model_options import (
    MODEL,
    load_model,
    local_model,
    note_broken_files,
    parse_changes,
    picture_option,
    set_option,
)
from .output import TABLES, PictureFile, echo_report, note, print_error
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..torch.debug.trace_run import Trace

_EXAMPLES = (
    "llamath trace llama-3-8b",
    "llamath trace deepseek-v3 --layers 3 --context 4096",
    "llamath trace ./Llama-3.2-1B 'The capital of France is'",
    "llamath trace --values 'Anna had a red'",
)


@make_command("trace", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("model", required=False, type=MODEL)
@click.argument("prompt", required=False)
@set_option
@asks(TraceQuestion)
@click.option(
    "--values",
    is_flag=True,
    help="Show the numbers that the native engine computes for PROMPT in a layer, and what each "
    "head attends to.",
)
@picture_option
@device_option
def command(
    model: str | None,
    prompt: str | None,
    *,
    asked: Asked,
    changes: tuple[str, ...],
    values: bool,
    device: str,
    picture: PictureFile | None,
    form: str | None,
) -> None:
    """Follow a forward pass through MODEL step by step: shapes, weights, FLOPs and KV cache; with a
    PROMPT, the likely next tokens, too.

    MODEL is a preset, a config or a checkpoint. A quoted PROMPT alone is read by the bundled demo
    model. -o draws the block with its shapes.
    """
    from ..api import answer_trace

    model, prompt = _model_and_prompt(model, prompt)
    question = asked.parse(TraceQuestion)
    new = parse_changes(changes)
    if values:
        _watch(model, prompt, question, new, form, (picture is not None, device != "cpu"))
        return
    if prompt is None:
        loaded = load_model(model, new)
        note_broken_files(model)
        with Progress("tracing the model"):
            report = answer_trace(loaded, None, question)
    else:
        from ..generation.bus_error import exit_on_bus_error

        if question.images:
            raise click.UsageError("--images traces shapes: not with a PROMPT")
        exit_on_bus_error(print_error)
        path = local_model(model or MODEL_NAME)
        with Bar("running the model") as bar:
            report = answer_trace(
                path, prompt, question, device=device, changes=new, progress=bar.update
            )
    if picture is not None:
        _draw(report, picture)
    echo_report(report, form)
    for text in report.model.notes if form in ("brief", "csv") else ():
        note(text)


def _watch(
    model: str | None,
    prompt: str | None,
    question: TraceQuestion,
    changes: Mapping[str, Any],
    form: str | None,
    others: tuple[bool, bool],
) -> None:
    """Show the numbers of a pass over the prompt."""
    from ..generation.bus_error import exit_on_bus_error
    from ..native.watched_pass import watch

    if prompt is None:
        model, prompt = None, model
    if prompt is None:
        raise click.UsageError("--values needs a PROMPT: llamath trace --values 'Anna had a red'")
    given = zip(
        ("--images", "--next", "--output", "--device"),
        (question.images, question.decode, *others),
        strict=True,
    )
    if name := next((x for x, is_given in given if is_given), ""):
        raise click.UsageError(f"{name} is not combined with --values")
    exit_on_bus_error(print_error)
    path = local_model(model or MODEL_NAME)
    report = watch(prompt, path, layer=question.layer or 0, changes=changes)
    echo_report(report, form)
    for text in report.llama.notes:
        note(text)


def _draw(report: Trace, file: PictureFile) -> None:
    from ..render.svg.block_svg import block_svg

    if not report.walk.layers:
        raise LlamathError(f"{safe(report.model.name)} has no layers to draw")
    file.write(block_svg(report.model, report.walk, report.layer))


def _model_and_prompt(model: str | None, prompt: str | None) -> tuple[str | None, str | None]:
    """Return the model and the prompt; a single argument with spaces that is no file is a prompt
    for the bundled model.
    """
    if (
        model is None
        or prompt is not None
        or os.path.lexists(model)
        or "=" in model
        or not any(x.isspace() for x in model)
    ):
        return model, prompt
    return None, model
