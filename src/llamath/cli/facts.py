"""`llamath facts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .command_group import command as make_command
from .model_options import takes_model
from .output import TABLES, echo_report

if TYPE_CHECKING:
    from ..model import FamilyModel

_EXAMPLES = (
    "llamath facts llama-3-8b",
    "llamath facts deepseek-v3 --json",
    "llamath facts llama-3-8b --set num_key_value_heads=32",
)


@make_command("facts", _EXAMPLES, brief=True, formats=TABLES)
@takes_model
def command(model: FamilyModel, *, form: str | None) -> None:
    """Show what MODEL is, on one page: sizes, layers, attention, positions, weights, KV cache,
    FLOPs, and the smallest hardware.
    """
    from ..api import facts

    echo_report(facts(model), form)
