"""Positional encodings without weights: rotary embeddings, ALiBi, and scaling of queries by
position.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log, pi, sqrt
from typing import Any, ClassVar

from ..utils.errors import ImpossibleModel, safe
from ..utils.record_type import Record

_NO_SPAN = 2.0**-100
"""In place of a difference of 0."""
_LEAST, _MOST = 2.0**-126, 2.0**127
"""The positive numbers that float32 holds with all of their digits."""


def check_positive(of: str, values: Mapping[str, Any]) -> None:
    """Refuse values that are not positive numbers of float32; None is none. The error names
    their config keys.
    """
    for key, value in values.items():
        for x in value if isinstance(value, tuple) else (value,):
            if x is not None and not _LEAST <= x <= _MOST:
                raise ImpossibleModel(
                    f"{key} of {of} is {safe(repr(x), 60)}",
                    hint="expected a positive number in the range of float32",
                )


MAX_ROTARY_DIM = 1 << 16
"""Upper limit of the channels of a head that rotate, for each of which a frequency is computed."""
_ORIGINAL = "original_max_position_embeddings"
ROTARY_KEYS = (
    "head_dim, or else hidden_size / num_attention_heads, partial_rotary_factor, rotary_dim and "
    "qk_rope_head_dim decide how many rotate"
)


class Rope(Record):
    """Rotary positions over the first `dim` of each head, base `theta`."""

    scaling: ClassVar[str] = ""  # its scaling in words
    depends_on_length: ClassVar[bool] = False  # the angles depend on the length of the sequence
    for_grids: ClassVar[bool] = False  # positions are the rows and columns of a grid of patches
    positive: ClassVar[dict[str, str]] = {"theta": "rope_theta"}  # field → its config key
    theta: float
    dim: int
    interleaved: bool = False  # rotary pairs are (2i, 2i+1) instead of (i, i + dim/2)
    reverse: bool = False  # pairs rotate by the negative angles

    @property
    def num_pairs(self) -> int:
        """The number of pairs of channels that rotate, one for each frequency: half of `dim`,
        rounded up as in transformers.
        """
        return (self.dim + 1) // 2

    @property
    def changes_after(self) -> int | None:
        """The length of a sequence after which all angles are others; None: there is none."""
        return None

    def without_scaling(self) -> Rope:
        """Return the same positions without scaling."""
        return Rope(theta=self.theta, dim=self.dim, interleaved=self.interleaved)

    def angle_length(self, length: int, prompt: int) -> int:  # noqa: ARG002
        """Return the length that the angles depend on, of a sequence and its prompt; 0: none."""
        return length if self.depends_on_length else 0

    def __post_init__(self) -> None:
        check_positive(
            "the rotary embedding",
            {key: getattr(self, name) for name, key in self.positive.items()},
        )
        if not 0 < self.dim <= MAX_ROTARY_DIM:
            self.reject_dim(f"a number from 1 to {MAX_ROTARY_DIM:,}")

    def reject_dim(self, expected: str) -> None:
        """Raise an error about the number of channels that rotate."""
        raise ImpossibleModel(
            f"{safe(str(int(self.dim)), 60)} channels of each head rotate, expected {expected}",
            hint=ROTARY_KEYS,
        )

    def check_head(self, channels: int, *, last: bool = False) -> None:
        """Refuse heads that have fewer channels than those that rotate, `last`: after the
        others.
        """
        if 2 * self.num_pairs > (min(self.dim, channels) if last else channels):
            self.reject_dim(
                "an even number"
                if self.dim <= channels
                else f"at most the {int(channels):,} of a head"
            )


class LinearRope(Rope):
    """Linear scaling: positions are divided by `factor`."""

    scaling = "linear"
    positive: ClassVar[dict[str, str]] = {**Rope.positive, "factor": "factor"}
    factor: float


class DynamicRope(Rope):
    """Dynamic NTK scaling: the base grows with sequences longer than `original_context`."""

    scaling = "dynamic NTK"
    depends_on_length = True
    positive: ClassVar[dict[str, str]] = {
        **Rope.positive,
        "factor": "factor",
        "original_context": _ORIGINAL,
    }
    factor: float
    original_context: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim == 2:
            self.reject_dim("another number: the base grows with the power of n / (n − 2)")


class YarnRope(Rope):
    """YaRN: low frequencies are interpolated, high ones kept, attention rescaled (Peng et al.
    2023, arXiv:2309.00071).
    """

    scaling = "YaRN"
    positive: ClassVar[dict[str, str]] = {
        **Rope.positive,
        "original_context": _ORIGINAL,
        **{x: x for x in ("factor", "beta_fast", "beta_slow", "attention_factor")},
    }
    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(
            "the rotary embedding",
            {"mscale": self.mscale or None, "mscale_all_dim": self.mscale_all_dim or None},
        )
        if self.dim % 2:
            self.reject_dim("an even number")
        if self.theta == 1:
            raise ImpossibleModel("rope_theta is 1", hint="YaRN's formula divides by its logarithm")

    def growth(self, weight: float) -> float:
        """Return by how much the longer context makes attention sharper, with this weight of its
        logarithm.
        """
        return 0.1 * weight * log(self.factor) + 1.0 if self.factor > 1 else 1.0

    @property
    def angle_factor(self) -> float:
        """Factor on cosines and sines that keeps attention equally sharp over a longer context."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self.growth(self.mscale) / self.growth(self.mscale_all_dim)
        return self.growth(1.0)


class QwenDynamicRope(Rope):
    """Base times α^(dim / (dim − 2)) for prompts of n > `original_context` tokens, α = 2^⌈log₂(n
    / original) + 1⌉ − 1 (Qwen 1).
    """

    scaling = "dynamic NTK"
    depends_on_length = True
    positive: ClassVar[dict[str, str]] = {**Rope.positive, "original_context": "seq_length"}
    original_context: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim == 2:
            self.reject_dim("another number: the base grows with the power of n / (n − 2)")

    def angle_length(self, length: int, prompt: int) -> int:  # noqa: ARG002
        return prompt


class Llama3Rope(Rope):
    """Llama 3.1: frequencies are divided by `factor` where the wavelength is beyond
    `original_context / low_freq_factor`, kept where it is under `original_context /
    high_freq_factor`, and interpolated between.
    """

    scaling = "Llama 3"
    positive: ClassVar[dict[str, str]] = {
        **Rope.positive,
        "original_context": _ORIGINAL,
        **{x: x for x in ("factor", "low_freq_factor", "high_freq_factor")},
    }
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int

    def kept_share(self, wavelength: Any) -> Any:
        """Return which share of a frequency is kept, to be clamped to 0…1; for one wavelength or
        a tensor of them.
        """
        # of Llama 4 both are 1, and nothing is interpolated
        span = self.high_freq_factor - self.low_freq_factor or _NO_SPAN
        return (self.original_context / wavelength - self.low_freq_factor) / span

    def divisors(self) -> list[float]:
        """Return by how much each frequency is divided."""
        shares = (
            min(1.0, max(0.0, self.kept_share(2 * pi * self.theta ** (i / self.dim))))
            for i in range(0, self.dim, 2)
        )
        return [1 / ((1 - x) / self.factor + x) for x in shares]


class LongRope(Rope):
    """LongRoPE: one factor per frequency, from the short or the long list by the length of the
    sequence (Phi-3).
    """

    scaling = "LongRoPE"
    depends_on_length = True
    positive: ClassVar[dict[str, str]] = {
        **Rope.positive,
        "original_context": _ORIGINAL,
        "context": "max_position_embeddings",
        "mscales": "short_mscale and long_mscale",
        **{x: x for x in ("short_factor", "long_factor", "factor", "attention_factor")},
    }
    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_context: int
    context: int
    factor: float | None = None
    attention_factor: float | None = None
    mscales: tuple[float, float] | None = (
        # factors of cos and sin for short and for long sequences, instead of attention_factor
        # (Phi-3.5-MoE)
        None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("short_factor", "long_factor"):
            if (found := len(getattr(self, key))) != self.num_pairs:
                hint = f"{self.dim} channels of each head rotate, in pairs"
                raise ImpossibleModel(
                    f"{key} has {found:,} numbers, expected {self.num_pairs:,}", hint=hint
                )
        if self.original_context < 2:
            raise ImpossibleModel(
                f"{_ORIGINAL} is {self.original_context}",
                hint="LongRoPE's formula divides by its logarithm",
            )

    @property
    def changes_after(self) -> int | None:
        return self.original_context

    def angle_length(self, length: int, prompt: int) -> int:  # noqa: ARG002
        return self.original_context + 1 if length > self.original_context else 1

    @property
    def default_angle_factor(self) -> float:
        """Factor on cosines and sines where the configuration states none."""
        stretch = self.context / self.original_context if self.factor is None else self.factor
        return longrope_angle_factor(stretch, self.original_context)


def longrope_angle_factor(stretch: float, original_context: int) -> float:
    """Return LongRoPE's factor on cosines and sines of a context that was made longer by
    `stretch`.
    """
    return sqrt(1 + log(stretch) / log(original_context)) if stretch > 1 else 1.0


class ProportionalRope(Rope):
    """Gemma 4: frequencies are spread over the whole head, and those beyond `dim` are zero."""

    scaling = "proportional"
    positive: ClassVar[dict[str, str]] = {**Rope.positive, "factor": "factor"}
    head_dim: int
    factor: float = 1.0

    @property
    def num_pairs(self) -> int:
        return self.head_dim // 2

    def without_scaling(self) -> Rope:
        return self.replace(factor=1.0)

    def __post_init__(self) -> None:
        check_positive(
            "the rotary embedding",
            {key: getattr(self, name) for name, key in self.positive.items()},
        )
        if (
            not 0 <= self.dim <= self.head_dim <= MAX_ROTARY_DIM
            or self.head_dim < 2
            or self.head_dim % 2
            or self.dim % 2
        ):
            self.reject_dim(
                f"an even number, at most the {int(self.head_dim):,} of a head, "
                "which should be even, too"
            )


class AxialRope(Rope):
    """Rotary positions in two dimensions: even frequencies turn with a patch's row, odd ones with
    its column (Pixtral).

    With `by_halves`, rows and columns have the same frequencies: the first half of the pairs turns
    with the row (Qwen2-VL).
    """

    for_grids = True
    by_halves: bool = False
    columns_first: bool = False  # the first half turns with the column instead
    alternating: bool = False  # the two take turns, with the same frequencies (MoonViT)
    offset: int = 0  # the number of the first row and column
    # pairs before the others that turn with time, which an image has none of (MiniMax-M3)
    still: int = 0

    @property
    def num_pairs(self) -> int:
        return self.still + (self.dim + 1) // 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % (4 if self.by_halves or self.alternating else 2):
            self.reject_dim(
                "a multiple of 4" if self.by_halves or self.alternating else "an even number"
            )


class SplitAxialRope(Rope):
    """Rotary positions in two dimensions: the first half of a head turns with a patch's column,
    the second with its row (Gemma 4).
    """

    for_grids = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % 4:
            self.reject_dim("a multiple of 4")


class Alibi(Record):
    """ALiBi: scale · 2^(−max·i/H) · (key's position) is added to the scaled scores of head i. If H
    is not a power of two, the slopes are those of the power below, followed by every other slope of
    the power above (Press et al. 2022, arXiv:2108.12409).
    """

    max_bias: float = 8.0
    scale: float = 1.0
    bf16_rounded: bool = False  # slopes and products are rounded to bfloat16 (Falcon)


class TemperatureTuning(Record):
    """Queries at position t are multiplied by 1 + scale · ln(1 + ⌊(t + offset) / floor⌋) (Llama
    4, Ministral 3).
    """

    scale: float
    floor: int
    offset: int = 0

    def __post_init__(self) -> None:
        check_positive("the scaling of queries by position", {"the floor": self.floor})


class LogTuning(TemperatureTuning):
    """Queries at position t are multiplied by 1 + scale · ln((t + 1) / floor), once that is more
    than 1 (Inkling).
    """


class LogNScaling(Record):
    """Queries at position t are multiplied by ln(t + 1) / ln(original), once that is more than 1
    (Qwen 1's `use_logn_attn`).
    """

    original_context: int

    def __post_init__(self) -> None:
        if self.original_context < 2:
            raise ImpossibleModel(
                f"seq_length is {self.original_context}",
                hint="use_logn_attn divides by its logarithm",
            )
