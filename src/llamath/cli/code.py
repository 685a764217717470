"""`llamath code`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..questions.pass_questions import CodeQuestion
from .command_group import command as make_command
from .model_options import output_option, takes_model
from .output import echo, echo_json, note, write_file
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..model import FamilyModel

_EXAMPLES = (
    "llamath code llama-3-8b",
    "llamath code deepseek-v3 -o deepseek_v3.py",
    "llamath code gemma-2-9b --form math",
    "llamath code ./Llama-3.2-1B --names hf --part Attention",
)


@make_command("code", _EXAMPLES)
@takes_model
@asks(CodeQuestion)
@output_option
def command(
    model: FamilyModel, *, asked: Asked, output: str | None, force: bool, form: str | None
) -> None:
    """Write MODEL as one readable PyTorch file, with what this model uses and nothing else: its
    sizes, its classes, its names in files, `load` and `generate`.

    The file asserts its number of parameters. Of a multimodal model it is the text model. -o
    writes it to a file.
    """
    from ..analysis.code.code_report import write_code

    question = asked.parse(CodeQuestion)
    report = write_code(model, question.kind, question.names, question.part)
    if output is not None:
        write_file(output, report.text, overwrite=force)
    if form == "json":
        echo_json(report.to_json())
    elif output is None:
        echo(report.terminal_text())
    for text in report.notes:
        note(text)
