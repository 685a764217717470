"""`LearnerProgress`: which questions a learner has answered, kept in the user's state folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from ...utils.errors import LlamathError, safe
from ...utils.private_folder import user_folder
from ...utils.write_whole_file import write_whole_file

_SCHEMA = "llamath-progress-1"
_FILE = "learn.json"
_MAX_BYTES = 2**20
_STATES = ("right", "shown")
Done = dict[str, dict[str, str]]


class LearnerProgress:
    """The answered questions by lesson and model. What cannot be read or kept is a note, and never
    an error.
    """

    def __init__(self) -> None:
        folder = user_folder("XDG_STATE_HOME", os.path.join(".local", "state"))
        self.path = "" if folder is None else os.path.join(folder, _FILE)
        self.problem = "" if self.path else "no home folder is known: progress is not kept"
        self.done: Done = self._read()

    def of(self, lesson: str, model: str) -> Mapping[str, str]:
        """Return the questions of a lesson about a model that are done, each `right` or
        `shown`.
        """
        return self.done.get(f"{lesson} {model}", {})

    def count(self, lesson: str) -> int:
        """Return the most questions of a lesson that are done, of any model."""
        return max(
            (len(x) for name, x in self.done.items() if name.split()[0] == lesson), default=0
        )

    def keep(self, lesson: str, model: str, question: str, state: str) -> str:
        """Keep that a question is done, beside what another process has kept meanwhile; return why
        that was not possible.
        """
        self.done.setdefault(f"{lesson} {model}", {})[question] = state
        return self._write()

    def forget(self, lesson: str, model: str) -> str:
        """Forget the answers to a lesson about a model."""
        self.done[f"{lesson} {model}"] = {}
        return self._write(forgotten=f"{lesson} {model}")

    def _write(self, forgotten: str = "") -> str:
        if not self.path:
            return self.problem
        for name, questions in self._read().items():
            if name != forgotten:
                self.done[name] = {**questions, **self.done.get(name, {})}
        text = json.dumps({"schema": _SCHEMA, "done": self.done}, indent=1, sort_keys=True)
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            write_whole_file(self.path, text, overwrite=True)
        except (LlamathError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return f"progress is not kept: {safe(str(reason), 200)}"
        return ""

    def _read(self) -> Done:
        """Return what the file has; nothing if there is none, or if it is not ours to read."""
        if not self.path:
            return {}
        try:
            with open(self.path, "rb") as file:
                content = file.read(_MAX_BYTES + 1)
            document = json.loads(content) if len(content) <= _MAX_BYTES else None
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.problem = f"progress cannot be read: {safe(self.path)}: {error.strerror}"
            return {}
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
            self.problem = f"{safe(self.path)} is not readable: progress starts anew"
            return {}
        return _checked(document.get("done"))


def _checked(found: object) -> Done:
    if not isinstance(found, dict):
        return {}
    return {
        name: {x: y for x, y in questions.items() if y in _STATES}
        for name, questions in found.items()
        if isinstance(questions, dict) and name.split()
    }
