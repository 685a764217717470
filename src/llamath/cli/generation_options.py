"""Options of `run` and other commands that compute with weights, and the generated text
on its way to a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..questions.sampling_settings import SamplingSettings
from ..utils.errors import LlamathError, safe
from .command_group import shared_option
from .model_options import COMPUTE_DTYPE, context_option, parse_changes, set_option
from .output import echo, note, print_error, under_torchrun, warn
from .question_options import field_option

if TYPE_CHECKING:
    from ..generation.generation import GeneratedPiece, GenerationLimits
    from ..generation.sampling_parameters import Sampling
    from ..generation.session import LlamaBase


_MAX_ARGUMENT_BYTES = 1 << 24
"""Size of the largest file with a variable of a chat template."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

device_option: Decorator = shared_option("--device")


engine_option: Decorator = click.option(
    "--engine",
    type=click.Choice(["native", "torch"]),
    help="Engine to compute with.  [default: native on a CPU, where it can run MODEL]",
)


def compute_dtype_option(
    text: str = "Dtype to compute in: bf16, fp16, fp32 or int8.  [default: as stored]",
) -> Decorator:
    """Return the option --dtype of a command that computes with weights."""
    return click.option("--dtype", type=COMPUTE_DTYPE, metavar="NAME", help=text)


_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        metavar="N",
        help="Maximum number of new tokens.",
    ),
    *(field_option(SamplingSettings, x) for x in SamplingSettings.described),
    context_option(
        "Maximum number of prompt and new tokens: 4096, 8k.  [default: MODEL's context]"
    ),
    compute_dtype_option(),
    device_option,
    engine_option,
    set_option,
    click.option(
        "--chat-template",
        default="",
        metavar="NAME",
        help="Chat template, if not MODEL's own: chatml, llama-3, …, a file *.jinja, or none to "
        "continue PROMPT.",
    ),
    click.option(
        "--template-arg",
        "template_args",
        multiple=True,
        metavar="NAME=VALUE",
        help="Variable of MODEL's chat template: enable_thinking=false, tools=@tools.json; may "
        "be repeated.",
    ),
    click.option(
        "--hide-thinking", is_flag=True, help="Do not print reasoning such as <think>…</think>."
    ),
    click.option("--system", default="", metavar="TEXT", help="System prompt."),
)


def generation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add these options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def parse_template_args(texts: Sequence[str]) -> dict[str, Any]:
    """Return the variables of `NAME=VALUE`; a value is JSON if it can be, and `@FILE` is the
    content of a file.
    """
    args: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.UsageError(f"--template-arg: expected NAME=VALUE, found {safe(text, 60)}")
        if name in args:
            raise click.UsageError(f"--template-arg: {name} is given twice")
        if value.startswith("@"):
            value = _read_argument(value[1:])
        try:
            args[name] = json.loads(value)
        except (ValueError, RecursionError):
            args[name] = value
    return args


def _read_argument(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_ARGUMENT_BYTES + 1)
    except OSError as error:
        raise LlamathError(f"{safe(path)}: {error.strerror}") from None
    if len(data) > _MAX_ARGUMENT_BYTES:
        raise LlamathError(
            f"{safe(path)}: expected at most {_MAX_ARGUMENT_BYTES:,} bytes for a "
            "variable of a chat template, found more"
        )
    return decode_utf8(data, path)


def device_or_mesh(device: str) -> AbstractContextManager[Any]:
    """Return the device, or under torchrun the mesh of all processes, of which only the first
    writes output.
    """
    if not under_torchrun():
        return nullcontext(device)
    from ..torch.distributed.process_group import process_group

    return process_group(device)


def open_model(model: str | None, options: dict[str, Any], *, will_chat: bool = False) -> LlamaBase:
    """Open the model with its tokenizer on an engine, and its chat template if there will be a
    chat; notes go to stderr.
    """
    from .. import embedded
    from ..generation.bus_error import exit_on_bus_error
    from ..generation.sampling_parameters import Sampling
    from ..runtime.open_llama import open_llama

    exit_on_bus_error(print_error)
    Sampling(**_sampling_settings(options))
    device, engine = options["device"], options.get("engine")
    if engine == "native" and device != "cpu":
        raise click.UsageError("--engine native computes on the CPU: not with --device or torchrun")
    llama = open_llama(
        embedded.path() if model is None else model,
        options["dtype"],
        device,
        engine,
        changes=parse_changes(options["changes"]),
        will_chat=will_chat,
        report=note,
    )
    return _with_notes(llama)


def _with_notes(llama: LlamaBase) -> LlamaBase:
    known = llama.model.notes if llama.model is not None else ()
    for text in llama.notes[len(known) :]:
        note(text)
    return llama


def _sampling_settings(options: Mapping[str, Any]) -> dict[str, float]:
    """Return the sampling parameters that are given as options."""
    return {
        name: x.kind.parse(name, options[name])
        for name, x in SamplingSettings.described.items()
        if options[name] is not None
    }


def choose_sampling(llama: LlamaBase, options: Mapping[str, Any]) -> Sampling:
    """Return the sampling parameters: the options, else the model's generation_config, else
    greedy.
    """
    from ..runtime import prompt_job

    settings = _sampling_settings(options)
    sampling = prompt_job.choose_sampling(llama, settings)
    if "seed" in settings and sampling.greedy:
        note("a seed has no effect on greedy generation; add --temperature 1 to sample")
    return sampling


def choose_limits(
    llama: LlamaBase, options: Mapping[str, Any], logprobs: int | None = None
) -> GenerationLimits:
    """Return where generation stops."""
    from ..generation.generation import GenerationLimits

    context = llama.context if options["context"] in (None, "max") else options["context"]
    if context and llama.context and context > llama.context:
        warn(f"{context:,} tokens are more than the model's own context, {llama.context:,}")
    stops = options.get("stop", ())
    if "" in stops:
        raise click.UsageError("--stop is empty")
    return GenerationLimits(
        max_tokens=options["max_tokens"], context=context, stop_strings=stops, logprobs=logprobs
    )


def stream(
    pieces: Iterable[GeneratedPiece], out: Callable[[GeneratedPiece], None], heading: str = ""
) -> bool:
    """Pass on every piece as it is generated, and before the first one write `heading`; return
    whether the user interrupted.
    """
    from ..generation.generation import Generation
    from ..render.progress import Progress

    finish = ""
    try:
        rest = iter(pieces)
        with Progress("processing the prompt"):
            first = list(islice(rest, 1))
        write(heading)
        for piece in chain(first, rest):
            out(piece)
            finish = piece.finish or finish
    except KeyboardInterrupt:
        assert isinstance(pieces, Generation)
        for piece in pieces.interrupt():
            out(piece)
        return True
    return finish == "interrupted"


def write(text: str, style: Callable[[str], str] = str) -> None:
    """Write a piece of text to stdout at once, without characters that control a terminal; exit
    when the reader closed the pipe.
    """
    from ..render.text.generation_text import printable

    if text and not echo(style(printable(text)), end=""):
        raise click.exceptions.Exit(0)


def decode_utf8(data: bytes, name: str) -> str:
    """Return bytes from a user as text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise LlamathError(
            f"{safe(name)} is not UTF-8: byte {error.start:,} is 0x{data[error.start]:02x}",
            hint="iconv -t utf-8 converts it",
        ) from None


def exit_interrupted() -> NoReturn:
    """Exit as a program that was interrupted."""
    sys.exit(130)
