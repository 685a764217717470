"""The questions about parameters: the count of a model, models with a count, the presets, and
lessons.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .settings import Question, ask
from .shared_fields import CONTEXT, DTYPE, MODEL_NAME
from .value_kinds import COUNT, GPU_NAMES, YES_OR_NO, Kind, choice, count_text, integer, text

if TYPE_CHECKING:
    from ..hardware import Device


class ModelsQuestion(Question):
    """Return the presets whose name, id or family has all these words, with their sizes; if none
    has, it is an error.

    The words dense, moe, hybrid, recurrent and vision choose a kind of models.

    With `on`, those that fit on these GPUs, the largest first, each with what `fit` says of it;
    those that are slower than one reads come last. Unless `dtype` is given, the weights are those
    of each config, or in the largest format of at least 4 bits that fits.
    """

    function: ClassVar[str] = "models"
    report: ClassVar[str] = "PresetList"
    models: ClassVar[tuple[str, ...]] = ()

    words: tuple[str, ...] = ask(
        text("qwen", metavar="WORDS").several(),
        default=(),
        positional=True,
        help="Words that must all occur in the name; dense, moe, hybrid, recurrent and vision "
        "choose a kind.",
    )
    sort: Literal["params", "active", "context", "date"] | None = ask(
        choice("params", "active", "context", "date"),
        default=None,
        help="Sort, the largest or newest first.",
    )
    on: tuple[int, Device] | None = ask(
        GPU_NAMES,
        default=None,
        help="Only models that fit on these GPUs: rtx-4090, 8xh100, 'mem=24GiB bw=1TB/s'.",
    )
    dtype: str = DTYPE
    context: int | str | None = CONTEXT


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


_MOST_FACTORS = 20
"""The longest product that is read as a count."""


def _read_number(value: object) -> str:
    """Return a count as text; that of a product, such as a shape, is worked out."""
    factors = re.split(r"(?<=[\d\s])[*×·x](?=[\d\s])", value) if isinstance(value, str) else []
    if 1 < len(factors) <= _MOST_FACTORS:
        value = str(prod(COUNT.read(x.strip()) for x in factors))
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
        help="Number of parameters, in full (8030261248), rounded (685B) or a product (4096*4096).",
    )
    like: Any = ask(MODEL_NAME, default=None, help="Consider this model only.")
    all: bool = ask(YES_OR_NO, default=False, help="Show unlikely explanations, too.")


class LessonQuestion(Question):
    """Return a lesson about a model, with questions whose answers are numbers of its tree; it
    iterates over them, and `check` tells what is wrong with an answer.

    Without a name, return the list of lessons. Without a number and a seed, the questions are those
    that `llamath learn` asks, in order.
    """

    function: ClassVar[str] = "lesson"
    report: ClassVar[str] = "Worksheet"
    report_of_all: ClassVar[str] = "LessonList"
    models: ClassVar[tuple[str, ...]] = ("name",)
    loader: ClassVar[str] = ""

    model: Any = ask(
        MODEL_NAME,
        default=None,
        positional=True,
        help="Model to ask about, if not the lesson's own.",
    )
    questions: int | None = ask(
        integer(most=500), default=None, help="Number of questions, chosen at random."
    )
    seed: int | None = ask(
        integer(0), default=None, help="Choose the same questions again: the same number."
    )
