"""The command line: one module per command, imported when it is used."""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from .command_group import cli as cli


def main(end: Callable[[int], NoReturn] = sys.exit) -> NoReturn:
    """Run the command line; `end` is called after an answer that needed none of click."""
    # modules, trees and tables live until the end: the garbage collector, which would look through
    # them again and again, is called more rarely, from the first import on
    gc.set_threshold(100_000, 20, 50)
    from .output import prepare_streams
    from .plain_call import answer_plainly

    prepare_streams()
    if answer_plainly(sys.argv[1:]):
        end(0)
    from .command_group import run_program

    run_program()


def __getattr__(name: str) -> object:
    if name != "cli":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .command_group import cli

    return cli
