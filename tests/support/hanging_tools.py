"""Functions for processes of their own that hang, fill the memory or end, and `llamath serve` with such tools: `hanging_tools.py FOLDER`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from llamath.cli.serve import api_functions
from llamath.web.server.json_api import Api, ApiAnswer, ApiTool, ModelResolver

FOLDER = "LLAMATH_TEST_FOLDER"
"""The variable with the folder in which a process that begins to hang writes a file named after its id."""


def hang() -> None:
    """Stay in a C function that holds the lock of the interpreter: a regular expression that backtracks for longer than the sun shines."""
    if FOLDER in os.environ:
        Path(os.environ[FOLDER], str(os.getpid())).touch()
    re.fullmatch("(a|a)*b", "a" * 200)


def work(setup: str) -> Callable[[bytes], bytes]:
    """Return a function that does what a message says."""

    def answer(message: bytes) -> bytes:
        if message == b"hang":
            hang()
        elif message == b"fill the memory":
            return bytes(8 << 30)
        elif message == b"end":
            os._exit(3)
        elif message == b"raise":
            raise ZeroDivisionError("of a test")
        return f"{setup} {os.getpid()}".encode()

    return answer


def tools() -> Api:
    """Return the tools of `llamath serve`, and one that hangs."""

    def answer(values: Sequence[tuple[str, str]], resolve: ModelResolver) -> ApiAnswer:
        hang()
        return ApiAnswer(text=f"{values} {resolve}")

    return {**api_functions(), "hang": ApiTool(answer=answer, models="model")}


def main() -> None:
    from llamath.web.server.server import serve

    os.environ[FOLDER] = sys.argv[1]
    serve([], "127.0.0.1", 0, lambda where: print(where.address, flush=True), api=tools)


if __name__ == "__main__":
    main()
