"""`hf llamath …`: llamath's commands, in which an id `owner/name` is a repository of the Hub."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence

import click

from llamath.catalog import find_public_id
from llamath.cli import cli
from llamath.cli import main as llamath

_ID = re.compile(r"[\w.-]+/[\w.-]+")


def with_addresses(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command, and of ids that are neither files nor of presets the addresses
    of their repositories.
    """
    command = cli.get_command(click.Context(cli), words[0]) if words else None
    options = [x for x in command.params if isinstance(x, click.Option)] if command else []
    with_value = {name for x in options if not x.is_flag for name in x.opts}
    for i, word in enumerate(words):
        is_value = i > 0 and words[i - 1] in with_value
        is_id = _ID.fullmatch(word) is not None and not word.startswith((".", "-"))
        if is_value or not is_id or os.path.exists(word) or find_public_id(word) is not None:
            yield word
        else:
            yield f"hf://{word}"


def main() -> None:
    """Run llamath with the words after `hf llamath`."""
    sys.argv[1:] = list(with_addresses(sys.argv[1:]))
    llamath()


if __name__ == "__main__":
    main()
