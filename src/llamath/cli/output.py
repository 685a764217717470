"""What a command says: its answer on stdout, the rest on stderr, and how it ends when it cannot go on."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def say(text: str, err: bool = False) -> None:
    """A text and a line's end; a stream that is not UTF-8 is left to click, which knows what to do with it."""
    stream = sys.stderr if err else sys.stdout
    if (getattr(stream, "encoding", None) or "").lower() == "utf-8":
        try:
            stream.write(text)  # which may be long: no copy is made for the sake of the line's end
            stream.write("\n")
            stream.flush()
        except BrokenPipeError:
            quiet(0)
    else:
        import click

        click.echo(text, err=err)


def complain(message: str, hint: str = "") -> NoReturn:
    """End with a sentence about what is wrong, and what to try."""
    say(f"error: {message}" + (f"\n\nhint: {hint}" if hint else ""), err=True)
    sys.exit(2)


def quiet(status: int) -> NoReturn:
    """End without another word about an output that is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)


def leave(status: int) -> NoReturn:
    """End at once: to give back the memory of 45,000 tensors, string by string, takes a twentieth of the time to verify them."""
    sys.stdout.flush()
    sys.stderr.flush()
    if sys.gettrace() or sys.getprofile():
        sys.exit(status)
    os._exit(status)
