"""A script that kills a conversion before each of its system calls in turn, runs it again, and prints the number of calls.

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
from typing import Any

from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint

CALLS = ("open", "mkdir", "write", "pwrite", "fsync", "rename", "replace", "unlink", "rmdir")


def read_tree(folder: Path) -> dict[str, bytes]:
    return {str(x.relative_to(folder)): x.read_bytes() for x in sorted(folder.rglob("*")) if x.is_file()}


def kill_at_call(at: int) -> None:
    """Kill this process before its nth call; a killed write has written half of its data."""
    left = [at]

    def wrapped(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*args: Any, **rest: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                if name == "write" and len(args[1]) > 1:
                    call(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **rest)

        return counted

    for name in CALLS:
        setattr(os, name, wrapped(getattr(os, name), name))


def run(source: str, target: Path, order: ConvertOptions, at: int | None) -> int:
    """The exit status of a conversion in a process of its own; the negative number of the signal that killed it."""
    if (child := os.fork()) == 0:
        if at is not None:
            kill_at_call(at)
        try:
            convert_checkpoint(source, str(target), order)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(3)
        os._exit(0)
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


def main(source: str, home: str, to: str, target: str, force: bool) -> dict[str, object]:
    order = ConvertOptions(to=to, max_shard_size=int(os.environ.get("SHARD", "12000")), force=force)
    whole = Path(home) / "whole"
    whole.mkdir()
    old: dict[str, bytes] = {}
    if force:
        old = {f"{target}/model.safetensors": b"old weights", f"{target}/config.json": b"old", f"{target}/README.md": b"kept"}
        (whole / target).mkdir()
        (whole / target / "README.md").write_bytes(b"kept")
    assert run(source, whole / target, order, None) == 0
    right, moved = read_tree(whole), 0
    for at, place in fresh_folders(Path(home), "killed", old):
        status = run(source, place / target, order, at)
        after = read_tree(place)
        hidden = {x for x in after if ".llamath-convert" in x}
        shown = {x: data for x, data in after.items() if x not in hidden}
        moving = any(x.endswith("/moving") for x in hidden)
        moved += moving
        if status not in (0, -signal.SIGKILL):
            return {"wrong": f"call {at}: exit status {status}"}
        if shown not in (old, right) and not moving:
            return {"wrong": f"call {at}: {sorted(shown)}, {sorted(hidden)}"}
        if status == 0:
            return {"calls": at, "moved": moved}
        finished = shown == right and not moving
        if (again := run(source, place / target, order, None)) != (3 if finished and not force else 0):
            return {"wrong": f"call {at}: the second run ended with {again}; {sorted(shown)}, {sorted(hidden)}"}
        if read_tree(place) != right or any(".llamath-convert" in str(x) for x in place.rglob("*")):
            return {"wrong": f"call {at}: after the second run {sorted(map(str, place.rglob('*')))}"}
    return {"wrong": "it never ends"}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:5], bool(sys.argv[5:]))))
