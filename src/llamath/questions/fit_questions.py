"""The questions of fit: on GPUs, on each of several machines, on which GPUs, in an engine, and in
which dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .layout import Layout
from .settings import Question, Settings, SomeKeys, ask
from .shared_fields import BATCH, CONTEXT, DTYPE, GPUS_OR_FILE, KV_DTYPE, PART
from .value_kinds import GPU_NAMES, SIZE, YES_OR_NO, integer, text

if TYPE_CHECKING:
    from ..hardware import Device

_DEGREE = integer(1, 10**9 - 1)
_DEGREES: Mapping[str, int] = ask(
    SomeKeys(Layout, "tp pp"),
    default={},
    help="Tensor and pipeline parallelism; chosen if not given.",
)
_OFFLOAD = ask(
    SIZE, default=0, help="Weights of each GPU that stay in the memory of the host: 6GiB."
)


class EngineRanks(Settings):
    """The ranks of an engine: tensor, pipeline, data, and whether experts stay whole."""

    tp: int = ask(_DEGREE, default=1, help="Tensor ranks.", example="8")
    pp: int = ask(_DEGREE, default=1, help="Pipeline ranks.")
    dp: int = ask(_DEGREE, default=1, help="Copies, or copies of the attention alone.")
    ep: bool = ask(YES_OR_NO, default=False, help="Experts stay whole.", example="yes")


class FitQuestion(Question):
    """Tell whether a model fits on GPUs, and how fast it can be at most.

    A model that does not fit is a report with `fits` False, not an error. If `on` is the file that
    `llamath gpus this` wrote of a machine, the report also has the speed to expect there.
    """

    function: ClassVar[str] = "fit"
    report: ClassVar[str] = "FitReport"
    about: ClassVar[str] = "the roofline"

    on: tuple[int, Device] | str | None = ask(
        GPUS_OR_FILE,
        default=None,
        help="GPUs: rtx-4090, 8xh100, 4090+3090 in one machine, 'mem=24GiB bw=1TB/s', or the file "
        "that `llamath gpus this` wrote.",
    )
    dtype: str = DTYPE
    kv_dtype: str = KV_DTYPE
    context: int | str | None = CONTEXT
    batch: int = BATCH
    layout: Mapping[str, int] = _DEGREES
    offload: int = _OFFLOAD
    part: Literal["text", "main"] | None = PART


class MachinesQuestion(Question):
    """Tell on which of several machines a model fits, and how fast it can be at most on each."""

    function: ClassVar[str] = "compare_machines"
    report: ClassVar[str] = "FitComparison"

    on: tuple[tuple[int, Device], ...] = ask(
        GPU_NAMES.several(), help="The GPUs of each machine: ['3090', '2x4090']."
    )
    dtype: str = DTYPE
    kv_dtype: str = KV_DTYPE
    context: int | str | None = CONTEXT
    batch: int = BATCH
    layout: Mapping[str, int] = _DEGREES
    offload: int = _OFFLOAD
    part: Literal["text", "main"] | None = PART


class RankQuestion(Question):
    """Rank the GPUs of the catalog that can run a model, the smallest first."""

    function: ClassVar[str] = "rank_gpus"
    report: ClassVar[str] = "GPURanking"

    dtype: str = DTYPE
    kv_dtype: str = KV_DTYPE
    context: int | str | None = CONTEXT
    batch: int = BATCH
    part: Literal["text", "main"] | None = PART


class EngineQuestion(Question):
    """Tell whether an engine starts with a model on GPUs, what it prints, and with which
    command.
    """

    function: ClassVar[str] = "fit_engine"
    report: ClassVar[str] = "EngineReport"
    about: ClassVar[str] = "an engine"

    engine: str = ask(
        text("vllm"),
        help="Will vllm, vllm@0.19.1, sglang, llama.cpp, ollama, transformers or trtllm start? "
        "Several, with a comma between them, are compared.",
    )
    on: tuple[int, Device] = ask(GPU_NAMES, help="The GPUs: rtx-4090 or 8xh100.")
    dtype: str = DTYPE
    kv_dtype: str = KV_DTYPE
    context: int | str | None = CONTEXT
    batch: int = BATCH
    layout: Mapping[str, Any] = ask(
        SomeKeys(EngineRanks), default={}, help="Ranks; chosen if not given."
    )
    engine_args: str = ask(
        text("--max-num-seqs 64", "FLAGS"),
        default="",
        help="Flags of the engine's command line, as it spells them: '-tp 8 -dp 2'.",
    )
    part: Literal["text", "main"] | None = PART


class EnginesQuestion(EngineQuestion):
    """Compare engines, or versions of one: which start with a model on GPUs, and what changed for
    it from one version to the next.
    """

    function: ClassVar[str] = "compare_engines"
    report: ClassVar[str] = "EngineComparison"
    about: ClassVar[str] = "engines"

    engine: tuple[str, ...] = ask(  # type: ignore[assignment]
        text("vllm").several(), help="Engines or versions: ['vllm@0.25.1', 'vllm@0.26.0']."
    )


class QuantsQuestion(Question):
    """Return a model in each dtype and mixture of types: bytes, bits per weight, what stays
    unquantized, and what fits on GPUs.

    Of a folder or repository with GGUF files, these are listed instead, and the report's `best` is
    the one to choose.
    """

    function: ClassVar[str] = "quants"
    report: ClassVar[str] = "QuantsReport"
    loader: ClassVar[str] = ""

    on: tuple[int, Device] | None = ask(
        GPU_NAMES,
        default=None,
        help="GPUs: rtx-4090, 2x3090, 4090+3090 in one machine, or 'mem=24GiB bw=1TB/s'.",
    )
    kv_dtype: str = KV_DTYPE
    context: int | str | None = CONTEXT
    batch: int = BATCH
    part: Literal["text", "main"] | None = PART
