"""Models that are written as code: the text, and the names that it defines."""

from __future__ import annotations

from typing import Any

import llamath
from llamath.analysis.code.code_report import CodeReport, write_code

EXAMPLES = (
    "llama-3-8b",
    "mixtral-8x7b",
    "deepseek-v3",
    "gemma-2-9b",
    "gpt2",
    "mamba-2.8b",
    "qwen3-next-80b-a3b",
    "gpt-oss-20b",
)
"""Presets whose files are in docs/examples."""


def written(source: Any, **options: Any) -> CodeReport:
    """Return the code of a model."""
    return write_code(llamath.load(source), **options)


def names_of(report: CodeReport) -> dict[str, Any]:
    """Run the file, and return the names that it defines."""
    names: dict[str, Any] = {"__name__": "written"}
    exec(compile(report.text, report.model.name, "exec", dont_inherit=True), names)
    return names


def same_weights(names: dict[str, Any], module: Any, **config: Any) -> Any:
    """Return the model of a file with the weights of llamath's module."""
    model = names["Model"](names["Config"](**config))
    own, given = model.state_dict(), module.state_dict()
    unread = {x for x in own if ".vision_" in x}  # of experts for tokens of images
    given |= {x: own[x] for x in unread}
    if "head.weight" in own and "head.weight" not in given:
        given["head.weight"] = given["embed.weight"]
    model.load_state_dict({x: given[x] for x in own})
    return model
