"""`stream_files`: read whole files once, in order; digests and a consumer of the bytes run beside
the reading.

`hashlib`, `os.preadv` and numpy release the GIL for large buffers, so that reading, each digest and
the consumer overlap as threads. Memory is bounded: each file that is read has `_BUFFERS` buffers of
`CHUNK_BYTES`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from threading import Event, Lock
from typing import Protocol

from ..utils.errors import FormatError, safe
from ..utils.record_type import Record
from .formats.source import LocalFile

CHUNK_BYTES = 4 << 20
"""Bytes that are read at once."""
_BUFFERS = 3
_MAX_FILES = 8
"""Maximum number of files that are read at the same time."""
_UPDATE_S = 0.1

Progress = Callable[[int, int], None]
"""Receives the numbers of processed and of all bytes."""


class Consumer(Protocol):
    """Receives the bytes of a file in order, in one thread."""

    def feed(self, start: int, data: memoryview) -> None:
        """Process the bytes from `start`; the buffer is reused afterwards."""


class FileTask(Record):
    """A file to read: its path, the size that it must have, the algorithms of its digests, and
    who else receives its bytes.
    """

    path: str
    size: int
    algorithms: tuple[str, ...] = ()
    consumer: Consumer | None = None


def stream_files(
    tasks: Sequence[FileTask], progress: Progress | None = None
) -> list[Mapping[str, str]]:
    """Read the files, several at a time, and return the digests of each by algorithm; the first
    error ends the reading.
    """
    total, counter, stopped = sum(x.size for x in tasks), _Counter(), Event()
    with ThreadPoolExecutor(max(1, min(os.cpu_count() or 1, len(tasks), _MAX_FILES))) as pool:
        futures = [pool.submit(_stream_file, x, counter, stopped) for x in tasks]
        try:
            pending = set(futures)
            while pending:
                done, pending = wait(pending, _UPDATE_S if progress else None, FIRST_COMPLETED)
                for x in done:
                    x.result()
                if progress:
                    progress(counter.count, total)
        except BaseException:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [x.result() for x in futures]


def new_digest(algorithm: str, size: int) -> hashlib._Hash:
    """Return the state of a digest: of `git-sha1`, which begins with the size of the file, or of
    one of `hashlib`'s.
    """
    if algorithm == "git-sha1":
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return hashlib.new(algorithm)


class _Counter:
    """A number of bytes to which several threads add."""

    def __init__(self) -> None:
        self.count, self._lock = 0, Lock()

    def add(self, n: int) -> None:
        with self._lock:
            self.count += n


def _stream_file(task: FileTask, counter: _Counter, stopped: Event) -> Mapping[str, str]:
    """Read one file; each digest and the consumer have a thread of their own, so that they
    receive the chunks in order.
    """
    digests = {x: new_digest(x, task.size) for x in task.algorithms}
    receivers: list[Callable[[int, memoryview], object]] = [_updater(x) for x in digests.values()]
    if task.consumer is not None:
        receivers.append(task.consumer.feed)
    buffers = [bytearray(min(CHUNK_BYTES, max(1, task.size))) for _ in range(_BUFFERS)]
    in_use: list[list[Future[object]]] = [[] for _ in buffers]
    with ExitStack() as stack:
        file = stack.enter_context(LocalFile(task.path))
        _check_size(file, task)
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in receivers]
        start = turn = 0
        while start < task.size and not stopped.is_set():
            for x in in_use[turn]:
                x.result()
            length = min(CHUNK_BYTES, task.size - start)
            data = memoryview(buffers[turn])[:length]
            file.read_into(start, data)
            in_use[turn] = [
                thread.submit(receive, start, data)
                for thread, receive in zip(threads, receivers, strict=True)
            ]
            start += length
            turn = (turn + 1) % _BUFFERS
            counter.add(length)
        for futures in in_use:
            for x in futures:
                x.result()
        _check_size(file, task)
    return {name: x.hexdigest() for name, x in digests.items()}


def _updater(digest: hashlib._Hash) -> Callable[[int, memoryview], object]:
    return lambda _start, data: digest.update(data)


def _check_size(file: LocalFile, task: FileTask) -> None:
    if file.current_size() != task.size:
        raise FormatError(
            "changed",
            f"{safe(task.path)} has changed since its header was read",
            hint="verify it when it is complete",
        )
