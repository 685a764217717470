"""Cost limits that do not depend on the machine: function calls and peak memory."""

from __future__ import annotations

import signal
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
HANG_S = 120
"""CPU seconds that only a hang takes, on any machine."""


def within_calls(max_calls: int, work: Callable[[], T]) -> T:
    """Return the result of work that makes at most this many calls of Python and C functions, and does not hang."""
    count = 0

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    with hang_guard():
        sys.setprofile(profile)
        try:
            result = work()
        finally:
            sys.setprofile(None)
    assert count <= max_calls, f"{count:,} calls, expected at most {max_calls:,}"
    return result


@contextmanager
def hang_guard(seconds: float = HANG_S) -> Iterator[None]:
    """Fail if the body hangs."""

    def fail(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"still running after {seconds:g} seconds")

    previous = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the peak number of bytes that work allocates."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
