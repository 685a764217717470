"""`llamath run`."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..checkpoint.open import find_repo
from ..generation.sampling_parameters import DEFAULT_MAX_TOKENS
from ..render.progress import Progress
from ..utils.errors import LlamathError, safe
from .command_group import command as make_command
from .conversation import converse
from .generation_options import (
    choose_limits,
    choose_sampling,
    decode_utf8,
    device_or_mesh,
    exit_interrupted,
    generation_options,
    open_model,
    parse_template_args,
    stream,
    write,
)
from .model_options import MODEL
from .output import echo, echo_json, under_torchrun
from .reply_output import ReplyWriter

if TYPE_CHECKING:
    from ..generation.generation import GeneratedPiece, GenerationLimits
    from ..generation.session import LlamaBase
    from ..runtime.prompt_job import PromptJob

_DEFAULT_BATCH = 8
"""Prompts of a file in one batch."""
_MAX_PROMPT_BYTES = 1 << 26
"""Size of the largest file of prompts."""
_NO_TEMPLATE = "none"
"""The chat template that continues a prompt."""
_EXAMPLES = (
    "llamath run 'Anna had a red ball. She'",
    "llamath run meta-llama/Llama-3.2-1B-Instruct 'Why is the sky blue?' --temperature 0.7",
    "llamath run ./Llama-3.2-1B-Instruct --system 'Answer briefly.'  # a conversation",
    "llamath run ./model.gguf - --brief < prompt.txt",
    "llamath run ./my-model --batch-file prompts.jsonl > answers.jsonl",
)


@make_command("run", _EXAMPLES, brief=True)
@click.argument("words", nargs=-1, metavar="[MODEL] [PROMPT]", type=MODEL)
@generation_options
@click.option(
    "--stop", multiple=True, metavar="TEXT", help="Stop before this text; may be repeated."
)
@click.option(
    "--chat",
    is_flag=True,
    help="Answer with a chat template.  [default: as MODEL was trained]",
)
@click.option(
    "--logprobs",
    type=click.IntRange(0, 100),
    metavar="N",
    help="Log probability of each token and the N most likely.",
)
@click.option(
    "--batch-file", metavar="FILE", help="Prompts, one per line or JSON object; prints JSON lines."
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=_DEFAULT_BATCH,
    show_default=True,
    metavar="N",
    help="Prompts per batch.",
)
def command(
    words: tuple[str, ...], *, batch_file: str | None, batch: int, form: str | None, **options: Any
) -> None:
    """Generate text with MODEL, a folder, file or repository on the Hub.

    Instruction-tuned models answer PROMPT, base models continue it. Without MODEL, uses the bundled
    demo model. PROMPT - reads standard input. --brief prints the text without statistics.

    Without PROMPT, chats on a terminal; with --chat, the lines of a pipe are read as if typed.
    /help lists what can be typed. With --json, each answer is one line of JSON.
    """
    chat: bool | None = options.pop("chat") or None
    if options["chat_template"] == _NO_TEMPLATE:
        if chat:
            raise click.UsageError(f"--chat answers with a template, not with {_NO_TEMPLATE}")
        chat, options["chat_template"] = False, ""
    options["chat"] = chat
    with device_or_mesh(options["device"]) as device:
        model, prompt = _model_and_prompt(words, batch_file)
        if prompt is None:
            _check_conversation(model, options, brief=form == "brief")
            llama = open_model(model, options, will_chat=not options["chat_template"])
            converse(llama, options, as_json=form == "json")
            return
        if under_torchrun() and "-" in (prompt, batch_file):
            raise click.UsageError(
                "standard input belongs to one process, and torchrun started "
                "several: pass the prompt itself or a file"
            )
        prompts = _prompts(batch_file) if batch_file is not None else [_prompt(prompt)]
        will_chat = options["chat"] is not False and not options["chat_template"]
        llama = open_model(model, options | {"device": device}, will_chat=will_chat)
        job = _job(llama, options)
        if batch_file is not None:
            _run_batches(job, prompts, batch)
        elif form == "json":
            _print_reply(job, prompts[0])
        else:
            _stream(job, prompts[0], quiet=form == "brief")


def _check_conversation(model: str | None, options: dict[str, Any], *, brief: bool) -> None:
    """Refuse a conversation where nobody can type, and the options that are for a prompt."""
    if under_torchrun():
        raise click.UsageError("a chat runs in one process: give a PROMPT with torchrun")
    if not (options["chat"] or sys.stdin.isatty()):
        found = "found neither" if model is None else f"{safe(model)} is a MODEL"
        raise click.UsageError(
            f"expected a PROMPT, {found}: add one (- for standard input), or --chat to chat by "
            "the lines of standard input"
        )
    given = {f"--chat-template {_NO_TEMPLATE}": options["chat"] is False, "--brief": brief}
    given["--logprobs"] = options["logprobs"] is not None
    if wrong := [x for x, is_given in given.items() if is_given]:
        raise click.UsageError(f"{' and '.join(wrong)} needs a PROMPT: without one, `run` chats")


def _job(llama: LlamaBase, options: dict[str, Any]) -> PromptJob:
    """Return the model with the options for generating with it."""
    from ..runtime.prompt_job import PromptJob

    limited = options | {"max_tokens": options["max_tokens"] or DEFAULT_MAX_TOKENS}
    return PromptJob(
        llama,
        choose_sampling(llama, options),
        choose_limits(llama, limited, options["logprobs"]),
        chat=options["chat"],
        system=options["system"],
        template=options["chat_template"],
        template_args=parse_template_args(options["template_args"]),
        hides_thinking=options["hide_thinking"],
    )


def _stream(job: PromptJob, prompt: str, *, quiet: bool) -> None:
    """Write the text as it is generated, and statistics to stderr."""
    from ..render.text.generation_text import logprob_text

    logprobs = job.limits.logprobs is not None
    generation = job.begin([prompt])
    reply = (
        ReplyWriter(job.llama, generation, hides_thinking=job.hides_thinking)
        if job.form is not None
        else None
    )

    def out(piece: GeneratedPiece) -> None:
        if not logprobs and reply is not None:
            reply(piece)
        elif not logprobs:
            write(piece.text)
        elif piece.logprob is not None:
            write(logprob_text(piece.token, piece.logprob, piece.top, job.token) + "\n")

    continues = job.form is None and not logprobs and sys.stdout.isatty()
    interrupted = stream(generation, out, prompt if continues else "")
    write("" if logprobs else "\n")
    if not quiet:
        speed, engine, *rest = job.statistics(generation)
        use = () if interrupted else job.use(generation)
        echo("; ".join((speed, engine, *use, *rest)), err=True)
    if interrupted:
        exit_interrupted()


def _print_reply(job: PromptJob, prompt: str) -> None:
    """Write the finished text and its statistics as JSON."""
    with Progress("generating"):
        (reply,) = job.complete(job.begin([prompt]), [prompt])
    echo_json(reply.to_json())
    if reply.finish == "interrupted":
        exit_interrupted()


def _run_batches(job: PromptJob, prompts: Sequence[str], batch: int) -> None:
    """Write a line of JSON for each prompt, in order."""
    for number, prompt in enumerate(prompts, 1):
        _check_length(job.limits, job.ids(prompt), number)
    seed = None
    for first in range(0, len(prompts), batch):
        part = prompts[first : first + batch]
        sampling = None if seed is None else job.sampling.replace(seed=seed)
        generation = job.begin(part, sampling, first)
        seed = generation.seed if seed is None else seed
        with Progress(
            f"generating from prompts {first + 1:,} to {first + len(part):,} of {len(prompts):,}"
        ):
            replies = job.complete(generation, part)
        for reply in replies:
            as_json = reply.to_json()
            echo_json({"model": as_json.pop("model"), "prompt": reply.prompt} | as_json)
        if any(x.finish == "interrupted" for x in replies):
            exit_interrupted()


def _check_length(limits: GenerationLimits, ids: Sequence[int], number: int) -> None:
    try:
        limits.max_new_tokens(len(ids))
    except LlamathError as error:
        raise LlamathError(f"prompt {number:,}: {error}", hint=error.hint) from None


def _model_and_prompt(
    words: tuple[str, ...], batch_file: str | None
) -> tuple[str | None, str | None]:
    """Return the model and the prompt, which is None for a chat; a single word is the prompt if
    it is no model, or with a file of prompts the model.
    """
    if batch_file is not None:
        if len(words) > 1:
            raise click.UsageError("either PROMPT or --batch-file, not both")
        return (words[0] if words else None), ""
    if not words:
        return None, None
    if len(words) == 1 and (
        os.path.lexists(words[0]) or _is_preset(words[0]) or find_repo(words[0]) is not None
    ):
        return words[0], None
    if len(words) > 2:
        raise click.UsageError(
            f"expected [MODEL] and PROMPT, found {len(words)}: quote a prompt of several words"
        )
    looks_like_a_prompt = (
        len(words) == 2 and not re.search(r"[/:.]", words[0]) and not re.search(r"\s", words[1])
    )
    if (
        looks_like_a_prompt
        and words[1] != "-"
        and not os.path.lexists(words[0])
        and not _is_preset(words[0])
    ):
        hint = (
            f"quote a prompt of several words: llamath run {safe(shlex.quote(' '.join(words)), 60)}"
        )
        raise LlamathError(f"{safe(repr(words[0]), 60)} is not a model", hint=hint)
    return (words[0] if len(words) == 2 else None), words[-1]


def _is_preset(word: str) -> bool:
    from ..catalog import find_preset
    from ..embedded import MODEL_NAME
    from ..utils.errors import UnknownModel

    try:
        return word == MODEL_NAME or (" " not in word and bool(find_preset(word)))
    except UnknownModel:
        return False


def _prompt(text: str) -> str:
    """Return the prompt; `-` reads standard input, without the newline that a shell adds."""
    if text == "-":
        text = (
            decode_utf8(sys.stdin.buffer.read(_MAX_PROMPT_BYTES), "standard input")
            .removesuffix("\n")
            .removesuffix("\r")
        )
    if not text:
        raise LlamathError("the prompt is empty", hint="a model needs at least one token")
    return decode_utf8(os.fsencode(text), "the prompt")


def _prompts(path: str) -> list[str]:
    """Return the prompts in a file, without empty lines."""
    if path == "-":
        data = sys.stdin.buffer.read(_MAX_PROMPT_BYTES + 1)
    else:
        try:
            with open(path, "rb") as file:
                data = file.read(_MAX_PROMPT_BYTES + 1)
        except OSError as error:
            raise LlamathError(f"{safe(path)}: {error.strerror}") from None
    if len(data) > _MAX_PROMPT_BYTES:
        raise LlamathError(
            f"{safe(path)} has more than {_MAX_PROMPT_BYTES:,} bytes of prompts", hint="split it"
        )
    prompts = list(_lines(decode_utf8(data, path), path))
    if not prompts:
        raise LlamathError(f"{safe(path)} has no prompts", hint='one per line, or {"prompt": "…"}')
    return prompts


def _lines(text: str, path: str) -> Iterator[str]:
    lines = [
        (number, x)
        for number, line in enumerate(text.split("\n"), 1)
        if (x := line.removesuffix("\r")).strip()
    ]
    objects = path.endswith(".jsonl") or (bool(lines) and _parse_line(lines[0][1]) is not None)
    for number, line in lines:
        prompt = _parse_line(line) if objects else line
        if prompt is None:
            raise LlamathError(
                f'{safe(path)}: line {number:,}: expected {{"prompt": "…"}}, found {safe(line, 60)}'
            )
        yield prompt


def _parse_line(line: str) -> str | None:
    """Return the prompt in a line of JSON; None if there is none."""
    try:
        value = json.loads(line) if line.startswith(("{", '"')) else None
    except (ValueError, RecursionError):
        return None
    prompt = value.get("prompt") if isinstance(value, dict) else value
    return prompt if isinstance(prompt, str) else None
