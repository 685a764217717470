"""The questions of files: the names of their tensors, and whether they match their config."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from .settings import Question, ask
from .shared_fields import DTYPE, MODEL_NAME
from .value_kinds import YES_OR_NO, choice


class SameQuestion(Question):
    """Compare the weights of two checkpoints in any formats; `report.verdict` is identical,
    rounding or different.

    An adapter is compared as the base model that it names with the adapter merged; `adapter` is
    merged into `a`.
    """

    function: ClassVar[str] = "same"
    report: ClassVar[str] = "SameReport"
    models: ClassVar[tuple[str, ...]] = ("a", "b")
    loader: ClassVar[str] = ""
    more: ClassVar[tuple[str, ...]] = ("progress",)

    adapter: Any = ask(MODEL_NAME, default=None, help="Merge this adapter into A.")


class NamesQuestion(Question):
    """Return the names of each weight in HF, Meta and GGUF files.

    A quantized checkpoint has other tensors: their names follow from the recipe in the config, or
    from `dtype`. `via="transformers"` gives those that transformers saves, for models of unknown
    families.
    """

    function: ClassVar[str] = "names"
    report: ClassVar[str] = "NamesReport"
    loader: ClassVar[str] = ""
    more: ClassVar[tuple[str, ...]] = ("via",)

    dtype: str = DTYPE


class StoredNamesQuestion(Question):
    """Return every tensor of a model as files of one format have it: names, shapes and dtypes."""

    function: ClassVar[str] = "stored_names"
    report: ClassVar[str] = "StoredNamesReport"
    loader: ClassVar[str] = ""
    more: ClassVar[tuple[str, ...]] = ("via",)

    names: Literal["hf", "meta", "gguf"] = ask(
        choice("hf", "meta", "gguf"), help="List every tensor under these names."
    )
    dtype: str = DTYPE


class VerifyQuestion(Question):
    """Check a checkpoint against its configuration, or against another model; `report.ok` is the
    verdict, `report.findings` the reasons.

    With `full`, a repository on the Hub is downloaded. `progress` is called with the numbers of
    processed and of all bytes. `via="transformers"` checks names and shapes against the class that
    transformers builds of the configuration.
    """

    function: ClassVar[str] = "verify"
    report: ClassVar[str] = "VerifyReport | StructureReport"
    models: ClassVar[tuple[str, ...]] = ("path",)
    loader: ClassVar[str] = ""
    more: ClassVar[tuple[str, ...]] = ("changes", "progress", "via")

    against: Any = ask(
        MODEL_NAME,
        default=None,
        positional=True,
        help="The expected model, if not that of the config next to the files; of an adapter, its "
        "base model.",
    )
    full: bool = ask(
        YES_OR_NO,
        default=False,
        help="Read every byte: NaN, zero rows, duplicates, norms, and the sums of the files.",
    )
