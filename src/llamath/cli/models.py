"""`llamath models`."""

from __future__ import annotations

from ..questions.parameter_questions import ModelsQuestion
from ..render.progress import Progress
from .command_group import command as make_command
from .output import LONG, echo_report, note
from .question_options import Asked, asks

_EXAMPLES = (
    "llamath models",
    "llamath models qwen 3",
    "llamath models moe --sort date",
    "llamath models --on rtx-4070 --context 8k  # which run on my card?",
    "llamath models coder --on this",
)


@make_command("models", _EXAMPLES, brief=True, formats=LONG)
@asks(ModelsQuestion)
def command(*, asked: Asked, form: str | None) -> int:
    """List the presets whose name, id or family contains all WORDS; the words dense, moe, hybrid,
    recurrent and vision choose a kind of models. Exit code 2: none does.

    With --on, those that fit on these GPUs, best first, as `llamath fit` says it: the dtype, the
    memory, the longest context, and the limit of decode. Exit code 1: none fits.
    """
    from ..api import answer_models

    question = asked.parse(ModelsQuestion)
    with Progress("counting the presets"):
        presets = answer_models(question)
    echo_report(presets, form)
    for line in presets.notes if form != "json" else ():
        note(line)
    return int(not presets)
