"""The questions about one forward pass: its FLOPs, the MFU of a measured speed, and its steps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..utils.errors import ArgumentError, LlamathError, safe
from ..utils.units import FLOPS
from .settings import Question, Settings, Spec, ask
from .shared_fields import BATCH, CONTEXT, IMAGES, KV_DTYPE, WEIGHT_DTYPE
from .value_kinds import GPU_NAMES, TOKENS, YES_OR_NO, Kind, choice, integer, number, text

_MAX_TOKENS = 1 << 17
"""The most tokens of a traced pass."""


def _read_tokens(value: object) -> int:
    if (tokens := TOKENS.read(value)) > _MAX_TOKENS:
        raise LlamathError(f"at most {_MAX_TOKENS:,} tokens are traced, found {tokens:,}")
    return tokens


class TraceQuestion(Question):
    """Follow a forward pass through a model step by step."""

    report: ClassVar[str] = "Trace"

    context: int = ask(
        Kind(
            _read_tokens,
            expected=TOKENS.expected,
            annotation=TOKENS.annotation,
            metavar="TOKENS",
            schema=TOKENS.schema,
        ),
        default=7,
        help="Number of tokens without PROMPT: 512, 4k.",
    )
    layer: int | None = ask(
        integer(least=0), default=None, option="--layers", help="Show this layer only."
    )
    images: str = IMAGES
    decode: bool = ask(
        YES_OR_NO,
        default=False,
        option="--next",
        help="Show the decoding of the next token with the KV cache.",
    )


class CodeQuestion(Question):
    """Write the code of a model: one readable PyTorch file that is the model, with its sizes, its
    names in files, `load` and `generate`.

    Of a multimodal model it is the text model. `report.text` is the code, and each of
    `report.lines` has the operations and the weights that the line stands for.
    """

    function: ClassVar[str] = "code"
    report: ClassVar[str] = "CodeReport"
    loader: ClassVar[str] = "load_family"

    kind: Literal["torch", "math", "latex"] = ask(
        choice("torch", "math", "latex"),
        default="torch",
        option="--form",
        help="PyTorch, or the same statements as formulas in Unicode or LaTeX.",
    )
    names: Literal["llamath", "hf"] = ask(
        choice("llamath", "hf"),
        default="llamath",
        help="hf: Hugging Face's names for the attributes of the classes.",
    )
    part: str = ask(
        text("Attention", metavar="NAME"),
        default="",
        help="One class or function of the file: Attention, rope.",
    )


if TYPE_CHECKING:
    from ..hardware import Device

_ATTENTION = {"causal": "full", "absorbed": "unpacked", "eager": "flash"}
"""How attention is counted by default -> the other choice."""
_RATE = number(1e-9, 1e18)
_SPEED = r"(?a)\s*(\d{1,18}(?:\.\d{1,20})?(?:e\+?\d{1,2})?)\s*([A-Za-z/]{1,9})\s*"


def _read_attention(value: object) -> frozenset[str]:
    """Read names, in one text or several, as the choices that are not the default."""
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple | set | frozenset):
        raise ValueError
    chosen = {x.strip() for x in words if isinstance(x, str)}
    known = {*_ATTENTION, *_ATTENTION.values()}
    if unknown := sorted(chosen - known):
        raise LlamathError(
            f"unknown {safe(repr(unknown[0]), 40)}", hint=f"some of {', '.join(sorted(known))}"
        )
    for default, other in _ATTENTION.items():
        if {default, other} <= chosen:
            raise LlamathError(f"either {default} or {other}, not both")
    return frozenset(chosen - _ATTENTION.keys())


class MeasuredSpeed(Settings):
    """The speed of a training run: the tokens per second of all GPUs, or the TFLOP/s of each, as
    one convention counts them.
    """

    tokens_per_second: float | None = ask(
        _RATE, default=None, help="Tokens per second of all GPUs."
    )
    tflops: float | None = ask(_RATE, default=None, help="TFLOP/s of each GPU.")
    counted_by: str = ask(
        text("palm"), default="exact", help="Convention that counts the FLOPs.", example="palm"
    )
    precision: str = ask(
        text("bf16"),
        default="bf16",
        option="dtype",
        help="Dtype whose peak is compared.",
        example="fp8",
    )


class _SpeedSpec(Spec):
    """A speed with its unit, and what it is compared with: `150TFLOP/s,counted_by=palm`."""

    def __init__(self) -> None:
        super().__init__(MeasuredSpeed, "counted_by dtype")
        speeds = "600000tok/s or 150TFLOP/s"
        self.expected = f"a speed such as {speeds}, or a MeasuredSpeed"
        self.keys_in_words = f"{speeds}, {self.keys_in_words}"

    def values(self, argument: str, value: object) -> dict[str, Any]:
        """Return the fields that text gives, or all of a record, with their values."""
        if not isinstance(value, str):
            return super().values(argument, value)
        speed, _, rest = value.partition(",")
        try:
            return _read_speed(speed) | super().values(argument, rest)
        except ValueError:
            found = f": expected {self.expected}, found {safe(repr(speed), 60)}"
            raise ArgumentError(argument, found) from None


def _read_speed(value: str) -> dict[str, float]:
    from fractions import Fraction

    match = re.fullmatch(_SPEED, value)
    if match is None:
        raise ValueError
    number, unit = Fraction(match[1]), match[2]
    if unit in ("tok/s", "tokens/s"):
        return {"tokens_per_second": _RATE.read(float(number))}
    if unit not in FLOPS:
        raise ValueError
    return {"tflops": _RATE.read(float(number * FLOPS[unit] / 10**12))}


class FlopsQuestion(Question):
    """Count the FLOPs of prefill, decode and a training step, exactly, next to the formulas that
    publications use.

    `on` and the `mfu`, which is the speed of a training run, give the share of the peak that the
    GPUs reach. The tokens of `images` are part of the context.
    """

    function: ClassVar[str] = "flops"
    report: ClassVar[str] = "FlopsReport"
    loader: ClassVar[str] = "load"

    context: int | str | None = CONTEXT
    batch: int = BATCH
    images: str = IMAGES
    on: tuple[int, Device] | None = ask(
        GPU_NAMES,
        default=None,
        help="GPUs for an MFU: h100, 16384xh100, or 'mem=80GiB bf16=989TF'.",
    )
    mfu: MeasuredSpeed | None = ask(
        _SpeedSpec(),
        default=None,
        help="Throughput for an MFU, of all GPUs in tokens or of each in FLOPs.",
    )
    attention: frozenset[str] = ask(
        Kind(
            _read_attention,
            expected="a list such as 'full,flash'",
            annotation="str | Sequence[str]",
            metavar="LIST",
        ),
        default=frozenset(),
        help="full: no causal skip; flash: scores recomputed in training; unpacked: MLA not "
        "absorbed.",
    )
    recompute: Literal["none", "selective", "full"] = ask(
        choice("none", "selective", "full"),
        default="none",
        help="Activation checkpointing in training.",
    )
    dtype: str = ask(WEIGHT_DTYPE, default="", help="Dtype of the weights, for FLOPs per byte.")
    kv_dtype: str = KV_DTYPE
