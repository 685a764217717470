"""`llamath learn`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ..questions.parameter_questions import LessonQuestion
from ..utils.errors import LlamathError, os_error_reason, safe
from .command_group import command as make_command
from .model_options import output_option
from .output import TABLES, echo_json, echo_report, note, write_file
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..analysis.learn.worksheet import Worksheet

_EXAMPLES = (
    "llamath learn",
    "llamath learn matrix",
    "llamath learn cache llama-3.1-70b -o sheet.md --questions 10 --seed 7",
    "llamath learn answers.json",
)


@make_command("learn", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("name", required=False, metavar="[LESSON | ANSWERS.json]")
@asks(LessonQuestion)
@click.option("--solutions", is_flag=True, help="Add the solutions.")
@output_option
def command(
    name: str | None,
    *,
    asked: Asked,
    output: str | None,
    solutions: bool,
    force: bool,
    form: str | None,
) -> int:
    """Learn how a model is counted and sized: lessons with questions that are made from its
    weights, and that say what is wrong with an answer.

    Without LESSON, lists them. On a terminal a lesson asks its questions one by one and remembers
    what is answered; else its questions are printed. They are about the lesson's own model, or
    MODEL. -o writes a worksheet, FILE.md, FILE.ipynb or FILE.html. A file ANSWERS.json is graded.
    Exit code 1: an answer is wrong.
    """
    question = asked.parse(LessonQuestion)
    if name and name.endswith(".json"):
        if output or solutions or question.questions is not None or question.seed is not None:
            raise click.UsageError("a file of answers is graded as it is, without other options")
        return _grade(name, question.model, form)
    if not name:
        if asked.given or output or solutions:
            raise click.UsageError("which lesson? `llamath learn` lists them")
        from ..api import answer_lesson

        echo_report(answer_lesson(None, question), form)
        return 0
    from ..analysis.learn.worksheet import make_worksheet

    sheet = make_worksheet(
        name, question.model, question.questions, question.seed, solutions=solutions
    )
    if output is not None:
        _write(sheet, output, force, form)
    elif form is not None:
        echo_report(sheet, form)
    else:
        _run(sheet)
    return 0


def _run(sheet: Worksheet) -> None:
    from .lesson_session import LessonSession, is_terminal

    for text in sheet.notes:
        note(text)
    if is_terminal() and not sheet.solutions and sheet.seed is None:
        LessonSession(sheet).run()
    else:
        echo_report(sheet, None)


def _write(sheet: Worksheet, output: str, force: bool, form: str | None) -> None:
    from ..analysis.learn.worksheet_files import sheet_text

    write_file(output, sheet_text(sheet, output), overwrite=force)
    if form == "json":
        echo_json(sheet.to_json())
    for text in sheet.notes:
        note(text)


def _grade(path: str, model: Any, form: str | None) -> int:
    from ..analysis.learn.grading import MAX_BYTES, grade_answers

    if not os.path.isfile(path):
        raise LlamathError(f"{safe(path)} is no file", hint="expected the answers to a worksheet")
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = os_error_reason(error)
        raise LlamathError(f"{safe(path)} cannot be read: {reason}") from None
    grades = grade_answers(content, path, model)
    echo_report(grades, form)
    return int(not grades)
