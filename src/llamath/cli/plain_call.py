"""`answer_plainly`: the calls that need none of click, whose import takes longer than their
answer.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from ..render.progress import Progress
from ..utils.errors import LlamathError
from .output import echo, note


def answer_plainly(words: Sequence[str]) -> bool:
    """Answer `code PRESET`; return whether that was asked. An error is left to the command, which
    says it in the words of the command line.
    """
    if len(words) != 2 or words[0] != "code":
        return False
    from ..catalog import has_preset

    if not has_preset(words[1]) or os.path.lexists(words[1]):
        return False
    gc.disable()  # a file is written before there is anything to collect
    from ..analysis.code.code_report import write_code
    from ..loading import load_family

    try:
        with Progress("reading the config"):
            model = load_family(words[1])
        report = write_code(model)
    except LlamathError:
        gc.enable()
        return False
    except KeyboardInterrupt:
        sys.exit(130)
    echo(report.terminal_text())
    for text in report.notes:
        note(text)
    return True
