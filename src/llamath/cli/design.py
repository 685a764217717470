"""`llamath design`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..analysis.size.flops.scaling_laws import DEFAULT_LAW
from ..api import answer_design
from ..questions.design_question import DesignQuestion
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import note_broken_files, parse_changes, picture_option, set_option
from .output import TABLES, PictureFile, echo, echo_report, note
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..analysis.understand.design.design_report import DesignReport
    from ..model import FamilyModel

_EXAMPLES = (
    "llamath design 8B",
    "llamath design 500M --set vocab_size=32000 --set tie_word_embeddings=true",
    "llamath design 70B --set num_hidden_layers=60:100 --bounds tp=8,max_kv_per_token=320KiB",
    "llamath design --budget flops=5.76e23,law=besiroglu",
    "llamath design 8B --format config > config.json",
)


@make_command("design", _EXAMPLES, brief=True, formats=("config", "params", *TABLES))
@asks(DesignQuestion)
@picture_option
@set_option
def command(
    *, asked: Asked, changes: tuple[str, ...], form: str | None, picture: PictureFile | None
) -> int:
    """Find dimensions for a model of TARGET parameters (405B, 8030261248, 47B-A13B with 13 billion
    active ones), in the style of a series. Exit code 1: there are none.

    --set fixes config keys of the designs, as numbers or ranges. Without TARGET, a scaling law
    computes it from the --budget. --format config or params
    prints the best design as config.json or params.json. -o draws error against aspect
    ratio.
    """
    question = asked.parse(DesignQuestion)
    with Progress("searching designs"):
        report = answer_design(question, parse_changes(changes))
    note_broken_files(*question.like)
    budget = question.budget
    if question.target is None and (budget.tokens is None or budget.flops is None):
        echo(
            f"{report.request.target:,} parameters are optimal by {budget.law or DEFAULT_LAW}",
            err=True,
        )
    _print(report, form)
    if picture is not None:
        from ..render.svg.design_svg import design_svg

        picture.write(design_svg(report))
    return int(not report)


def _print(report: DesignReport, form: str | None) -> None:
    best = report.best
    if form not in ("config", "params"):
        echo_report(report, form)
    elif best is None:
        echo(str(report), err=True)
    else:
        config = json.dumps(dict(best.config), indent=2)
        echo(_params(best.model) if form == "params" else config)


def _params(model: FamilyModel) -> str:
    from ..analysis.understand.config_report import config_report, params_json_text

    text = params_json_text(model)
    for remark in config_report(model).remarks:
        note(remark)
    return text
