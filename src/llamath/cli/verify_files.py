"""`llamath-verify-files FILE …`: the hook of pre-commit, which verifies the checkpoint of each
changed file once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from . import main as llamath

_WEIGHTS = (".safetensors", ".safetensors.index.json", ".gguf")


def checkpoints(files: Sequence[str]) -> list[str]:
    """Return the checkpoints of files, each once: a GGUF file is one itself, others are of their
    folder, if it has weights.
    """
    found: dict[str, None] = {}
    for path in files:
        folder = os.path.dirname(path) or "."
        if path.endswith(".gguf"):
            found[path] = None
        elif any(x.endswith(_WEIGHTS) for x in os.listdir(folder)):
            found[folder] = None
    return list(found)


def main() -> None:
    """Verify the checkpoints of the files that are named; the worst exit code is the hook's."""
    worst = 0
    for path in checkpoints(sys.argv[1:]):
        sys.argv[1:] = ["verify", "--", os.path.join(os.curdir, path)]
        try:
            llamath()
        except SystemExit as end:
            worst = max(worst, end.code if isinstance(end.code, int) else 1)
    sys.exit(worst)
