"""`llamath cost`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..questions.serving_questions import CostQuestion
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import note_context, takes_model
from .output import TABLES, echo_report
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..model import Model

_EXAMPLES = (
    "llamath cost llama-3.3-70b --on 4xh100 --price '$2.5/h'",
    "llamath cost deepseek-v3 --on 16xh200 --price 3/h --context 8k --output 1k",
    "llamath cost llama-3.1-8b --on 1024xh100 --price 2/h --train 15T",
)


@make_command("cost", _EXAMPLES, brief=True, formats=TABLES)
@partial(takes_model, reads_files=True)
@asks(CostQuestion)
def command(model: Model, *, asked: Asked, form: str | None) -> int:
    """Estimate the price, energy and CO₂ of a million tokens of MODEL on --on, and of a training
    run: intervals from published runs.
    """
    from ..api import answer_cost

    question = asked.parse(CostQuestion)
    with Progress("sizing the model"):
        report = answer_cost(model, question)
    note_context(model, report.generation.prompt + report.generation.output, question.context, form)
    echo_report(report, form)
    return 0
