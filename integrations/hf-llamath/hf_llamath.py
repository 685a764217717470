"""`hf llamath …`: llamath's commands, in which an id `owner/name` is a repository of the Hub."""

from __future__ import annotations

import re
import sys

from llamath.catalog import find_public_id
from llamath.cli import main as llamath

_ID = re.compile(r"[\w.-]+/[\w.-]+")


def on_the_hub(word: str) -> str:
    """Return an id that no preset has as the address of its repository."""
    return f"hf://{word}" if _ID.fullmatch(word) and find_public_id(word) is None else word


def main() -> None:
    """Run llamath with the words after `hf llamath`."""
    sys.argv[1:] = [x if x.startswith(("-", ".", "/")) else on_the_hub(x) for x in sys.argv[1:]]
    llamath()


if __name__ == "__main__":
    main()
