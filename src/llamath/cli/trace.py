"""`llamath trace`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import FormatError, LlamathError, safe
from ..embedded import MODEL_NAME, named
from ..model import Model
from .model_options import changed, takes_model
from .output import say
from .save_file import save

if TYPE_CHECKING:
    from ..analysis.graph.walkthrough import Walkthrough
    from ..run.layers import Decoder
    from ..tokenizers import Tokenizer

TOKENS, MOST = 7, 1 << 17
"""Of a prompt that nobody gives, and the most of any."""


def _trace(model: Model, *, place: str | None, prompt: str | None, asked: dict[str, Any]) -> None:
    """Follow a pass through MODEL step by step: shapes, weights, FLOPs, what is cached; with a PROMPT and weights, what comes next.

    MODEL is a preset, a configuration or a checkpoint; shapes are those of tensors, on a configuration alone of tensors without numbers.
    PROMPT alone is read by the small model that comes along.
    """
    from ..render.text.trace_text import Shown, Words, trace_text
    from ..run.debug.trace_run import trace

    layer = asked["layer"]
    if prompt is None:
        found, words = trace(model, [0] * asked["tokens"], layer=layer), Words()
    else:
        model, module, known = _read(model, place, asked)
        ids = known.encode(prompt, parse_special_tokens=True)
        found = trace(model, ids, module, layer, asked["top"])
        words = Words({x: known.decode([x], keep_special_tokens=True) for x in (*ids, *(x for x, _ in found.top_tokens))})
    if asked["svg"] is not None:
        _draw(model, found.following.walk if asked["then"] and found.following else found.first.walk, asked)
    if asked["form"] == "json":
        from ..render.text.trace_data import trace_json

        say(json.dumps(trace_json(model, found, words), ensure_ascii=False))
    else:
        say(trace_text(model, found, words, Shown(asked["then"], layer)))


def _draw(model: Model, walk: Walkthrough, asked: dict[str, Any]) -> None:
    from ..render.svg.block_svg import block_svg

    if not walk.layers:
        raise LlamathError(f"{safe(model.name)} has no layers to draw")
    save(asked["svg"], block_svg(model, walk, asked["layer"]), asked["force"])


def _read(model: Model, place: str | None, asked: dict[str, Any]) -> tuple[Model, Decoder | None, Tokenizer]:
    """The model that is to read a prompt: with its numbers where there are any, else with its tokenizer alone."""
    if place is not None and _weightless(place):
        from ..tokenizers import load_tokenizer

        if not os.path.isdir(place):
            hint = "without a prompt there are shapes all the same (--tokens N); a folder with weights and a tokenizer reads one"
            raise LlamathError(f"{safe(place)} is a configuration: it has no tokenizer for the prompt", hint=hint)
        return model, None, load_tokenizer(place)
    from ..render.progress import Bar
    from ..run import open_model
    from ..run.session import check_tokenizer
    from ..tokenizers import load_tokenizer

    changes = dict(changed(x) for x in asked["changes"])
    with Bar() as bar:
        found = open_model(place or MODEL_NAME, asked["dtype"], asked["device"], progress=bar.update, changes=changes)
    for note in found.notes:
        say(f"note: {note}", err=True)
    words = load_tokenizer(found.folder)
    check_tokenizer(words, found.module.embed.weight.shape[0])
    return found.model, found.module, words


def _weightless(place: str) -> bool:
    """Whether there are no weights there: a preset, a configuration, a folder without tensors."""
    from ..checkpoint.open import open_checkpoint

    if not os.path.lexists(place) or place.endswith(".json"):
        return True
    try:
        open_checkpoint(place)
    except FormatError as error:
        return error.code == "no_checkpoint"
    return False


def _named(model: str | None, prompt: str | None) -> tuple[str | None, str | None]:
    """The model and the prompt; one word that is no model's name, and has spaces, is a prompt for the model that comes along."""
    if model is None or prompt is not None or os.path.lexists(model) or not any(x.isspace() for x in model):
        return model, prompt
    return None, model


OWN = ("tokens", "layer", "then", "top", "svg", "force", "dtype", "device", "form")
OPTIONS = (
    click.argument("prompt", required=False),
    click.option("--tokens", type=click.IntRange(1, MOST), default=TOKENS, show_default=True, help="Without a PROMPT: of how many."),
    click.option("--layer", type=int, metavar="N", help="Tell this layer alone."),
    click.option("--next", "then", is_flag=True, help="Tell the one token after the prompt, read with the cache."),
    click.option("--top", type=click.IntRange(1, 100), default=5, show_default=True, help="So many of the likeliest next tokens."),
    click.option("--svg", metavar="FILE", help="Draw the block with its shapes."),
    click.option("--force", is_flag=True, help="Write over FILE."),
    click.option("--dtype", metavar="NAME", help="What to compute in, if not the file's type: bf16, fp16, fp32."),
    click.option("--device", default="cpu", show_default=True, metavar="NAME", help="Where to compute: cpu, cuda, cuda:1."),
    click.option("--json", "form", flag_value="json", help="For programs."),
)


def _asking() -> Callable[..., None]:
    """The function behind the command, with all its options."""
    inner: Callable[..., None] = _trace
    for option in reversed(OPTIONS):
        inner = option(inner)
    inner = takes_model(inner)

    @wraps(inner)
    def ask(model: str | None, prompt: str | None, **given: Any) -> None:
        own = {name: given.pop(name) for name in OWN} | {"changes": given["changes"]}
        place, prompt = _named(model, prompt)
        if prompt is not None and not prompt.strip():
            raise click.UsageError("the prompt is empty: a pass needs at least one token")
        if place is None and prompt is not None:
            place = MODEL_NAME
        place = named(place) if place else place
        inner(model=place, place=place, prompt=prompt, asked=own, **given)

    return ask


command = click.command("trace")(_asking())
