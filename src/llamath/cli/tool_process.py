"""`ToolRunner`: runs the calls of the tools of `llamath serve --mcp` in processes, which read only
what was allowed and can be ended.

A process answers one call at a time, and has limits of time and memory that hold even if the server
is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..utils.access import Access, check_address, check_path, only
from ..utils.errors import LlamathError, UnknownModel
from ..utils.record_type import Record

SECONDS, MEMORY, _AT_ONCE = 60, 4 << 30, 4
"""The limits of one call, and how many are answered at once."""
MAX_JSON = 100_000
"""Longer JSON, in characters, is replaced by the report as text."""
_MAX_QUESTION, _MAX_LINE = 1 << 20, 256 << 20
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Answer(Record):
    """What the process wrote: the answer, notes on it, and whether it is an error."""

    text: str
    notes: tuple[str, ...] = ()
    is_error: bool = False
    is_json: bool = False


def agent_access(root: str | None, *, hub: bool = False, urls: bool = False) -> Access:
    """Return what an agent may read: the files under a folder, by default the current one, and
    those of this package.

    Programs often start their servers in `/` or in the home folder; without a `root`, these hold
    more than models, and no file is read.
    """
    folders = [_PACKAGE]
    if root is not None:
        if not os.path.isdir(root):
            raise LlamathError(f"--root expects a folder, and {root!r} is none")
        folders.insert(0, os.path.realpath(root))
    else:
        with suppress(OSError):
            here = os.path.realpath(os.getcwd())
            if here not in (os.path.realpath(os.path.expanduser("~")), os.path.dirname(here)):
                folders.insert(0, here)
    if hub:
        from ..checkpoint.hub_cache import cache_folder

        folders.append(os.path.realpath(cache_folder()))
    return Access(folders=tuple(folders), hub=hub, urls=urls)


class ToolRunner:
    """Answers calls by processes whose current folder is the first one that may be read; one
    that failed is not used again.
    """

    def __init__(self, access: Access, seconds: float = SECONDS) -> None:
        self._access, self._seconds, self._slots = access, seconds, asyncio.Semaphore(_AT_ONCE)
        self._idle: list[asyncio.subprocess.Process] = []
        # the process imports what this one does, and nothing from its current folder
        paths = os.pathsep.join(os.path.abspath(x) for x in sys.path if x)
        self._environment = os.environ | {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}
        self.command = [sys.executable, "-P", "-m", __name__]

    async def run(self, tool: str, values: Sequence[tuple[str, str]], form: str) -> Answer:
        """Return the answer of a tool, or an error if it takes too long; the process has ended
        then.
        """
        question = {
            "tool": tool,
            "values": values,
            "form": form,
            "access": self._access.to_json(),
            "seconds": self._seconds,
        }
        data = json.dumps(question).encode()
        if len(data) > _MAX_QUESTION:
            return _failure(f"the arguments have more than {_MAX_QUESTION:,} bytes", "too_large")
        async with self._slots:
            process = await self._process()
            written, failure = (
                b"",
                _failure(
                    "the process that computes this was ended: it needed too much time or memory",
                    "ended",
                ),
            )
            try:
                async with asyncio.timeout(self._seconds):
                    assert process.stdin is not None and process.stdout is not None
                    process.stdin.write(data + b"\n")
                    written = await process.stdout.readline()
            except TimeoutError:
                failure = _failure(f"this took longer than {self._seconds:g} seconds", "too_slow")
            finally:
                if written.endswith(b"\n"):
                    self._idle.append(process)
                else:
                    await _end(process)
        if not written.endswith(b"\n"):
            return failure
        answer = json.loads(written)
        return Answer(**answer | {"notes": tuple(answer["notes"])})

    async def _process(self) -> asyncio.subprocess.Process:
        """Return a process that waits for a question, or a new one."""
        while self._idle:
            if (process := self._idle.pop()).returncode is None:
                return process
        return await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_MAX_LINE,
            cwd=self._access.folders[0],
            env=self._environment,
        )

    async def close(self) -> None:
        """End the processes that wait."""
        while self._idle:
            await _end(self._idle.pop())


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


def _failure(message: str, code: str) -> Answer:
    text = json.dumps(
        {
            "error": {
                "message": message,
                "hint": "ask for less, or use the command line",
                "code": code,
            }
        }
    )
    return Answer(text=text, is_error=True)


def admit_name(text: str) -> str:
    """Return the name of a model or checkpoint if what it stands for may be read; nothing looks
    before whether it exists.
    """
    from ..catalog import find_public_id
    from ..checkpoint.open import find_repo, is_url
    from ..checkpoint.repo_id import parse_repo

    if text == "-":
        raise UnknownModel(
            "standard input is not read here",
            hint="give a preset, a path, or a repository on the Hub",
        )
    if is_url(text):
        check_address(text, is_repository=parse_repo(text) is not None)
        return text
    check_path(text)
    if find_repo(text) is not None and find_public_id(text) is None:
        check_address(text, is_repository=True)
    return text


def answer_question(question: dict[str, Any]) -> Answer:
    """Run the command of a tool in this process, whose access is restricted by the caller."""
    from .report_tools import TOOLS, answer

    tool, form = TOOLS[question["tool"]], question["form"]
    values = [(name, value) for name, value in question["values"]]
    found = answer(tool, values, admit_name, local=True, form=form)
    notes = found.notes.strip()
    if found.error is not None:
        return Answer(text=found.text.strip() or notes, is_error=True)
    if form == "json" and len(found.text) > MAX_JSON:
        text = answer(tool, values, admit_name, local=True, form="text").text
        return Answer(
            text=text,
            notes=(
                f"the JSON has {len(found.text):,} characters: this is the report as text",
                notes,
            ),
        )
    return Answer(text=found.text, notes=(notes,), is_json=form == "json")


def _limit_memory() -> None:
    """Limit the memory of this process, where the system can."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, ValueError, OSError):
        pass


def _limit_time(seconds: float) -> None:
    """End this process by itself after some seconds, even if the one that asks is gone; 0 lifts
    the limit.
    """
    if hasattr(signal, "alarm"):
        signal.alarm(int(seconds) + 2 if seconds else 0)


def main() -> None:
    """Answer the questions on standard input, one a line, until it ends."""
    _limit_memory()
    for line in sys.stdin.buffer:
        question = json.loads(line)
        _limit_time(question["seconds"])
        with only(Access(**question["access"])):
            answer = answer_question(question)
        sys.stdout.write(json.dumps(answer.to_json()) + "\n")
        sys.stdout.flush()
        _limit_time(0)


if __name__ == "__main__":
    main()
