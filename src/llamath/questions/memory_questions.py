"""The questions of memory: what inference needs, and what a training step needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from .layout import RECOMPUTE, Layout, Recompute
from .settings import Question, Settings, Spec, ask
from .shared_fields import (
    BATCH,
    CONTEXT,
    CONTEXT_TOKENS,
    DTYPE,
    IMAGES,
    KV_DTYPE,
    LIMITING_GPU,
    PART,
    WEIGHT_DTYPE,
)
from .value_kinds import TOKENS, YES_OR_NO, choice, integer, text

if TYPE_CHECKING:
    from ..hardware import Device

PREFILL_CHUNK = 2048
"""The default number of prompt tokens in one pass, as in llama.cpp (n_batch) and vLLM
(max_num_batched_tokens)."""
OPTIMIZER = ask(text("adamw8bit"), default="adamw", help="The optimizer.", example="adamw8bit")
LOSS = ask(
    text("chunked"),
    default="whole",
    help="Logits of the loss: whole, fused, chunked:16, summed or liger.",
    example="chunked",
)
FP8 = ask(
    text("tensorwise"), default="", help="A recipe for products in FP8.", example="tensorwise"
)
KERNELS = choice("eager", "fused")


class Lora(Settings):
    """LoRA adapters: their rank, the matrices that have them, and matrices trained in full."""

    r: int = ask(integer(1, 2**31 - 1), help="The rank.", example="16")
    targets: tuple[str, ...] = ask(
        text("q").several(),
        default=("all-linear",),
        help="Matrices with adapters: names, attention, mlp, all, or all-linear as in peft.",
        example="q,v",
    )
    saved: tuple[str, ...] = ask(
        text("embed").several(), default=(), help="Matrices trained in full.", example="embed"
    )
    dtype: str = ask(text("bf16"), default="fp32", help="Dtype of the adapters.", example="bf16")


class Training(Settings):
    """The settings of a training step."""

    optimizer: str = OPTIMIZER
    recompute: Recompute | None = ask(
        RECOMPUTE,
        default=None,
        help="Activation checkpointing; of adapters full, as TRL, peft and Unsloth do.",
        example="full",
    )
    attention: Literal["flash", "eager"] = ask(
        choice("flash", "eager"), default="flash", help="Kernel of attention.", example="eager"
    )
    kernels: Literal["eager", "fused"] = ask(
        KERNELS, default="eager", help="Kernels of the other operations.", example="fused"
    )
    loss: str = LOSS
    dropout: bool = ask(YES_OR_NO, default=False, help="Dropout is used.", example="yes")
    grad_dtype: str = ask(
        text("fp32"),
        default="",
        help="Dtype of the gradients, if not that of the weights.",
        example="fp32",
    )
    master: bool | None = ask(
        YES_OR_NO,
        default=None,
        help="A float32 copy of the weights; by default of 16-bit weights.",
        example="no",
    )
    fp8: str = FP8
    accumulate: bool = ask(
        YES_OR_NO, default=True, help="A step has several microbatches.", example="no"
    )
    offload: bool = ask(
        YES_OR_NO,
        default=False,
        help="Inputs of recomputed layers wait in the memory of the host.",
        example="yes",
    )


class MemoryQuestion(Question):
    """Compute the memory that inference needs, line by line with formulas.

    The weights of a checkpoint are the bytes in its files unless `dtype` is given. Several contexts
    give the totals at each, and the lines at the longest. Of a model without a family, such as one
    that is loaded `via="transformers"`, the memory of the weights is known, and nothing else.
    """

    function: ClassVar[str] = "memory"
    report: ClassVar[str] = "MemoryReport"
    report_of_tensors: ClassVar[str] = "WeightsReport"
    loader: ClassVar[str] = "load"
    about: ClassVar[str] = "inference"

    on: tuple[int, Device] | None = LIMITING_GPU
    dtype: str = ask(
        WEIGHT_DTYPE,
        default="",
        help="Dtype of the weights, if not the model's own. GGUF mixes also as q4_k_m:imatrix or "
        "q4_k_m:no-imatrix.",
    )
    kv_dtype: str = KV_DTYPE
    context: tuple[int | str, ...] = ask(
        CONTEXT_TOKENS.several(),
        default=(),
        help="Tokens of each sequence: 8192, 128k, max; several for a table.",
    )
    batch: int = BATCH
    images: str = IMAGES
    batch_tokens: int | str = ask(
        TOKENS.or_word("all"), default=PREFILL_CHUNK, help="Prompt tokens per forward pass, or all."
    )
    part: Literal["text", "main"] | None = PART


class TrainingQuestion(Question):
    """Compute the memory that a training step needs on each GPU, line by line with formulas."""

    function: ClassVar[str] = "training_memory"
    report: ClassVar[str] = "TrainReport"
    about: ClassVar[str] = "training"

    on: tuple[int, Device] | None = LIMITING_GPU
    dtype: str = DTYPE
    context: int | str | None = CONTEXT
    batch: int = ask(integer(), default=1, help="Sequences on each GPU.")
    lora: Lora | None = ask(
        Spec(Lora),
        default=None,
        help="Train adapters only; targets are also attention, mlp, all, all-linear.",
    )
    layout: Layout = ask(
        Spec(Layout, "tp pp dp zero cp ep etp interleave microbatches sp"),
        default=Layout(),
        help="Training over GPUs; of several GPUs all, with ZeRO-3, or copies for adapters.",
    )
    training: Training = ask(
        Spec(Training),
        default=Training(),
        bare="optimizer=adamw",
        help="Settings of a training step with {batch} sequences on each GPU.",
    )
