"""Work in processes: a few at once, bounded queues, and limits of time and memory, beyond which
the process is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import Lock
from typing import TypeVar

from ...utils.worker_process import WorkerEnded, WorkerProcess
from .error_page import PageError

S = TypeVar("S")
WORK_SECONDS, WORK_MEMORY = 30.0, 1 << 30
"""The limits of an answer; the second one is in bytes, and holds where the system has such a
limit."""
_PROCESSES, _CONFIGS, _HEADERS, _MAX_WAITING, _WAIT_SECONDS, _MAX_ANSWERS = 3, 8, 2, 16, 20.0, 500
"""Processes at once, configs and headers in memory that wait for an answer, requests that wait,
for how long, and the answers of one process."""


class WorkerFailed(Exception):
    """An error in this program, with the traceback of the process."""


class _Lane:
    """A few that are inside at once, and a bounded queue."""

    def __init__(self, at_once: int) -> None:
        self._slots, self._waiting = asyncio.Semaphore(at_once), 0

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Wait for a place; too many, and those that have waited for too long, are refused."""
        if self._waiting >= _MAX_WAITING:
            raise PageError(429, "Too many requests; try again in a moment.")
        self._waiting += 1
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise PageError(429, "The server is busy; try again in a moment.") from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()


class WorkSlots:
    """Asks processes, which are started when they are needed and used again; one that hangs is
    killed.

    Requests choose what is computed for a `question`. One process is never occupied by questions,
    so that the pages of presets are answered even if all questions hang.
    """

    def __init__(self, work: Callable[[S], Callable[[bytes], bytes]], setup: S) -> None:
        """Let the processes be those of a `WorkerProcess`."""
        self.configs, self.headers = _Lane(_CONFIGS), _Lane(_HEADERS)
        self.seconds, self.memory = WORK_SECONDS, WORK_MEMORY
        self._start: Callable[[], WorkerProcess] = lambda: WorkerProcess(
            work, setup, seconds=self.seconds, memory=self.memory
        )
        self._threads = ThreadPoolExecutor(_PROCESSES, "worker")
        self._questions, self._all = _Lane(_PROCESSES - 1), _Lane(_PROCESSES)
        self._workers: dict[WorkerProcess, int] = {}
        self._idle: list[WorkerProcess] = []
        self._lock, self._is_closed = Lock(), False

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that are alive."""
        return [x.pid for x in list(self._workers) if x.pid is not None]

    def prepare(self) -> None:
        """Start a process before it is needed."""
        self._threads.submit(self._add_idle)

    async def ask(self, message: bytes, *, is_question: bool) -> bytes:
        """Return the answer of a process."""
        if not is_question:
            return await self._ask_any(message)
        async with self._questions.enter():
            return await self._ask_any(message)

    def close(self) -> None:
        """Kill all processes; what they were asked is answered with an error."""
        with self._lock:
            self._is_closed = True
            for worker in self._workers:
                worker.kill()
        self._threads.shutdown(wait=False)

    async def _ask_any(self, message: bytes) -> bytes:
        async with self._all.enter():
            try:
                if self._is_closed:
                    raise WorkerEnded("killed")
                return await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._ask, message
                )
            except WorkerEnded as ended:
                raise self._error_of(ended) from None

    def _ask(self, message: bytes) -> bytes:
        worker = self._take()
        try:
            answer = worker.ask(message)
        except BaseException:
            self._remove(worker)
            raise
        self._workers[worker] += 1
        if self._workers[worker] < _MAX_ANSWERS:
            self._idle.append(worker)
        else:
            self._remove(worker)
            self.prepare()
        return answer

    def _add_idle(self) -> None:
        self._idle.append(self._take())

    def _take(self) -> WorkerProcess:
        with self._lock:
            if self._is_closed:
                raise WorkerEnded("killed")
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive:
                    return worker
                del self._workers[worker]
            worker = self._start()
            self._workers[worker] = 0
            return worker

    def _remove(self, worker: WorkerProcess) -> None:
        worker.kill()
        with self._lock:
            self._workers.pop(worker, None)

    def _error_of(self, ended: WorkerEnded) -> Exception:
        if ended.reason == "error":
            return WorkerFailed(str(ended))
        if ended.reason == "time":
            text = (
                f"This took longer than {self.seconds:g} seconds; the command line has no "
                "time limit."
            )
            return PageError(422, text, code="too_slow")
        if ended.reason == "memory":
            text = (
                f"This needs more than {self.memory / 2**30:g} GiB of memory; the command "
                "line has no such limit."
            )
            return PageError(422, text, code="too_large")
        text = "What computed this has ended unexpectedly; try again in a moment."
        return PageError(503, "The server is ending." if self._is_closed else text)
