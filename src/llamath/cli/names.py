"""`llamath names`."""

from __future__ import annotations

from ..model import Model
from ..questions.file_questions import NamesQuestion, StoredNamesQuestion
from .command_group import command as make_command
from .model_options import takes_built_model
from .output import TABLES, echo_json, echo_report
from .question_options import Asked, asks

_EXAMPLES = (
    "llamath names llama-3-8b",
    "llamath names llama-3-8b --names gguf",
    "llamath names llama-3-8b --names hf --dtype fp8",
)


@make_command("names", _EXAMPLES, brief=True, formats=TABLES)
@takes_built_model
@asks(NamesQuestion, StoredNamesQuestion)
def command(model: Model, *, asked: Asked, form: str | None) -> None:
    """Show the names of every weight in HF, Meta and GGUF files, or list all tensors of one of
    them.
    """
    from ..api import answer_names, answer_stored_names

    report = (
        answer_stored_names(model, asked.parse(StoredNamesQuestion), via=None)
        if "names" in asked.given
        else answer_names(model, asked.parse(NamesQuestion), via=None)
    )
    if form == "json":
        echo_json({"model": model.name, **report.to_json()})
    else:
        echo_report(report, form)
