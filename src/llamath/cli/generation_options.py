"""What `run` and `chat` share: the options that open a model and draw its tokens, and text on its way to a terminal."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..core.errors import LlamathError, safe
from .output import say

if TYPE_CHECKING:
    from ..run import GeneratedPiece, GenerationLimits, Llama, Sampling

DRAWING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
NARROWING = ("top_k", "top_p", "min_p")

OPTIONS = (
    click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="The longest a text may be."),
    click.option("--temperature", type=float, metavar="X", help="0: the likeliest token; 1: drawn as the model says."),
    click.option("--top-k", type=int, metavar="N", help="Draw from the N likeliest tokens."),
    click.option("--top-p", type=float, metavar="X", help="Draw from the likeliest that have this share together."),
    click.option("--min-p", type=float, metavar="X", help="Draw from those with this share of the likeliest's."),
    click.option("--repetition-penalty", type=float, metavar="X", help="Make tokens that were used less likely: 1.1."),
    click.option("--seed", type=int, metavar="N", help="Draw the same again."),
    click.option("--stop", "strings", multiple=True, metavar="TEXT", help="End before this text; may be repeated."),
    click.option("--context", default="", metavar="TOKENS", help="Prompt and text together, if not the model's own: 4096, 8k."),
    click.option("--dtype", metavar="NAME", help="What to compute in, if not the file's type: bf16, fp16, fp32; or int8."),
    click.option("--device", default="cpu", show_default=True, metavar="NAME", help="Where to compute: cpu, cuda, cuda:1."),
    click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a configuration key; may be repeated."),
    click.option("--format", "form", default="", metavar="NAME", help="How conversations are written, if not as the model's own: chatml."),
    click.option("--system", default="", metavar="TEXT", help="What a conversation begins with."),
)


def speaks(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def started() -> bool:
    """Whether torchrun has started this process, and others with it."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


def processes(device: str) -> AbstractContextManager[Any]:
    """Where to compute: the device, or all the processes of torchrun together, of which the first alone goes on speaking."""
    if not started():
        return nullcontext(device)
    from ..run.distributed.process_group import process_group

    return process_group(device)


def opened(model: str | None, asked: dict[str, Any]) -> Llama:
    """The model with its tokenizer, if what is asked of it can be; what is worth knowing of it goes to stderr."""
    from ..render.progress import Bar
    from ..run import Llama, Sampling, limit_threads
    from .model_options import changed

    Sampling(**given(asked))
    changes = dict(changed(x) for x in asked["changes"])
    with Bar() as bar:
        found = Llama.open(model, asked["dtype"], asked["device"], progress=bar.update, changes=changes)
    limit_threads(found.module)
    known = found.model.notes if found.model is not None else ()
    for note in found.notes[len(known) :]:
        say(f"note: {note}", err=True)
    gc.enable()  # from here on it may take hours
    return found


def given(asked: dict[str, Any]) -> dict[str, float]:
    """What is said of how tokens are drawn."""
    return {name: x for name in DRAWING if (x := asked[name]) is not None}


def sampling(llama: Llama, asked: dict[str, Any]) -> Sampling:
    """How tokens are to be drawn: as the options say, where they say nothing as the model's publisher, else the likeliest."""
    said = given(asked)
    if llama.sampling.temperature == 0 and "temperature" not in said and any(name in said for name in NARROWING):
        said["temperature"] = 1.0
    made = llama.sampling.replace(**said)
    if "seed" in said and made.greedy:
        say("note: a seed changes nothing where the likeliest token is taken; --temperature 1 draws", err=True)
    return made


def limits(llama: Llama, asked: dict[str, Any], logprobs: int | None = None) -> GenerationLimits:
    """Where texts are to end."""
    from ..core.units import parse_tokens
    from ..run import GenerationLimits

    context = parse_tokens(asked["context"]) if asked["context"] else llama.context
    if context and llama.context and context > llama.context:
        say(f"warning: {context:,} tokens are more than the model's own context, {llama.context:,}", err=True)
    if "" in asked["strings"]:
        raise click.UsageError("--stop wants some text")
    return GenerationLimits(max_tokens=asked["max_tokens"], context=context, stop_strings=asked["strings"], logprobs=logprobs)


def stream(pieces: Iterable[GeneratedPiece], out: Callable[[GeneratedPiece], None]) -> bool:
    """Every piece as it comes; whether somebody interrupted."""
    from ..run import Generation

    finish = ""
    try:
        for piece in pieces:
            out(piece)
            finish = piece.finish or finish
    except KeyboardInterrupt:
        assert isinstance(pieces, Generation)
        for piece in pieces.interrupt():
            out(piece)
        return True
    return finish == "interrupted"


def write(text: str) -> None:
    """A piece of text on stdout, at once."""
    from ..render.text.generation_text import printable

    if text:
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()


def decoded(data: bytes, what: str) -> str:
    """Bytes from outside as text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise LlamathError(
            f"{safe(what)} is not UTF-8: byte {error.start:,} is 0x{data[error.start]:02x}", hint="iconv -t utf-8 makes it so"
        ) from None


def interrupted() -> NoReturn:
    """End as a program does that a signal has ended, after all that there was to say."""
    sys.stdout.flush()
    sys.exit(130)
