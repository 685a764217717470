"""A script that kills a conversion before each of its system calls in turn, or lets the call fail, runs it again, and prints their number.

It forks, so that it imports nothing that starts threads. Of the calls that the same lines make it takes the first and the last, or all of them. Calls
after which the files are the same are followed by one second run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from traceback import print_exception
from typing import Any

from llamath.checkpoint.formats.checkpoint_files import read_checkpoint
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from llamath.questions.edit_settings import Edit
from llamath.utils.errors import FormatError, LlamathError

CALLS = (
    "open", "mkdir", "write", "pwrite", "fsync", "rename", "replace", "unlink", "rmdir", "pread", "stat", "lstat", "fstat", "listdir",
    "scandir", "statvfs", "close",
)  # fmt: skip
READ_ONLY = {"pread", "stat", "lstat", "fstat", "listdir", "scandir", "statvfs", "close"}
"""Calls before which a kill leaves the same files as after the call before; they are only made to fail."""


Lines = tuple[object, ...]
"""The name of a call and the lines of the program that led to it, from the innermost."""


def read_tree(folder: Path) -> dict[str, bytes]:
    return {
        str(x.relative_to(folder)): x.read_bytes() for x in sorted(folder.rglob("*")) if x.is_file()
    }


def paths_of(folder: Path) -> frozenset[tuple[str, bytes | None]]:
    """All files with their contents, and all folders."""
    return frozenset(
        (str(x.relative_to(folder)), x.read_bytes() if x.is_file() else None)
        for x in folder.rglob("*")
    )


def calling_lines(name: str) -> Lines:
    frame = sys._getframe(2)
    lines: list[object] = [name]
    while frame.f_back is not None:
        lines += (frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return tuple(lines)


def made_calls(work: Callable[[], object], error: int) -> list[Lines]:
    """Do the work in this process; return the lines of each call that `fail_at_call` would count."""
    made: list[Lines] = []

    def listed(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*args: Any, **rest: Any) -> Any:
            made.append(calling_lines(name))
            return call(*args, **rest)

        return counted

    names = [x for x in CALLS if error or x not in READ_ONLY]
    real = {name: getattr(os, name) for name in names}
    for name, call in real.items():
        setattr(os, name, listed(call, name))
    try:
        work()
    finally:
        for name, call in real.items():
            setattr(os, name, call)
    return made


def chosen_calls(made: list[Lines], every: bool) -> list[int]:
    """The first and the last call of the same lines, and one past the end; or all."""
    if every:
        return list(range(len(made) + 1))
    first = {x: i for i, x in reversed(list(enumerate(made)))}
    last = {x: i for i, x in enumerate(made)}
    return sorted({*first.values(), *last.values(), len(made)})


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


def do(source: str, target: Path, order: ConvertOptions) -> None:
    convert_checkpoint(source, str(target), order)


def run(source: str, target: Path, order: ConvertOptions, at: int | None, error: int = 0) -> int:
    """The exit status of a conversion in a process of its own; the negative number of the signal that killed it."""
    if (child := os.fork()) == 0:
        left = [1] if at is None else fail_at_call(at, error)
        try:
            do(source, target, order)
        except LlamathError as refused:
            os.write(2, f"{type(refused).__name__}: {refused}\n".encode())
            os._exit(3)
        except BaseException as crash:
            print_exception(crash)
            os._exit(4)
        os._exit(0 if left[0] >= 0 else 5)  # 5: a failure that did not matter
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def write_tree(place: Path, old: dict[str, bytes]) -> Path:
    place.mkdir()
    for file, data in old.items():
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_bytes(data)
    return place


def report(
    source: Path,
    home: Path,
    to: str,
    target: str,
    force: str,
    error: int = 0,
    every: bool = False,
) -> dict[str, Any]:
    """What this script prints, in a process of its own; fails if something is wrong."""
    words = map(str, (source, home, to, target, force, error, "every" if every else ""))
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, timeout=1800
    )
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    assert "wrong" not in found and found, (found, done.stderr[-2000:])
    return found


def is_refused(target: Path) -> bool:
    """Whether the commands that read a checkpoint refuse this folder because a move is unfinished."""
    try:
        read_checkpoint(str(target))
    except FormatError as refused:
        return refused.code == "unfinished"
    return False


def main(
    source: str, home: str, to: str, target: str, force: bool, error: int, every: bool
) -> dict[str, object]:
    edits = {"edit": Edit(layers="1:", vocab_size=90), "ranks": Edit(tp_shards=2)}
    order = ConvertOptions(
        to="" if to in edits else to,
        edit=edits.get(to, Edit()),
        max_shard_size=200_000 if to == "edit" else 12_000,
        force=force,
    )
    old: dict[str, bytes] = {}
    if force:
        folders = [f"{target}/{rank}" for rank in (0, 1)] if to == "ranks" else [target]
        contents = {
            "model.safetensors": b"old weights",
            "config.json": b"old",
            "README.md": b"kept",
        }
        old = {f"{x}/{name}": data for x in folders for name, data in contents.items()}
    warm, whole = write_tree(Path(home) / "warm", old), write_tree(Path(home) / "whole", old)
    do(source, warm / target, order)  # imports modules and fills caches, for all forks
    made = made_calls(lambda: do(source, whole / target, order), error)
    right, moved = read_tree(whole), 0
    ended = {3, 5} if error else {-signal.SIGKILL}
    repeated: dict[frozenset[tuple[str, bytes | None]], str] = {}
    for at in chosen_calls(made, every):
        place = write_tree(Path(home) / f"killed-{at}", old)
        status = run(source, place / target, order, at, error)
        after, paths = read_tree(place), paths_of(place)
        hidden = {x for x in after if ".llamath-convert" in x}
        shown = {x: data for x, data in after.items() if x not in hidden}
        unfinished = {place / Path(x).parents[1] for x in hidden if x.endswith("/moving")}
        moving = bool(unfinished)
        moved += moving
        if status not in (ended if at < len(made) else {0}):
            return {"wrong": f"call {at}: exit status {status}"}
        if shown not in (old, right) and not moving:
            return {"wrong": f"call {at}: {sorted(shown)}, {sorted(hidden)}"}
        if paths not in repeated:
            repeated[paths] = (
                wrong_repetition(
                    source, place / target, order, right, shown == right and not moving
                )
                if all(map(is_refused, unfinished))
                else f"{sorted(shown)} is read although its move is unfinished"
            )
        if repeated[paths]:
            return {"wrong": f"call {at}: {repeated[paths]}"}
        shutil.rmtree(place)
    return {"calls": len(made), "moved": moved}


def wrong_repetition(
    source: str,
    target: Path,
    order: ConvertOptions,
    right: dict[str, bytes],
    finished: bool,
) -> str:
    """What is wrong after a second run, which is refused if the first has finished; empty if nothing is."""
    place = target.parent
    before = sorted(map(str, place.rglob("*")))
    done = 3 if finished and not order.force else 0
    # of several folders, the first run may have moved all files and not have removed its markers
    allowed = {done, 0} if order.edit.tp_shards else {done}
    if (again := run(source, target, order, None)) not in allowed:
        return f"the second run ended with {again}; {before}"
    if read_tree(place) != right or any(".llamath-convert" in str(x) for x in place.rglob("*")):
        return f"after the second run {sorted(map(str, place.rglob('*')))}"
    return ""


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:5], bool(sys.argv[5]), int(sys.argv[6]), bool(sys.argv[7]))))
