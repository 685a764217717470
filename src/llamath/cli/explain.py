"""`llamath explain`."""

from __future__ import annotations

from ..questions.parameter_questions import ExplainQuestion
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import note_broken_files
from .output import TABLES, echo_report
from .question_options import Asked, asks

_EXAMPLES = (
    "llamath explain 8030261248",
    "llamath explain 3540389888",
    "llamath explain 685B --like deepseek-v3",
)


@make_command("explain", _EXAMPLES, brief=True, formats=TABLES)
@asks(ExplainQuestion)
def command(*, asked: Asked, form: str | None) -> int:
    """Explain a number of parameters: which model, and what was changed, left out, added or
    quantized. Exit code 1: no likely explanation.

    A number written in full is explained exactly; for one of few digits (685B, 1.5e9), all counts
    that round to it are listed.
    """
    from ..api import answer_explain

    question = asked.parse(ExplainQuestion)
    with Progress("searching"):
        report = answer_explain(question)
    note_broken_files(question.like)
    echo_report(report, form)
    return int(not report)
