"""`RemoteFolder`: a folder that is read over a network, several files at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...utils.errors import RemoteError, safe
from ..formats.checkpoint_files import MAX_SHARDS
from ..formats.folder import Folder

T = TypeVar("T")
WORKERS = 8
"""Number of files that are read at the same time."""


class RemoteFolder(Folder):
    """Base of folders on web servers and in object stores."""

    max_files = MAX_SHARDS

    def map_names(self, work: Callable[[str], T], names: Sequence[str]) -> list[T]:
        """Return the result of `work` for every name, in order; of several errors, the first
        name's is raised.
        """
        if len(names) > self.max_files:
            raise RemoteError(
                "many_files",
                f"{safe(self.name)}: expected at most "
                f"{self.max_files:,} files to read, found {len(names):,}",
            )
        with ThreadPoolExecutor(min(WORKERS, len(names) or 1)) as pool:
            futures = [pool.submit(work, name) for name in names]
            try:
                return [x.result() for x in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
