"""What work may cost: CPU seconds and peak memory, measured."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """The result of work that takes less CPU time than this, at the second attempt if need be: machines have bad moments."""
    for attempt in (1, 2):
        start = time.process_time()
        found = work()
        took = time.process_time() - start
        if took < seconds or attempt == 2:
            break
    assert took < seconds
    return found


def peak(work: Callable[[], object]) -> int:
    """The most bytes that work holds at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
