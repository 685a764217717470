"""Progress on stderr, if it is a terminal, of work that takes longer than a second or two."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from threading import Event, Thread

BAR_DELAY, MESSAGE_DELAY, INTERVAL = 1.0, 2.0, 0.1
"""Seconds before a bar or a message appears, and between two updates."""

_silenced: ContextVar[bool] = ContextVar("silenced", default=False)


@contextmanager
def without_progress() -> Iterator[None]:
    """Show no progress of the work of this thread."""
    before = _silenced.set(True)
    try:
        yield
    finally:
        _silenced.reset(before)


def _is_interactive() -> bool:
    if _silenced.get():
        return False
    try:
        return (
            sys.stderr.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
    except (AttributeError, ValueError):
        return False


class Bar:
    """A progress bar with the share, the rate and the time left; until its first update, a
    message with the seconds that have passed.
    """

    def __init__(self, message: str) -> None:
        self.seconds = 0.0
        self._waiting = Progress(message)
        self._shown = _is_interactive()
        self._begin = self._drawn = monotonic()
        self._first: int | None = None
        self._width = 0

    def update(self, done: int, total: int) -> None:
        """Update the number of processed bytes."""
        now = monotonic()
        if self._first is None:
            self._waiting.stop()
            self._first, self._begin = done, now
        if self._shown and now - self._begin > BAR_DELAY and now - self._drawn > INTERVAL:
            self._drawn = now
            self._draw(self.line(done, total, (done - self._first) / (now - self._begin)))

    def line(self, done: int, total: int, rate: float) -> str:
        """Return the bar with the numbers of bytes."""
        return bar_line(done, total, rate)

    def _draw(self, text: str) -> None:
        sys.stderr.write(f"\r{text:{self._width}}")
        sys.stderr.flush()
        self._width = len(text)

    def __enter__(self) -> Self:
        self._waiting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.stop()
        self.seconds = monotonic() - self._begin
        if self._width:
            self._draw("")
            sys.stderr.write("\r")
            sys.stderr.flush()


class CountBar(Bar):
    """A progress bar of things that are counted: models, files."""

    def __init__(self, noun: str) -> None:
        super().__init__(noun)
        self._noun = noun

    def line(self, done: int, total: int, rate: float) -> str:
        """Return the bar with the numbers of things."""
        return count_line(done, total, rate, self._noun)


class Progress:
    """A message with the elapsed seconds, for work of unknown length; it appears after two
    seconds.
    """

    def __init__(self, message: str) -> None:
        self._message = message
        self._done: Event | None = None
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to count the seconds."""
        if _is_interactive():
            from threading import Event, Thread

            self._done = Event()
            self._thread = Thread(target=self._run, args=[self._done], daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Remove the message."""
        if self._thread is not None and self._done is not None:
            self._done.set()
            self._thread.join()

    def _run(self, done: Event) -> None:
        start, shown = monotonic(), 0
        while not done.wait(MESSAGE_DELAY if not shown else 1.0):
            text = f"{self._message} … {monotonic() - start:.0f} s"
            sys.stderr.write(f"\r{text:{shown}}")
            sys.stderr.flush()
            shown = len(text)
        if shown:
            sys.stderr.write(f"\r{'':{shown}}\r")
            sys.stderr.flush()


def bar_line(done: int, total: int, rate: float, width: int = 24) -> str:
    """Return `[######······] 48%  7.8 of 16.1 GB  1.2 GB/s  7 s left`."""
    return (
        f"{_filled(done, total, width)}  {done / 1e9:.1f} of {total / 1e9:.1f} GB  "
        f"{rate / 1e9:.2f} GB/s{_left(done, total, rate)}"
    )


def count_line(done: int, total: int, rate: float, noun: str, width: int = 24) -> str:
    """Return `[######······] 48%  210 of 438 models  57 s left`."""
    return f"{_filled(done, total, width)}  {done:,} of {total:,} {noun}{_left(done, total, rate)}"


def _filled(done: int, total: int, width: int) -> str:
    filled = done * width // total if total else width
    return f"[{'#' * filled}{'·' * (width - filled)}] {done * 100 // total if total else 100:3}%"


def _left(done: int, total: int, rate: float) -> str:
    return f"  {_duration((total - done) / rate)} left" if rate > 0 else ""


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"
