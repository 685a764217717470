"""`llamath plan`."""

from __future__ import annotations

import click

from ..model import FamilyModel
from ..questions.plan_questions import PlanQuestion, ServingPlanQuestion
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import note_context, takes_model
from .output import LONG, echo_report
from .question_options import Asked, asks

_EXAMPLES = (
    "llamath plan llama-3.1-405b --on 16384xh100 --batch-tokens 16M --tokens 15.6T",
    "llamath plan llama-3-70b --on 64xh100 --layout tp=8",
    "llamath plan llama-3.1-70b --on 8xh100 --serve --latency 50ms",
)


@make_command("plan", _EXAMPLES, brief=True, formats=LONG)
@takes_model
@asks(PlanQuestion, ServingPlanQuestion)
@click.option("--serve", is_flag=True, help="Plan for inference, and not for training.")
def command(model: FamilyModel, *, asked: Asked, serve: bool, form: str | None) -> int:
    """Rank the ways to split MODEL over a cluster: TP × PP × CP × EP × DP, with memory and
    predicted MFU. Exit code 1: none fits.
    """
    from ..api import answer_plan, answer_plan_serving

    if not serve:
        question = asked.parse(PlanQuestion)
        with Progress("searching layouts"):
            report = answer_plan(model, question)
        note_context(model, report.context, question.context, form)
        echo_report(report, form)
        return int(not report.fits)
    serving = asked.parse(ServingPlanQuestion)
    with Progress("searching layouts"):
        plans = answer_plan_serving(model, serving)
    note_context(model, plans.context, serving.context, form)
    echo_report(plans, form)
    return int(not plans.fits)
