"""Work in threads: a few at once, a bounded queue, and a time limit that ends the thread."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from ...utils.errors import LlamathError

T = TypeVar("T")
_MAX_CONCURRENT, _MAX_WAITING, _WAIT_SECONDS, WORK_SECONDS = 2, 16, 20.0, 30.0
"""Threads at once, requests that wait or work, and the time limits of waiting and of working."""


class PageError(LlamathError):
    """A request that cannot be answered, with the HTTP status of the response."""

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class WorkSlots:
    """Runs functions in threads; a slot is occupied until its thread ends, even if the request was cancelled."""

    def __init__(self, work_seconds: float = WORK_SECONDS) -> None:
        self.slots, self.waiting, self.work_seconds = asyncio.Semaphore(_MAX_CONCURRENT), 0, work_seconds

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; too many requests are refused, and work that takes too long is ended."""
        if self.waiting >= _MAX_WAITING:
            raise PageError(429, "Too many requests; try again in a moment.")
        self.waiting += 1
        try:
            await self._acquire()
            job = _Job(work, self.slots.release)
            async with asyncio.timeout(self.work_seconds):
                return await asyncio.shield(job.result)
        except TimeoutError:
            job.stop()
            raise PageError(422, f"This took longer than {self.work_seconds:g} seconds; the command line has no time limit.") from None
        finally:
            self.waiting -= 1

    async def _acquire(self) -> None:
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self.slots.acquire()
        except TimeoutError:
            raise PageError(429, "The server is busy; try again in a moment.") from None


class _OutOfTime(BaseException):
    """Raised in a thread that works for too long; no `except Exception` stops it."""


class _Job(Generic[T]):
    """One function in a thread of its own, which can be stopped between two of its instructions."""

    def __init__(self, work: Callable[[], T], release: Callable[[], None]) -> None:
        self._work, self._release = work, release
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[T] = self._loop.create_future()
        self.result.add_done_callback(lambda x: x.cancelled() or x.exception())  # nobody may be waiting any more
        self._lock, self._ended = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Raise an error in the thread if it still works."""
        with self._lock:
            if not self._ended and self._thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(_OutOfTime))

    def _run(self) -> None:
        finish: Callable[[], object] = self.result.cancel
        try:
            try:
                value = self._work()
                finish = lambda: self.result.set_result(value)  # noqa: E731
            except Exception as error:
                failure = error
                finish = lambda: self.result.set_exception(failure)  # noqa: E731
            with self._lock:
                self._ended = True
            for _ in range(10):  # an error that was raised before that arrives here
                pass
        except _OutOfTime:
            pass
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._finish, finish)

    def _finish(self, finish: Callable[[], object]) -> None:
        self._release()
        if not self.result.done():
            finish()
