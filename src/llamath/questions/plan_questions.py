"""The questions of a plan: how to spread training, or serving, over a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from ..hardware.kernel_rates import ATTENTION_CHOICES
from ..utils.errors import Argument
from .layout import RECOMPUTE, Layout, Recompute
from .memory_questions import FP8, KERNELS, LOSS, OPTIMIZER
from .settings import Question, Settings, SomeKeys, Spec, ask
from .shared_fields import CONTEXT, DTYPE, KV_DTYPE
from .value_kinds import GPU_NAMES, SECONDS, TOKENS, TRAINING_TOKENS, choice, integer, text

if TYPE_CHECKING:
    from ..hardware import Device

FRAMEWORK_NAMES = ("torchtitan", "megatron", "accelerate", "deepspeed")
"""The frameworks that a training plan is written for."""

_CLUSTER = ask(GPU_NAMES, help="GPUs: 16384xh100, or '8x mem=80GiB bw=2TB/s bf16=300TF'.")
_TOP = ask(integer(1, 1000), default=10, help="Number of plans to show.")


class PlanTraining(Settings):
    """The settings of a training step whose layouts are ranked."""

    optimizer: str = OPTIMIZER
    grad_dtype: str = ask(
        text("bf16"), default="fp32", help="Dtype in which gradients are summed.", example="bf16"
    )
    attention: str = ask(
        choice(*ATTENTION_CHOICES),
        default="flash",
        help="Kernel of attention: the usual one of the GPU, or a named one.",
        example="flash3",
    )
    kernels: Literal["eager", "fused"] = ask(
        KERNELS,
        default="fused",
        help="Kernels of norms, activations and the like.",
        example="eager",
    )
    recompute: Recompute | None = ask(
        RECOMPUTE,
        default=None,
        help="Recomputed activations; by default the fastest.",
        example="op",
    )
    loss: str = LOSS
    fp8: str = FP8


class PlanQuestion(Question):
    """Rank the ways to spread the training of a model over a cluster: layouts with their memory and
    predicted MFU.

    If nothing fits, the report has `fits` False and says why.
    """

    function: ClassVar[str] = "plan"
    report: ClassVar[str] = "PlanReport"
    about: ClassVar[str] = "training"

    on: tuple[int, Device] = _CLUSTER
    context: int | str | None = CONTEXT
    batch: int | None = ask(
        integer(),
        default=None,
        default_text="the fastest",
        help="Sequences in a microbatch of a GPU.",
    )
    batch_tokens: int | None = ask(
        TOKENS, default=None, help="Training tokens per step: 16M is 16·2²⁰."
    )
    tokens: int | None = ask(
        TRAINING_TOKENS, default=None, help="Training tokens in all, for the duration: 15.6T."
    )
    layout: Mapping[str, int] = ask(
        SomeKeys(
            Layout, "tp pp cp ep dp zero interleave", gone={"microbatch": Argument("batch", 2)}
        ),
        default={},
        help="Keep these fixed.",
    )
    training: PlanTraining = ask(
        Spec(PlanTraining), default=PlanTraining(), help="Settings of the training."
    )
    dtype: str = DTYPE
    top: int = _TOP


class ServingPlanQuestion(Question):
    """Rank the ways to serve a model on a cluster: replicas, with their batches and rates.

    If nothing fits, the report has `fits` False and says why.
    """

    function: ClassVar[str] = "plan_serving"
    report: ClassVar[str] = "ServeReport"
    about: ClassVar[str] = "serving"

    on: tuple[int, Device] = _CLUSTER
    context: int | str | None = CONTEXT
    latency: float | None = ask(SECONDS, default=None, help="Maximum time per token, such as 50ms.")
    dtype: str = DTYPE
    kv_dtype: str = KV_DTYPE
    top: int = _TOP
