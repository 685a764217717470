"""The question of presets: which there are, and which of them run on GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from .settings import Question, ask
from .shared_fields import CONTEXT, DTYPE
from .value_kinds import GPU_NAMES, choice, text

if TYPE_CHECKING:
    from ..hardware import Device


class ModelsQuestion(Question):
    """Return the presets whose name, id or family has all these words, with their sizes; if none
    has, it is an error.

    With `on`, those that fit on these GPUs, the largest first, each with what `fit` says of it. The
    weights are those of each config, unless `dtype` is given.
    """

    function: ClassVar[str] = "models"
    report: ClassVar[str] = "PresetList"
    models: ClassVar[tuple[str, ...]] = ()

    words: tuple[str, ...] = ask(
        text("qwen", metavar="WORDS").several(),
        default=(),
        positional=True,
        help="Words that must all occur in the name.",
    )
    sort: Literal["params", "active", "context", "date"] | None = ask(
        choice("params", "active", "context", "date"),
        default=None,
        help="Sort, the largest or newest first.",
    )
    kind: Literal["dense", "moe", "hybrid", "recurrent", "vision"] | None = ask(
        choice("dense", "moe", "hybrid", "recurrent", "vision"),
        default=None,
        option="--type",
        help="Only models of this type.",
    )
    on: tuple[int, Device] | None = ask(
        GPU_NAMES,
        default=None,
        help="Only models that fit on these GPUs: rtx-4090, 8xh100, 'mem=24GiB bw=1TB/s'.",
    )
    dtype: str = DTYPE
    context: int | str | None = CONTEXT
