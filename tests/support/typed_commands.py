"""What a command answers that is run in the process of the tests, by the fixture `typed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Answer(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str


Typed = Callable[..., Answer]
