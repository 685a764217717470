"""`llamath chat`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import LlamathError, nearest, safe
from .generation_options import decoded, limits, opened, processes, sampling, speaks, started, stream, write
from .output import complain, say

if TYPE_CHECKING:
    from ..run import ChatSession, GeneratedPiece, GenerationLimits, Sampling

HELP = """/reset        begin anew, with the same system text
/system TEXT  begin anew with another system text; without TEXT say what it is
/regenerate   the last answer again, drawn anew
/help         this
/quit         leave, as Ctrl-D does; Ctrl-C stops an answer"""
PROMPT = "> "


@click.command("chat")
@click.argument("model", required=False)
@speaks
def command(model: str | None, **asked: Any) -> None:
    """Talk with MODEL, a folder or file with its weights. /help says what else can be typed; lines of a pipe are read as if typed."""
    from ..run import ChatSession

    if started():
        with processes(asked["device"]):  # of which the first says it
            raise click.UsageError("a conversation is held by one process: llamath run is what torchrun can start")
    llama = opened(model, asked)
    talk = ChatSession(llama, llama.find_format(asked["form"]), asked["system"])
    if llama.chat_template is None and not asked["form"]:
        say(f"note: no file says how conversations are written; taken is {talk.chat_format.name} (--format NAME)", err=True)
    Conversation(talk, sampling(llama, asked), limits(llama, asked)).hold()


class Conversation:
    """Somebody at a terminal, or a pipe, and a model."""

    def __init__(self, talk: ChatSession, sampling: Sampling, limits: GenerationLimits) -> None:
        self.talk, self.sampling, self.limits = talk, sampling, limits
        self.typed = sys.stdin.isatty()
        self.answers = self.tokens = 0
        self.seconds = 0.0
        self.commands: dict[str, Callable[[str], bool]] = {
            "/reset": self._reset,
            "/system": self._system,
            "/regenerate": self._regenerate,
            "/help": self._help,
            "/quit": lambda _: False,
            "/exit": lambda _: False,
        }

    def hold(self) -> None:
        """Until somebody leaves."""
        if self.typed:
            say(f"{self.talk.chat_format.title}. /help says what can be typed; Ctrl-D leaves.", err=True)
        while (line := self._line()) is not None:
            try:
                if not self._heard(line.strip()):
                    break
            except LlamathError as error:
                self.talk.rollback()
                if not self.typed:
                    complain(str(error), error.hint)
                say(f"error: {error}" + (f"\n\nhint: {error.hint}" if error.hint else ""), err=True)
        if self.answers:
            rate = self.tokens / self.seconds if self.seconds else 0.0
            say(f"{self.answers:,} answer{'s' if self.answers > 1 else ''}, {self.tokens:,} tokens, {rate:,.1f} tokens/s", err=True)

    def _line(self) -> str | None:
        """What is typed next; None when nothing more comes."""
        if not self.typed:
            data = sys.stdin.buffer.readline()
            return decoded(data, "standard input") if data else None
        import readline  # noqa: F401  what input() edits lines with

        try:
            return input(PROMPT)
        except EOFError:
            say("", err=True)
            return None
        except KeyboardInterrupt:
            say("\nCtrl-D or /quit leaves", err=True)
            return ""

    def _heard(self, line: str) -> bool:
        """Do what a line says; whether to go on."""
        if not line:
            return True
        if not line.startswith("/"):
            self._answer(line)
            return True
        word, _, rest = line.partition(" ")
        if word not in self.commands:
            near = nearest(word, self.commands)
            hint = f"did you mean {near[0]}?" if near else "/help lists what there is"
            say(f"error: nothing is called {safe(word)}\n\nhint: {hint}", err=True)
            return True
        return self.commands[word](rest.strip())

    def _answer(self, text: str) -> None:
        how = self.sampling
        if how.seed is not None:
            how = how.replace(seed=(how.seed + self.answers) % 2**63)
        generation = self.talk.send(text, how, self.limits)
        said: list[str] = []

        def out(piece: GeneratedPiece) -> None:
            said.append(piece.text)
            write(piece.text)

        stream(generation, out)
        write("\n")
        self.talk.commit("".join(said))
        self.answers += 1
        self.tokens += generation.num_tokens
        self.seconds += generation.last_token_at - generation.started_at
        finish = generation.rows[0].finish
        why = {"interrupted": ", interrupted", "length": ", cut at its longest"}.get(finish, "")
        say(f"({generation.num_tokens:,} tokens, {generation.tokens_per_second:,.1f} tokens/s{why})", err=True)

    def _reset(self, _: str) -> bool:
        self.talk.set_system_prompt(self.talk.system_prompt)
        return True

    def _system(self, text: str) -> bool:
        if text:
            self.talk.set_system_prompt(text)
        else:
            say(self.talk.system_prompt or "there is no system text; /system TEXT gives one", err=True)
        return True

    def _regenerate(self, _: str) -> bool:
        if self.sampling.greedy:
            say("note: the likeliest tokens are the same again; --temperature 1 draws", err=True)
        self._answer(self.talk.regenerate())
        return True

    def _help(self, _: str) -> bool:
        say(HELP, err=True)
        return True
