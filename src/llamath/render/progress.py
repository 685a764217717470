"""A progress bar on stderr for work that takes more than a second, if stderr is a terminal."""

from __future__ import annotations

import os
import sys
from time import monotonic
from typing import Self

_DELAY_S, _INTERVAL_S = 1.0, 0.1
"""Seconds before the bar appears, and between two updates."""


class Bar:
    """A bar with the share that is done, the speed and the remaining time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._shown = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._begin = self._drawn = monotonic()
        self._first: int | None = None
        self._width = 0

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` bytes are done."""
        now = monotonic()
        if self._first is None:
            self._first, self._begin = done, now
        if self._shown and now - self._begin > _DELAY_S and now - self._drawn > _INTERVAL_S:
            self._drawn = now
            self._draw(line(done, total, (done - self._first) / (now - self._begin)))

    def _draw(self, text: str) -> None:
        sys.stderr.write(f"\r{text:{self._width}}")
        sys.stderr.flush()
        self._width = len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = monotonic() - self._begin
        if self._width:
            self._draw("")
            sys.stderr.write("\r")
            sys.stderr.flush()


def line(done: int, total: int, rate: float, width: int = 24) -> str:
    """`[######······] 48 %  7.8 of 16.1 GB  1.2 GB/s  7 s left`."""
    filled = done * width // total if total else width
    left = f"  {_time((total - done) / rate)} left" if rate > 0 else ""
    share = done * 100 // total if total else 100
    return f"[{'#' * filled}{'·' * (width - filled)}] {share:3} %  {done / 1e9:.1f} of {total / 1e9:.1f} GB  {rate / 1e9:.2f} GB/s{left}"


def _time(seconds: float) -> str:
    whole = round(seconds)
    return (
        f"{whole // 3600} h {whole % 3600 // 60:02} min"
        if whole >= 3600
        else f"{whole // 60} min {whole % 60:02} s"
        if whole >= 60
        else f"{whole} s"
    )
