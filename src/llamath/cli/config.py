"""`llamath config`."""

from __future__ import annotations

from ..model import FamilyModel
from .command_group import command as make_command
from .model_options import takes_model
from .output import TABLES, echo, echo_report, note

_EXAMPLES = (
    "llamath config llama-3.1-8b",
    "llamath config llama-3-8b --format params > params.json",
)


@make_command("config", _EXAMPLES, brief=True, formats=("params", *TABLES))
@takes_model
def command(model: FamilyModel, *, form: str | None) -> None:
    """Explain every key of MODEL's config, as HF keys and as Meta's ModelArgs; --format params
    prints a params.json.
    """
    from ..analysis.understand.config_report import params_json_text
    from ..api import config

    report = config(model)
    if form == "params":
        echo(params_json_text(model))
        for remark in report.remarks:
            note(remark)
    else:
        echo_report(report, form)
