"""`llamath trace`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ..checkpoint.open import find_repo
from ..embedded import MODEL_NAME, resolve_name
from ..model import Model
from ..questions.memory_questions import MemoryQuestion
from ..render.progress import Progress
from ..utils.errors import FormatError, LlamathError, safe
from ..utils.units import parse_tokens
from .command_group import command as make_command
from .generation_options import compute_dtype_option, device_option
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
from .question_options import field_option

if TYPE_CHECKING:
    from ..analysis.graph.walkthrough import Walkthrough
    from ..tokenizers import Tokenizer
    from ..torch.module import Decoder

_DEFAULT_TOKENS, _MAX_TOKENS, _TOP = 7, 1 << 17, 5
"""Tokens of a pass without a prompt, the most of any pass, and how many likely next tokens are
shown."""
_EXAMPLES = (
    "llamath trace llama-3-8b",
    "llamath trace deepseek-v3 --layer 3 --tokens 4096",
    "llamath trace ./Llama-3.2-1B 'The capital of France is'",
)


@make_command("trace", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("model", required=False, type=MODEL)
@click.argument("prompt", required=False)
@set_option
@click.option(
    "--tokens",
    metavar="TOKENS",
    help=f"Number of tokens without PROMPT: 512, 4k.  [default: {_DEFAULT_TOKENS}]",
)
@click.option("--layer", type=int, metavar="N", help="Show this layer only.")
@field_option(MemoryQuestion, "images")
@click.option(
    "--next", "decode", is_flag=True, help="Show the decoding of the next token with the KV cache."
)
@picture_option
@compute_dtype_option("Dtype to compute in: bf16, fp16 or fp32.  [default: as stored]")
@device_option
def command(
    model: str | None,
    prompt: str | None,
    *,
    changes: tuple[str, ...],
    form: str | None,
    **options: Any,
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
    if options["images"] and prompt is not None:
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
    loaded, layer = load_model(location, parse_changes(changes)), options["layer"]
    if prompt is None:
        loaded = loaded.computable
        num_tokens = _num_tokens(options["tokens"])
        note_broken_files(location)
        images = parse_images(options["images"]) if options["images"] else None
        if images is not None:
            num_tokens += image_pass(loaded.tree, images).tokens
        with Progress("tracing the model"):
            report, words = (
                trace(loaded, [0] * num_tokens, layer=layer, images=images),
                TokenTexts(),
            )
    else:
        loaded, module, tokenizer = _open(loaded, location, options | {"changes": changes})
        ids = tokenizer.encode(prompt, parse_special_tokens=True)
        with Progress("running the model"):
            report = trace(loaded, ids, module, layer, _TOP)
        shown = (*ids, *(x for x, _ in report.top_tokens))
        words = TokenTexts({x: tokenizer.decode([x], keep_special_tokens=True) for x in shown})
    if options["picture"] is not None:
        walk = (
            report.following.walk if options["decode"] and report.following else report.first.walk
        )
        _draw(loaded, walk, options["picture"], layer)
    if form == "json":
        echo_json(report.replace(texts=words.texts).to_json())
    elif form in TABLES:
        from ..analysis.graph.step_table import step_table
        from ..render.csv_rows import tables_rows

        traced = (report.following if options["decode"] else None) or report.first
        summary = trace_summary(loaded, report, words, TraceView(options["decode"], layer))
        table = step_table(traced.walk, layer)
        echo("\n".join(tables_rows(summary, [table], form or "", stated_command())))
    else:
        as_text = trace_summary if form == "brief" else trace_text
        echo(as_text(loaded, report, words, TraceView(options["decode"], layer)))


def _num_tokens(text: str | None) -> int:
    try:
        tokens = _DEFAULT_TOKENS if text is None else parse_tokens(text)
    except LlamathError as error:
        raise LlamathError(f"--tokens: {error}", hint=error.hint) from None
    if tokens > _MAX_TOKENS:
        raise LlamathError(f"--tokens should be at most {_MAX_TOKENS:,}, found {tokens:,}")
    return tokens


def _draw(model: Model, walk: Walkthrough, files: PictureFile, layer: int | None) -> None:
    from ..render.svg.block_svg import block_svg

    if not walk.layers:
        raise LlamathError(f"{safe(model.name)} has no layers to draw")
    files.write(block_svg(model, walk, layer))


def _open(
    model: Model, location: str | None, options: dict[str, Any]
) -> tuple[Model, Decoder | None, Tokenizer]:
    """Return the model that processes the prompt, its module if there are weights, and its
    tokenizer.
    """
    if location is not None and not _has_weights(location):
        from ..tokenizers import load_tokenizer

        if not os.path.isdir(location):
            hint = (
                "leave out the prompt to see the shapes (--tokens N), or give a folder with "
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

    changes = parse_changes(options["changes"])
    with Bar("opening the checkpoint") as bar:
        opened = open_model(
            location or MODEL_NAME,
            options["dtype"],
            options["device"],
            progress=bar.update,
            changes=changes,
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
