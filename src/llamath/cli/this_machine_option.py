"""`--on this`: the words that stand for this machine, and what was measured here."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from ..utils.errors import LlamathError
from ..utils.private_folder import find_foreign, make_private_folder, user_folder
from ..utils.write_whole_file import write_whole_file
from .output import note

if TYPE_CHECKING:
    from ..analysis.size.fit.calibration import Calibration
    from ..hardware.this_machine import ThisMachine

_THIS = re.compile(r"(?:^|(?<=[,+]))\s*this\s*(?=$|[,+])", re.IGNORECASE)


def names_this(gpus: str) -> bool:
    """Whether a text that stands for GPUs has this machine in it."""
    return bool(_THIS.search(gpus))


def replace_this(gpus: str, *, takes_file: bool) -> str:
    """Return the text with the words for this machine in place of `this`, and say what it is.

    Where nothing but this machine is asked of a command that takes a file, it is the file of what
    `gpus this` measured here.
    """
    from ..hardware.this_machine import find_this_machine

    found = find_this_machine()
    measured = None if found.gpus else _read_measured(found)
    spec = found.spec
    line = f"this machine: {found.line}"
    if measured is not None:
        spec += f" bw={measured.bandwidth / 1e9:.4g}GB/s"
        line += f"; {measured.bandwidth / 1e9:.1f} GB/s as measured here"
        if takes_file and gpus.strip().lower() == "this" and found.memory >= measured.memory:
            spec = _measured_path() or spec
    elif not found.gpus:
        line += "; `llamath gpus this` measures its speed"
    for text in (f"{line} (--on '{spec}')", *found.notes):
        note(text)
    return _THIS.sub(spec.replace("\\", r"\\"), gpus)


def remember_measured(calibration: Calibration) -> None:
    """Keep what was measured on this machine for `--on this`, if there is a folder for it."""
    path = _measured_path()
    if not path or make_private_folder(os.path.dirname(path)):
        return
    text = json.dumps(calibration.to_json(), indent=1) + "\n"
    write_whole_file(path, text, overwrite=True)


def _read_measured(found: ThisMachine) -> Calibration | None:
    from ..analysis.size.fit.calibration import read_calibration

    path = _measured_path()
    if not path or not os.path.exists(path) or find_foreign(path):
        return None
    try:
        measured = read_calibration(path)
    except LlamathError:
        return None
    return measured if measured.machine == found.processor else None


def _measured_path() -> str:
    folder = user_folder("XDG_STATE_HOME", os.path.join(".local", "state"))
    return os.path.join(folder, "machine.json") if folder else ""
