"""`llamath run`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import LlamathError, safe
from .generation_options import decoded, interrupted, limits, opened, processes, sampling, speaks, started, stream, write
from .output import say

if TYPE_CHECKING:
    from ..run import GeneratedPiece, Generation, GenerationLimits, Llama, Sampling

MOST, TOGETHER = 256, 8
"""Tokens of a text, and prompts of a file that are read together, unless it is said."""
STRANGE = "its chat template is none that is known here"
LINES = 1 << 26
"""The most bytes that a file of prompts may have."""


@click.command("run")
@click.argument("words", nargs=-1, metavar="[MODEL] PROMPT")
@speaks
@click.option("--raw", "manner", flag_value="raw", help="Go on from the prompt as it stands.")
@click.option("--chat", "manner", flag_value="chat", help="Answer it, as in a conversation.")
@click.option("--logprobs", is_flag=True, help="Each token with the logarithm of its probability.")
@click.option("--top-logprobs", type=click.IntRange(1, 100), metavar="N", help="With those of the N likeliest as well.")
@click.option("--batch-file", metavar="FILE", help="Prompts, one on each line, or one JSON object with prompt; JSON lines come out.")
@click.option("--batch", type=click.IntRange(min=1), default=TOGETHER, show_default=True, help="How many of them are read together.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("-q", "--quiet", is_flag=True, help="The text alone, without figures.")
def command(words: tuple[str, ...], *, batch_file: str | None, batch: int, as_json: bool, **asked: Any) -> None:
    """Let MODEL go on from PROMPT, or answer it: a folder or file with its weights, or without MODEL the small one that comes along.

    PROMPT - is standard input. A model whose files bring a chat template answers, any other goes on from the text.
    """
    with processes(asked["device"]) as where:
        model, prompt = _named(words, batch_file)
        if started() and "-" in (prompt, batch_file):
            raise click.UsageError("standard input is one process's, and there are several: give the prompt itself, or a file")
        prompts = _prompts(batch_file) if batch_file is not None else [_prompt(prompt)]
        llama = opened(model, asked | {"device": where})
        job = Job(llama, asked)
        if batch_file is not None:
            job.several(prompts, batch)
        elif as_json:
            job.whole(prompts[0])
        else:
            job.live(prompts[0])


class Job:
    """A model, what is asked of it, and how."""

    def __init__(self, llama: Llama, asked: dict[str, Any]) -> None:
        self.llama, self.system = llama, asked["system"]
        top = asked["top_logprobs"]
        self.quiet = asked["quiet"]
        self.logprobs = asked["logprobs"] or top is not None
        self.limits: GenerationLimits = limits(
            llama, asked | {"max_tokens": asked["max_tokens"] or MOST}, (top or 0) if self.logprobs else None
        )
        self.sampling: Sampling = sampling(llama, asked)
        talking = asked["manner"] == "chat" or asked["form"] or self.system
        if talking and asked["manner"] == "raw":
            raise click.UsageError("--raw goes on from the prompt alone: not with --system or --format")
        if not talking and asked["manner"] is None and llama.chat_template:
            talking = llama.chat_format is not None
            if not talking:
                say(f"note: {STRANGE}, so it goes on from the prompt as it stands (--format NAME answers it)", err=True)
        self.form = llama.find_format(asked["form"]) if talking else None

    def ids(self, prompt: str) -> list[int]:
        """A prompt's tokens, in its conversation if it is one."""
        if self.form is None or not prompt:
            return self.llama.encode(prompt)
        from ..tokenizers import chat_prompt as chat

        turns = [*([chat.ChatMessage("system", self.system)] if self.system else []), chat.ChatMessage("user", prompt)]
        return chat.encode_chat(self.form, self.llama.tokenizer, turns)

    def begin(self, prompts: Sequence[str], sampling: Sampling | None = None) -> Generation:
        """Go on from these."""
        ids = [self.ids(x) for x in prompts]
        ends = self.limits
        if self.form is not None:
            from ..tokenizers import chat_prompt as chat

            ends = ends.replace(stop_ids=chat.chat_stop_ids(self.form, self.llama.tokenizer))
        made = self.llama.start(ids, sampling or self.sampling, ends)
        return made.attach_tokenizer(self.llama.tokenizer, ids if self.form is None else None)

    def token(self, token: int) -> str:
        """A token's text."""
        return self.llama.tokenizer.decode([token], keep_special_tokens=True)

    def live(self, prompt: str) -> None:
        """The text as it comes, the figures on stderr."""
        from ..render.text.generation_text import finish_text, logprob_text, sampling_text, speed_text

        generation = self.begin([prompt])

        def out(piece: GeneratedPiece) -> None:
            if not self.logprobs:
                write(piece.text)
            elif piece.logprob is not None:
                write(logprob_text(piece.token, piece.logprob, piece.top, self.token) + "\n")

        if self.form is None and not self.logprobs and sys.stdout.isatty():
            write(prompt)
        broken = stream(generation, out)
        row = generation.rows[0]
        write("" if self.logprobs else "\n")
        theirs = self.sampling.replace(seed=None) == self.llama.sampling
        how = {name: getattr(self.sampling, name) for name in self.sampling.fields}
        figures = speed_text(
            len(row.ids), row.prompt_length, generation.first_token_at - generation.started_at, generation.tokens_per_second
        )
        said = [
            figures,
            finish_text(row.finish),
            sampling_text(how, generation.seed, theirs),
            *([f"as {self.form.name} has it"] if self.form else []),
        ]
        if not self.quiet:
            say("; ".join(said), err=True)
        if broken:
            interrupted()

    def whole(self, prompt: str) -> None:
        """The text when it is over, with its figures."""
        from ..render.text.generation_text import completion_json
        from ..run.session import collect_completions

        (made,) = collect_completions(self.begin([prompt]))
        say(json.dumps(completion_json(made, self.token if self.logprobs else None), ensure_ascii=False))
        if made.finish == "interrupted":
            interrupted()

    def several(self, prompts: Sequence[str], together: int) -> None:
        """A line of JSON for each, in their order."""
        from ..render.text.generation_text import completion_json
        from ..run.session import collect_completions

        for number, prompt in enumerate(prompts, 1):
            _fitting(self.limits, self.ids(prompt), number)
        seed = None
        for first in range(0, len(prompts), together):
            part = prompts[first : first + together]
            generation = self.begin(part, None if seed is None else self.sampling.replace(seed=(seed + first) % 2**63))
            seed = generation.seed if seed is None else seed
            made = collect_completions(generation)
            for prompt, x in zip(part, made, strict=True):
                found = completion_json(x, self.token if self.logprobs else None)
                say(json.dumps({"prompt": prompt} | found, ensure_ascii=False))
            if any(x.finish == "interrupted" for x in made):
                interrupted()


def _fitting(limits: GenerationLimits, ids: Sequence[int], number: int) -> None:
    try:
        limits.max_new_tokens(len(ids))
    except LlamathError as error:
        raise LlamathError(f"prompt {number:,}: {error}", hint=error.hint) from None


def _named(words: tuple[str, ...], batch_file: str | None) -> tuple[str | None, str]:
    """The model and the prompt; one word is the prompt, or with a file of prompts the model."""
    if batch_file is not None:
        if len(words) > 1:
            raise click.UsageError("either PROMPT or --batch-file, not both")
        return (words[0] if words else None), ""
    if len(words) == 1 and (os.path.lexists(words[0]) or _preset(words[0])):
        raise click.UsageError(f"{safe(words[0])} is a MODEL, and after it should come a PROMPT (- for standard input)")
    if not 1 <= len(words) <= 2:
        given = f"found {len(words)}: quote a prompt of several words" if words else "found neither"
        raise click.UsageError(f"expected [MODEL] and PROMPT, {given}")
    return (words[0] if len(words) == 2 else None), words[-1]


def _preset(word: str) -> bool:
    from ..catalog import find_preset
    from ..core.errors import UnknownModel
    from ..embedded import MODEL_NAME

    try:
        return word == MODEL_NAME or (" " not in word and bool(find_preset(word)))
    except UnknownModel:
        return False


def _prompt(text: str) -> str:
    """The prompt, from standard input if it is `-`, without the line's end that a shell adds."""
    if text == "-":
        text = decoded(sys.stdin.buffer.read(LINES), "standard input").removesuffix("\n").removesuffix("\r")
    if not text:
        raise LlamathError("the prompt is empty", hint="a model goes on from some text")
    return decoded(os.fsencode(text), "the prompt")


def _prompts(path: str) -> list[str]:
    """The prompts in a file; lines that are empty are none."""
    if path == "-":
        data = sys.stdin.buffer.read(LINES + 1)
    else:
        try:
            with open(path, "rb") as file:
                data = file.read(LINES + 1)
        except OSError as error:
            raise LlamathError(f"{safe(path)} cannot be read: {error.strerror}") from None
    if len(data) > LINES:
        raise LlamathError(f"{safe(path)} has more than {LINES:,} bytes of prompts", hint="split it")
    found = list(_lines(decoded(data, path), path))
    if not found:
        raise LlamathError(f"{safe(path)} has no prompts", hint='one on each line, or {"prompt": "…"}')
    return found


def _lines(text: str, path: str) -> Iterator[str]:
    lines = [(number, x) for number, line in enumerate(text.split("\n"), 1) if (x := line.removesuffix("\r")).strip()]
    objects = path.endswith(".jsonl") or (bool(lines) and _said(lines[0][1]) is not None)
    for number, line in lines:
        prompt = _said(line) if objects else line
        if prompt is None:
            raise LlamathError(f'{safe(path)}: line {number:,}: expected {{"prompt": "…"}}, found {safe(line, 60)}')
        yield prompt


def _said(line: str) -> str | None:
    """The prompt in a line of JSON; None if there is none."""
    try:
        said = json.loads(line) if line.startswith(("{", '"')) else None
    except (ValueError, RecursionError):
        return None
    prompt = said.get("prompt") if isinstance(said, dict) else said
    return prompt if isinstance(prompt, str) else None
