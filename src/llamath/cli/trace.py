"""`llamath trace`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from ..checkpoint.open import find_repo
from ..embedded import MODEL_NAME, resolve_name
from ..model import Model
from ..questions.trace_question import TraceQuestion
from ..render.progress import Progress
from ..utils.errors import FormatError, LlamathError, safe
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
from .output import TABLES, PictureFile, echo, echo_json, note, print_error, stated_command
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..analysis.graph.walkthrough import Walkthrough
    from ..tokenizers import Tokenizer
    from ..torch.module import Decoder

_TOP = 5
"""How many likely next tokens are shown."""
_EXAMPLES = (
    "llamath trace llama-3-8b",
    "llamath trace deepseek-v3 --layer 3 --context 4096",
    "llamath trace ./Llama-3.2-1B 'The capital of France is'",
)


@make_command("trace", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("model", required=False, type=MODEL)
@click.argument("prompt", required=False)
@set_option
@asks(TraceQuestion)
@picture_option
@device_option
def command(
    model: str | None,
    prompt: str | None,
    *,
    asked: Asked,
    changes: tuple[str, ...],
    device: str,
    picture: PictureFile | None,
    form: str | None,
) -> None:
    """Follow a forward pass through MODEL step by step: shapes, weights, FLOPs and KV cache; with a
    PROMPT, the likely next tokens, too.

    MODEL is a preset, a config or a checkpoint. A quoted PROMPT alone is read by the bundled demo
    model. --picture draws the block with its shapes.
    """
    from ..analysis.image_pass import image_pass, parse_images
    from ..render.text.trace_text import (
        TokenTexts,
        TraceView,
        trace_summary,
        trace_text,
    )
    from ..torch.debug.trace_run import trace

    location, prompt = _model_and_prompt(model, prompt)
    question = asked.parse(TraceQuestion)
    if question.images and prompt is not None:
        raise click.UsageError(
            "--images traces shapes, without a PROMPT: the text model alone is run"
        )
    if prompt is not None and not prompt.strip():
        raise click.UsageError("the prompt is empty: a pass needs at least one token")
    if location is None and prompt is not None:
        location = MODEL_NAME
    if location is not None:
        location = (
            resolve_name(location)
            if prompt is None or find_repo(location) is None
            else local_model(location)
        )
    loaded, layer = load_model(location, parse_changes(changes)), question.layer
    if prompt is None:
        loaded = loaded.computable
        num_tokens = question.context
        note_broken_files(location)
        images = parse_images(question.images) if question.images else None
        if images is not None:
            num_tokens += image_pass(loaded.tree, images).tokens
        with Progress("tracing the model"):
            report, words = (
                trace(loaded, [0] * num_tokens, layer=layer, images=images),
                TokenTexts(),
            )
    else:
        loaded, module, tokenizer = _open(loaded, location, device, changes)
        ids = tokenizer.encode(prompt, parse_special_tokens=True)
        with Progress("running the model"):
            report = trace(loaded, ids, module, layer, _TOP)
        shown = (*ids, *(x for x, _ in report.top_tokens))
        words = TokenTexts({x: tokenizer.decode([x], keep_special_tokens=True) for x in shown})
    decode = question.decode
    if picture is not None:
        walk = report.following.walk if decode and report.following else report.first.walk
        _draw(loaded, walk, picture, layer)
    if form == "json":
        echo_json(report.replace(texts=words.texts).to_json())
    elif form in TABLES:
        from ..analysis.graph.step_table import step_table
        from ..render.csv_rows import tables_rows

        traced = (report.following if decode else None) or report.first
        summary = trace_summary(loaded, report, words, TraceView(decode, layer))
        table = step_table(traced.walk, layer)
        echo("\n".join(tables_rows(summary, [table], form or "", stated_command())))
    else:
        as_text = trace_summary if form == "brief" else trace_text
        echo(as_text(loaded, report, words, TraceView(decode, layer)))


def _draw(model: Model, walk: Walkthrough, files: PictureFile, layer: int | None) -> None:
    from ..render.svg.block_svg import block_svg

    if not walk.layers:
        raise LlamathError(f"{safe(model.name)} has no layers to draw")
    files.write(block_svg(model, walk, layer))


def _open(
    model: Model, location: str | None, device: str, changed: tuple[str, ...]
) -> tuple[Model, Decoder | None, Tokenizer]:
    """Return the model that processes the prompt, its module if there are weights, and its
    tokenizer.
    """
    if location is not None and not _has_weights(location):
        from ..tokenizers import load_tokenizer

        if not os.path.isdir(location):
            hint = (
                "leave out the prompt to see the shapes (--context N), or give a folder with "
                "weights and a tokenizer"
            )
            raise LlamathError(f"{safe(location)} has no tokenizer for the prompt", hint=hint)
        return model, None, load_tokenizer(location)
    from ..generation.bus_error import exit_on_bus_error
    from ..render.progress import Bar
    from ..torch import open_model

    exit_on_bus_error(print_error)
    from ..tokenizers import load_tokenizer
    from ..torch.torch_session import check_tokenizer

    changes = parse_changes(changed)
    with Bar("opening the checkpoint") as bar:
        opened = open_model(
            location or MODEL_NAME, None, device, progress=bar.update, changes=changes
        )
    for text in opened.notes:
        note(text)
    tokenizer = load_tokenizer(opened.folder)
    check_tokenizer(tokenizer, opened.module.embed.weight.shape[0])
    return opened.model, opened.module, tokenizer


def _has_weights(location: str) -> bool:
    """Return whether this is a checkpoint, and not a preset, a config or a folder without
    tensors.
    """
    from ..checkpoint.open import open_checkpoint

    if not os.path.lexists(location) or location.endswith(".json"):
        return False
    try:
        open_checkpoint(location)
    except FormatError as error:
        return error.code != "no_checkpoint"
    return True


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
