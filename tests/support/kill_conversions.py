"""A script that kills a conversion or an edit before each of its system calls in turn, or lets the call fail, runs it again, and prints their number.

It forks, so that it imports nothing that starts threads.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import print_exception
from typing import Any

from llamath.checkpoint.formats.checkpoint_files import read_checkpoint
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from llamath.conversion.edit.edit_checkpoint import edit_checkpoint
from llamath.conversion.edit.edit_options import EditOptions
from llamath.utils.errors import FormatError, LlamathError

CALLS = (
    "open", "mkdir", "write", "pwrite", "fsync", "rename", "replace", "unlink", "rmdir", "pread", "stat", "lstat", "fstat", "listdir",
    "scandir", "statvfs", "close",
)  # fmt: skip
READ_ONLY = {"pread", "stat", "lstat", "fstat", "listdir", "scandir", "statvfs", "close"}
"""Calls before which a kill leaves the same files as after the call before; they are only made to fail."""


def read_tree(folder: Path) -> dict[str, bytes]:
    return {
        str(x.relative_to(folder)): x.read_bytes() for x in sorted(folder.rglob("*")) if x.is_file()
    }


def fail_at_call(at: int, error: int) -> list[int]:
    """Kill this process before its nth call, or let the call fail with this error; a write that fails has written half of its data.

    Returns a list with the number of calls that are left.
    """
    left = [at]

    def wrapped(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*args: Any, **rest: Any) -> Any:
            left[0] -= 1
            if left[0] == -1 or (left[0] < 0 and not error):
                if name == "write" and len(args[1]) > 1:
                    call(args[0], args[1][: len(args[1]) // 2])
                if not error:
                    os.kill(os.getpid(), signal.SIGKILL)
                if name == "close":  # the descriptor is released all the same
                    call(*args, **rest)
                raise OSError(error, os.strerror(error))
            return call(*args, **rest)

        return counted

    for name in CALLS:
        if error or name not in READ_ONLY:
            setattr(os, name, wrapped(getattr(os, name), name))
    return left


def run(
    source: str, target: Path, order: ConvertOptions | EditOptions, at: int | None, error: int = 0
) -> int:
    """The exit status of a conversion in a process of its own; the negative number of the signal that killed it."""
    if (child := os.fork()) == 0:
        left = [1] if at is None else fail_at_call(at, error)
        try:
            if isinstance(order, EditOptions):
                edit_checkpoint(source, str(target), order)
            else:
                convert_checkpoint(source, str(target), order)
        except LlamathError as refused:
            os.write(2, f"{type(refused).__name__}: {refused}\n".encode())
            os._exit(3)
        except BaseException as crash:
            print_exception(crash)
            os._exit(4)
        os._exit(0 if left[0] >= 0 else 5)  # 5: a failure that did not matter
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fresh_folders(home: Path, name: str, old: dict[str, bytes]) -> Iterator[tuple[int, Path]]:
    """Yield a fresh folder with the old files for every kill."""
    for at in range(10_000):
        place = home / f"{name}-{at}"
        place.mkdir()
        for file, data in old.items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(data)
        yield at, place
        shutil.rmtree(place)


def is_refused(target: Path) -> bool:
    """Whether the commands that read a checkpoint refuse this folder because a move is unfinished."""
    try:
        read_checkpoint(str(target))
    except FormatError as refused:
        return refused.code == "unfinished"
    return False


def main(
    source: str, home: str, to: str, target: str, force: bool, error: int
) -> dict[str, object]:
    order: ConvertOptions | EditOptions = ConvertOptions(
        to=to, max_shard_size=int(os.environ.get("SHARD", "12000")), force=force
    )
    if to == "edit":
        order = EditOptions(drop_layers="0", resize_vocab=90, force=force)
    whole = Path(home) / "whole"
    whole.mkdir()
    old: dict[str, bytes] = {}
    if force:
        old = {
            f"{target}/model.safetensors": b"old weights",
            f"{target}/config.json": b"old",
            f"{target}/README.md": b"kept",
        }
        (whole / target).mkdir()
        for file, data in old.items():
            (whole / file).write_bytes(data)
    assert run(source, whole / target, order, None) == 0
    right, moved = read_tree(whole), 0
    ended = {0, 3, 5} if error else {0, -signal.SIGKILL}
    for at, place in fresh_folders(Path(home), "killed", old):
        status = run(source, place / target, order, at, error)
        after = read_tree(place)
        hidden = {x for x in after if ".llamath-convert" in x}
        shown = {x: data for x, data in after.items() if x not in hidden}
        moving = any(x.endswith("/moving") for x in hidden)
        moved += moving
        if status not in ended:
            return {"wrong": f"call {at}: exit status {status}"}
        if shown not in (old, right) and not moving:
            return {"wrong": f"call {at}: {sorted(shown)}, {sorted(hidden)}"}
        if moving and not is_refused(place / target):
            return {"wrong": f"call {at}: {sorted(shown)} is read although its move is unfinished"}
        if status == 0:
            return {"calls": at, "moved": moved}
        finished = shown == right and not moving
        if (again := run(source, place / target, order, None)) != (
            3 if finished and not force else 0
        ):
            return {
                "wrong": f"call {at}: the second run ended with {again}; {sorted(shown)}, {sorted(hidden)}"
            }
        if read_tree(place) != right or any(".llamath-convert" in str(x) for x in place.rglob("*")):
            return {
                "wrong": f"call {at}: after the second run {sorted(map(str, place.rglob('*')))}"
            }
    return {"wrong": "it never ends"}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:5], bool(sys.argv[5]), int(sys.argv[6]))))
