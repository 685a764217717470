"""`WorkerProcess`: a process that answers one message after another, within limits of time and
memory, and can be killed at any moment.

A thread cannot be ended while a C function works in it, as that of a regular expression does, which
holds the lock of the whole interpreter. A process can, and its memory is free afterwards.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Lock
from typing import Literal, TypeVar

S = TypeVar("S")
_START_SECONDS, _GRACE_SECONDS = 120.0, 5
"""The time in which a process has to start, and after its time limit, the time after which it
ends itself."""
MAX_MESSAGE = 128 << 20
"""Bytes of a message or an answer."""
_READY, _ANSWER, _MEMORY, _FAILURE = b"r", b"a", b"m", b"f"
"""The first byte of what a process sends: that it is ready, an answer, that the memory did not
suffice, or the text of an error."""


class WorkerEnded(Exception):
    """A process has ended without an answer: by its limit of `time` or `memory`, it was
    `killed`, or its function raised an `error`.
    """

    def __init__(
        self, reason: Literal["time", "memory", "killed", "error"], text: str = ""
    ) -> None:
        super().__init__(text or reason)
        self.reason = reason


class WorkerProcess:
    """A process for one thread at a time; `kill` may be called from any.

    Where the system has such limits (Linux), the process can reserve `memory` bytes of addresses,
    and ends together with the process that has started it, even one that is killed. Elsewhere, it
    ends some seconds after its time limit.
    """

    def __init__(
        self,
        work: Callable[[S], Callable[[bytes], bytes]],
        setup: S,
        *,
        seconds: float,
        memory: int,
    ) -> None:
        """Start a process that calls `work`, a function of a module, with `setup`, and then what
        that returns with each message.
        """
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._seconds, self._is_ready, self._lock = seconds, False, Lock()
        arguments = (theirs, work, setup, seconds, memory, os.getpid())
        self._process = context.Process(target=_run, args=arguments, daemon=True)
        with _without_interrupts():
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int | None:
        """The process's id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        with self._lock:
            return self._process.is_alive()

    def ask(self, message: bytes) -> bytes:
        """Send a message and return the answer; where there is none, the process is killed."""
        try:
            if not self._is_ready:
                self._receive(_START_SECONDS)
                self._is_ready = True
            self._connection.send_bytes(message)
            return self._receive(self._seconds)
        except (EOFError, OSError):
            self.kill()
            raise WorkerEnded("killed") from None
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End the process at once, whatever it does, and wait until it has ended."""
        with self._lock:
            self._process.kill()
            self._process.join()

    def _receive(self, seconds: float) -> bytes:
        if not self._connection.poll(seconds):
            raise WorkerEnded("time")
        data = self._connection.recv_bytes(MAX_MESSAGE)
        kind, data = data[:1], data[1:]
        if kind == _MEMORY:
            raise WorkerEnded("memory")
        if kind == _FAILURE:
            raise WorkerEnded("error", data.decode())
        return data


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let a process that is started here never receive Ctrl-C, which a terminal sends to all of
    its processes: its parent ends it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(
    connection: Connection,
    work: Callable[[S], Callable[[bytes], bytes]],
    setup: S,
    seconds: float,
    memory: int,
    parent: int,
) -> None:
    """Answer messages until the other end of the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with(parent)
    _limit_memory(memory)
    # the process that asks has ended
    with suppress(EOFError, OSError), open(os.devnull, "w") as nowhere:
        answer = work(setup)
        gc.collect()
        gc.freeze()
        connection.send_bytes(_READY)
        while True:
            message = connection.recv_bytes(MAX_MESSAGE)
            # a thread of C, which needs no lock of the interpreter
            faulthandler.dump_traceback_later(
                int(seconds) + _GRACE_SECONDS, exit=True, file=nowhere
            )
            reply, is_last = _answer(answer, message)
            connection.send_bytes(reply)
            faulthandler.cancel_dump_traceback_later()
            if is_last:
                return


def _answer(answer: Callable[[bytes], bytes], message: bytes) -> tuple[bytes, bool]:
    """Return what is sent back, and whether the process should not be used any more."""
    try:
        return _ANSWER + answer(message), False
    except MemoryError:
        return _MEMORY, True
    except Exception:
        from traceback import format_exc

        return _FAILURE + format_exc().encode("utf-8", "backslashreplace"), True


def _end_with(parent: int) -> None:
    """Let the system kill this process when the one ends that has started it."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)


def _limit_memory(most: int) -> None:
    """Limit the addresses that this process can reserve."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
