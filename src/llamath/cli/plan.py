"""`llamath plan`."""

from __future__ import annotations

import click

from ..model import FamilyModel
from ..questions.plan_questions import FRAMEWORK_NAMES, PlanQuestion, ServingPlanQuestion
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import note_context, takes_model
from .output import LONG, echo, echo_report
from .output import note as write_note
from .question_options import Asked, asks

_EXAMPLES = (
    "llamath plan llama-3.1-405b --on 16384xh100 --batch-tokens 16M --tokens 15.6T",
    "llamath plan llama-3-70b --on 64xh100 --layout tp=8",
    "llamath plan llama-3.1-70b --on 8xh100 --serve --latency 50ms",
)


@make_command("plan", _EXAMPLES, brief=True, formats=(*LONG, *FRAMEWORK_NAMES))
@takes_model
@asks(PlanQuestion, ServingPlanQuestion)
@click.option("--serve", is_flag=True, help="Plan for inference, and not for training.")
def command(model: FamilyModel, *, asked: Asked, serve: bool, form: str | None) -> int:
    """Rank the ways to split MODEL over a cluster: TP × PP × CP × EP × DP, with memory and
    predicted MFU. Exit code 1: none fits.

    --format torchtitan, megatron, accelerate or deepspeed prints the first plan as that framework
    is told it.
    """
    from ..api import answer_plan, answer_plan_serving

    if not serve:
        question = asked.parse(PlanQuestion)
        with Progress("searching layouts"):
            report = answer_plan(model, question)
        note_context(model, report.context, question.context, form)
        if form not in FRAMEWORK_NAMES:
            echo_report(report, form)
        elif not report.fits:
            echo(report.summary, err=True)
        else:
            config = report.config(form)
            echo(config.text or "")
            for text in config.notes:
                write_note(text)
        return int(not report.fits)
    if form in FRAMEWORK_NAMES:
        raise click.UsageError(f"--format {form} is of training, and --serve of inference")
    serving = asked.parse(ServingPlanQuestion)
    with Progress("searching layouts"):
        plans = answer_plan_serving(model, serving)
    note_context(model, plans.context, serving.context, form)
    echo_report(plans, form)
    return int(not plans.fits)
