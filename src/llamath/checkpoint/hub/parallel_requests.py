"""Several questions at the same time, for what takes its time because it is far away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
WORKERS = 8
"""How many at once."""


def map_in_threads(work: Callable[[str], T], names: Sequence[str]) -> list[T]:
    """What `work` makes of every name, in order; of several errors the first name's is raised."""
    with ThreadPoolExecutor(min(WORKERS, len(names) or 1)) as pool:
        futures = [pool.submit(work, name) for name in names]
        try:
            return [x.result() for x in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
