"""A conversation: `llamath run` without a prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..utils.errors import LlamathError, nearest, safe
from .generation_options import (
    choose_limits,
    choose_sampling,
    decode_utf8,
    parse_template_args,
    stream,
    write,
)
from .output import echo, echo_json, note, print_error
from .reply_output import ReplyWriter

if TYPE_CHECKING:
    from ..generation.generation import GenerationLimits
    from ..generation.sampling_parameters import Sampling
    from ..generation.session import ChatSession, LlamaBase

_HELP = """/reset        start again with the same system prompt; also /clear
/system TEXT  start again with another system prompt; without TEXT, show it
/regenerate   generate the last answer again; also /regen
/help         this; also /?
/quit         leave, as Ctrl-D does; also /bye and /exit; Ctrl-C stops an answer
\"\"\"           begins and ends a message of several lines"""
_ALIASES = {
    "/clear": "/reset",
    "/regen": "/regenerate",
    "/?": "/help",
    "/bye": "/quit",
    "/exit": "/quit",
}
"""The names that ollama and llama.cpp give these commands."""
_PROMPT, _MORE, _QUOTES = "> ", "... ", '"""'


def converse(llama: LlamaBase, options: dict[str, Any], *, as_json: bool) -> None:
    """Answer what is typed, or the lines of a pipe as if they were, until the user leaves."""
    from ..generation.session import ChatSession

    prompting = llama.find_format(
        options["chat_template"], parse_template_args(options["template_args"])
    )
    session = ChatSession(llama, prompting, options["system"])
    if llama.chat_template is None and not options["chat_template"]:
        note(
            f"no chat template in the files; using {session.chat_format.name} (--chat-template "
            "NAME for another)"
        )
    how, ends = choose_sampling(llama, options), choose_limits(llama, options)
    conversation = _Conversation(session, how, ends, as_json=as_json)
    conversation.hides_thinking = options["hide_thinking"]
    conversation.run()


class _Conversation:
    """A user at a terminal or a pipe, and a model."""

    def __init__(
        self,
        session: ChatSession,
        sampling: Sampling,
        limits: GenerationLimits,
        *,
        as_json: bool,
    ) -> None:
        self.session, self.sampling, self.limits, self.as_json = session, sampling, limits, as_json
        self.interactive, self.hides_thinking = sys.stdin.isatty(), False
        self.answers = self.tokens = 0
        self.seconds = 0.0
        self.commands: dict[str, Callable[[str], bool]] = {
            "/reset": self._reset,
            "/system": self._system,
            "/regenerate": self._regenerate,
            "/help": self._help,
            "/quit": lambda _: False,
        }
        self.commands |= {also: self.commands[name] for also, name in _ALIASES.items()}

    def run(self) -> None:
        """Answer until the user leaves."""
        if self.interactive:
            echo(
                f"{self.session.chat_format.title}. /help lists the commands; Ctrl-D leaves.",
                err=True,
            )
        while (line := self._read_message()) is not None:
            try:
                if not self._handle(line.strip()):
                    break
            except LlamathError as error:
                self.session.rollback()
                if not self.interactive:
                    raise
                print_error(error)
        if self.answers:
            rate = self.tokens / self.seconds if self.seconds else 0.0
            plural = "s" if self.answers != 1 else ""
            engine = self.session.llama.describe_engine()
            echo(
                f"{self.answers:,} answer{plural}, {self.tokens:,} tokens, {rate:,.1f} "
                f"tokens/s; {engine}",
                err=True,
            )

    def _read_message(self) -> str | None:
        """Return the next line, or the lines between triple quotes; None at the end."""
        line = self._read_line()
        if line is None or not line.lstrip().startswith(_QUOTES):
            return line
        lines = [line.lstrip().removeprefix(_QUOTES)]
        while _QUOTES not in lines[-1]:
            if (line := self._read_line(_MORE)) is None:
                break
            lines.append(line)
        text = ("" if not self.interactive else "\n").join(lines)
        return text.partition(_QUOTES)[0].strip("\r\n")

    def _read_line(self, prompt: str = _PROMPT) -> str | None:
        """Return the next line; None at the end."""
        if not self.interactive:
            data = sys.stdin.buffer.readline()
            return decode_utf8(data, "standard input") if data else None
        import readline  # noqa: F401  line editing for input()

        try:
            return input(prompt)
        except EOFError:
            echo("", err=True)
            return None
        except KeyboardInterrupt:
            echo("\nCtrl-D or /quit leaves", err=True)
            return ""

    def _handle(self, line: str) -> bool:
        """Run the command or answer the message in a line; return whether to go on."""
        if not line:
            return True
        if not line.startswith("/"):
            self._answer(line)
            return True
        word, _, rest = line.partition(" ")
        if word not in self.commands:
            near = nearest(word, self.commands)
            hint = f"did you mean {near[0]}?" if near else "/help lists the commands"
            print_error(LlamathError(f"unknown command {safe(word, 60)}", hint=hint))
            return True
        return self.commands[word](rest.strip())

    def _answer(self, text: str) -> None:
        generation = self.session.send(text, self.sampling, self.limits, self.answers)
        reply = ReplyWriter(
            self.session.llama,
            generation,
            hides_thinking=self.hides_thinking,
            is_silent=self.as_json,
        )
        stream(generation, reply)
        answer, finish = reply.text, generation.rows[0].finish
        if self.as_json:
            echo_json(
                {
                    "model": self.session.llama.name,
                    "prompt": text,
                    "text": answer,
                    "finish": finish,
                    "tokens": generation.num_tokens,
                }
            )
        else:
            write("\n")
        self.session.commit(reply.reader.content, reply.reader.reasoning)
        self.answers += 1
        self.tokens += generation.num_tokens
        self.seconds += generation.last_token_at - generation.started_at
        why = {"interrupted": ", interrupted", "length": ", stopped at the maximum length"}.get(
            finish, ""
        )
        echo(
            f"({generation.num_tokens:,} tokens, {generation.tokens_per_second:,.1f} "
            f"tokens/s{why})",
            err=True,
        )

    def _reset(self, _: str) -> bool:
        self.session.set_system_prompt(self.session.system_prompt)
        return True

    def _system(self, text: str) -> bool:
        if text:
            self.session.set_system_prompt(text)
        else:
            echo(
                self.session.system_prompt or "there is no system prompt; /system TEXT sets one",
                err=True,
            )
        return True

    def _regenerate(self, _: str) -> bool:
        if self.sampling.greedy:
            note("greedy generation gives the same answer again; --temperature 1 samples")
        self._answer(self.session.regenerate())
        return True

    def _help(self, _: str) -> bool:
        echo(_HELP, err=True)
        return True
