"""A lesson at a terminal: explain, ask, check, diagnose, and the next question."""

from __future__ import annotations

import sys

from ..analysis.learn.course import LESSONS
from ..analysis.learn.diagnosis import Checked, check_answer
from ..analysis.learn.exercise import Exercise
from ..analysis.learn.learner_progress import LearnerProgress
from ..analysis.learn.worksheet import Worksheet
from ..render.table import bold, dim, wrap
from .output import echo, note

_HELP = (
    "Write a number (16,777,216 or 16.8M), a product (4096*4096) or letters (d*H*h). "
    "? is a hint, ! the solution, Enter leaves a question for later, q leaves the lesson."
)
_PROMPT = "> "


class LessonSession:
    """A learner, a lesson, and what they have answered."""

    def __init__(self, sheet: Worksheet) -> None:
        self.sheet, self.progress = sheet, LearnerProgress()
        self.model = sheet.slug or sheet.study.name
        self.done = dict(self.progress.of(sheet.name, self.model))
        self.has_warned = False

    def run(self) -> None:
        """Ask every question that is not answered yet."""
        ids = {x.id for x in self.sheet}
        self.done = {x: y for x, y in self.done.items() if x in ids}
        if len(self.done) == len(ids):
            self._warn(self.progress.forget(self.sheet.name, self.model))
            self.done = {}
        self._write(bold(self.sheet.title), "", *self.sheet.explanation)
        if letters := self.sheet.letters:
            words = ", ".join(f"{name} = {n:,}" for name, n in letters.items())
            self._write("", dim(f"Letters: {words}"))
        self._write("", dim(_HELP))
        self._warn(self.progress.problem)
        if self.done:
            self._write("", f"{len(self.done)} of {len(ids)} questions are done already.")
        try:
            for i, x in enumerate(self.sheet.exercises, 1):
                if x.id not in self.done and not self._ask(i, x):
                    break
        except KeyboardInterrupt:
            self._write("", self._result())
            raise
        self._write("", self._result(), *self._next())

    def _ask(self, place: int, exercise: Exercise) -> bool:
        """Ask until the question is answered, shown or left; return whether to go on."""
        self._write("", bold(f"{place}/{len(self.sheet.exercises)}  {exercise.text}"))
        while (line := self._read()) is not None:
            if line.lower() in ("q", "quit", "exit"):
                return False
            if not line:
                return True
            if line == "?":
                self._write(f"Hint: {exercise.hint}.")
            elif line == "!":
                self._write(*exercise.solution)
                self._keep(exercise, "shown")
                return True
            elif self._check(check_answer(exercise, line)):
                return True
        return False

    def _check(self, checked: Checked) -> bool:
        self._write(*checked.lines)
        if not checked:
            return False
        formula = checked.exercise.solution[0]
        if formula[0].isalpha():
            self._write(dim(f"{formula} = {int(checked.exercise.answer):,}"))
        if checked.exercise.why:
            self._write(checked.exercise.why)
        self._keep(checked.exercise, "right")
        return True

    def _keep(self, exercise: Exercise, state: str) -> None:
        self.done[exercise.id] = state
        self._warn(self.progress.keep(self.sheet.name, self.model, exercise.id, state))

    def _warn(self, problem: str) -> None:
        if problem and not self.has_warned:
            self.has_warned = True
            note(problem)

    def _result(self) -> str:
        states = list(self.done.values())
        shown = f", {states.count('shown')} shown" if "shown" in states else ""
        total = len(self.sheet.exercises)
        return f"{states.count('right')} of {total} answered{shown}."

    def _next(self) -> tuple[str, ...]:
        names = [x.name for x in LESSONS]
        after = names[names.index(self.sheet.name) + 1 :]
        if len(self.done) < len(self.sheet.exercises):
            return ("The lesson goes on here when you come back.",)
        return (f"Next: llamath learn {after[0]}",) if after else ("This was the last lesson.",)

    def _read(self) -> str | None:
        """Return the next line; None at the end of the input."""
        import readline  # noqa: F401  line editing for input()

        try:
            return input(_PROMPT).strip()
        except EOFError:
            echo("")
            return None
        except UnicodeDecodeError:
            return "\ufffd"

    def _write(self, *paragraphs: str) -> None:
        for text in paragraphs:
            echo("\n".join(wrap(text, "")) if text else "")


def is_terminal() -> bool:
    """Whether a learner can answer here."""
    return sys.stdin.isatty() and sys.stdout.isatty()
