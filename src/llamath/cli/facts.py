"""`llamath facts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .command_group import command as make_command
from .model_options import takes_model
from .output import echo, echo_json, note

if TYPE_CHECKING:
    from ..model import Model

_EXAMPLES = ("llamath facts llama-3-8b", "llamath facts deepseek-v3 --json", "llamath facts llama-3-8b --set num_key_value_heads=32")


@make_command("facts", _EXAMPLES, brief=True)
@takes_model
def command(model: Model, *, form: str | None) -> None:
    """Show what MODEL is, on one page: sizes, layers, attention, positions, weights, KV cache, FLOPs, and the smallest hardware."""
    from ..api import facts

    report = facts(model)
    if form == "json":
        echo_json(report.to_json())
    elif form == "brief":
        echo(report.summary)
    else:
        from ..render.text.facts_text import facts_text

        echo(facts_text(report))
        for text in report.notes:
            note(text)
