"""`llamath flops`."""

from __future__ import annotations

from functools import partial

from ..model import Model
from ..questions.pass_questions import FlopsQuestion
from .command_group import command as make_command
from .model_options import takes_model
from .output import LONG, echo, echo_json, echo_report
from .question_options import Asked, asks

_EXAMPLES = (
    "llamath flops llama-3.1-405b --context 8k",
    "llamath flops llama-3-8b --on 64xh100 --mfu 600000tok/s",
    "llamath flops google/gemma-3-4b-it --context 4k --images 2x1024",
    "llamath flops llama-2-70b --on 2048xa100-80gb --mfu 150TFLOP/s,counted_by=palm",
)


@make_command("flops", _EXAMPLES, brief=True, formats=(*LONG, "conventions"))
@partial(takes_model, any_model=True)
@asks(FlopsQuestion)
def command(model: Model, *, asked: Asked, form: str | None) -> None:
    """Count the FLOPs of MODEL exactly (prefill, decode, a training step), and by the formulas
    of publications. --format conventions explains those.
    """
    from ..api import answer_flops

    question = asked.parse(FlopsQuestion)
    report = answer_flops(model, question)
    if form == "json":
        echo_json({"model": model.name, **report.to_json()})
    elif form == "conventions":
        from ..analysis.size.flops.flops_tables import convention_parts
        from ..render.report_text import parts_lines

        echo("\n".join(parts_lines(convention_parts(report))))
    else:
        echo_report(report, form)
