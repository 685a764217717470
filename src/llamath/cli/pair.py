"""`llamath pair`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..questions.serving_questions import PairQuestion
from .command_group import command as make_command
from .model_options import MODEL, load_model
from .output import TABLES, echo_report
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..model import Model

_EXAMPLES = (
    "llamath pair llama-3.1-70b llama-3.2-1b",
    "llamath pair ./Qwen3-32B ./Qwen3-0.6B --engine vllm",
    "llamath pair deepseek-v3 mtp  # its own layers for multi-token prediction",
    "llamath pair llama-3.1-8b eagle3  # an EAGLE 3 head of its shape",
)
_HEADS = ("eagle", "eagle3", "mtp")


@make_command("pair", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("target", metavar="TARGET", type=MODEL)
@click.argument("draft", metavar="DRAFT", type=MODEL)
@asks(PairQuestion)
def command(
    target: str | Model,
    draft: str | Model,
    *,
    asked: Asked,
    form: str | None,
) -> int:
    """Does DRAFT belong to TARGET for speculative decoding? Same tokens, sizes, best-case speed-up.
    Exit code 1: an engine would refuse.

    DRAFT is a model, or `eagle`, `eagle3` or `mtp` for a head of TARGET.
    """
    from ..api import answer_pair

    other = draft if isinstance(draft, str) and draft in _HEADS else load_model(draft, {}, None)
    report = answer_pair(load_model(target, {}, None), other, asked.parse(PairQuestion))
    echo_report(report, form)
    return int(not report.accepted)
