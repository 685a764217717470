"""`python -m llamath`: the command line."""

from __future__ import annotations

import os

from .cli import main


def run() -> None:
    """Run the command line in a process of its own: what it has written is flushed, so that an
    answer can end without taking its objects apart.
    """
    main(os._exit)


if __name__ == "__main__":
    run()
