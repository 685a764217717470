"""The questions of parameters: how many a model has, and which model has a number of them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from .settings import Question, ask
from .shared_fields import MODEL_NAME
from .value_kinds import COUNT, YES_OR_NO, Kind, choice, count_text


class CountQuestion(Question):
    """Count the parameters of a model, weight by weight, with the formula of the total.

    A checkpoint of an unknown family raises `UnknownModel`; `ls` counts its parameters by its
    headers, and `via="transformers"` those of the class that transformers builds of its
    configuration, without a formula.
    """

    function: ClassVar[str] = "count"
    report: ClassVar[str] = "CountReport"
    report_of_tensors: ClassVar[str] = "TensorCountReport"
    loader: ClassVar[str] = ""
    more: ClassVar[tuple[str, ...]] = ("via",)

    part: Literal["text", "vision", "audio"] | None = ask(
        choice("text", "vision", "audio"),
        default=None,
        help="Only this part of a multimodal model; a tower has its projector.",
    )


def _read_number(value: object) -> str:
    COUNT.read(value)
    return count_text(value)


class ExplainQuestion(Question):
    """Explain a parameter count: which model has it, and what was changed, left out, added or
    packed.

    An exact number is decoded exactly; a rounded one (`"685B"`) gives the counts that round to it.
    """

    function: ClassVar[str] = "explain"
    report: ClassVar[str] = "Explanation"
    models: ClassVar[tuple[str, ...]] = ()

    number: str = ask(
        Kind(
            _read_number,
            expected=COUNT.expected,
            annotation=COUNT.annotation,
            metavar="NUMBER",
            schema=COUNT.schema,
        ),
        positional=True,
        help="Number of parameters, in full (8030261248) or rounded (685B).",
    )
    like: Any = ask(MODEL_NAME, default=None, help="Consider this model only.")
    all: bool = ask(YES_OR_NO, default=False, help="Show unlikely explanations, too.")
