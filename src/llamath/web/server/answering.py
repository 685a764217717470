"""`answers_of`: where a process that computes for the server begins; the server itself imports
nothing of that.
"""

from __future__ import annotations

from collections.abc import Callable

from .messages import Launch


def answers_of(launch: Launch) -> Callable[[bytes], bytes]:
    """Return the function that answers messages."""
    from .answers import Answers

    return Answers(launch)
