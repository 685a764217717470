"""The defaults of `~/.config/llamath.toml`: GPUs, context and dtype of the commands that size a
model for a user at a terminal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ..utils.errors import LlamathError, safe
from ..utils.private_folder import user_folder

KEYS = {"on": "'rtx-4090'", "context": "'8k'", "dtype": "'q4_k_m'"}
"""What may stand in the file, each with an example."""
_OF = {
    "fit": tuple(KEYS),
    "memory": tuple(KEYS),
    "quants": ("on", "context"),
    "models": ("context", "dtype"),
}
"""Command → the defaults that it takes."""
_MOST_BYTES = 1 << 16


def settings_path() -> str:
    """Return where the settings of this user are; an empty string if there is no home."""
    folder = user_folder("XDG_CONFIG_HOME", ".config")
    return f"{folder}.toml" if folder else ""


def user_defaults(command: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the defaults for a command, without those that are given."""
    names = _OF.get(command, ())
    if not names or (command == "models" and "on" not in given):
        return {}
    path = settings_path()
    found = read_settings(path) if path and os.path.exists(path) else {}
    return {x: found[x] for x in names if x in found and x not in given}


def read_settings(path: str) -> dict[str, str]:
    """Read the settings; an error names the line that is wrong."""
    import tomllib

    where = safe(path, 200)
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise LlamathError(
            f"{where} cannot be read: {error.strerror}", hint="it is a file of text, or not there"
        ) from None
    if len(data) > _MOST_BYTES:
        raise LlamathError(f"{where} has more than {_MOST_BYTES:,} bytes", hint=_hint())
    try:
        text = data.decode("utf-8")
        settings = tomllib.loads(text)
    except UnicodeDecodeError:
        raise LlamathError(f"{where}: expected UTF-8 text", hint=_hint()) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"^(.*) \(at (?:line (\d+)|(end of document))", str(error))
        line = found[2] if found and found[2] else text.count("\n") + 1
        problem = found[1] if found else "too deep"
        raise LlamathError(
            f"{where}, line {line}: expected TOML, found: {safe(problem, 120)}", hint=_hint()
        ) from None
    for key, value in settings.items():
        line = _line_of(text, key)
        if key not in KEYS:
            raise LlamathError(
                f"{where}, line {line}: unknown setting {safe(repr(key), 60)}", hint=_hint()
            )
        is_number = key == "context" and type(value) is int
        if not (isinstance(value, str) and value.strip()) and not is_number:
            raise LlamathError(
                f"{where}, line {line}: {key} should be text like {KEYS[key]}, found "
                f"{safe(repr(value), 60)}",
                hint=_hint(),
            )
    return {key: str(value) for key, value in settings.items()}


def _hint() -> str:
    return f"the settings are {', '.join(f'{x} = {y}' for x, y in KEYS.items())}"


def _line_of(text: str, key: str) -> int:
    """Return the line on which a key is set, in whatever form."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.split(r"[^\w-]", line.lstrip(" \t[\"'"), maxsplit=1)[0] == key:
            return number
    return 1
