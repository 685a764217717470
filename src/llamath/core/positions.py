"""Positional encodings without weights: rotary embeddings, ALiBi, and scaling of queries by position."""

from __future__ import annotations

from math import pi
from typing import Any

from ..utils.record_type import Record

_NO_SPAN = 2.0**-100
"""In place of a difference of 0."""


class Rope(Record):
    """Rotary positions over the first `dim` of each head, base `theta`."""

    theta: float
    dim: int
    interleaved: bool = False  # rotary pairs are (2i, 2i+1) instead of (i, i + dim/2)
    reverse: bool = False  # pairs rotate by the negative angles


class LinearRope(Rope):
    """Linear scaling: positions are divided by `factor`."""

    factor: float


class DynamicRope(Rope):
    """Dynamic NTK scaling: the base grows with sequences longer than `original_context`."""

    factor: float
    original_context: int


class YarnRope(Rope):
    """YaRN: low frequencies are interpolated, high ones kept, attention rescaled (Peng et al. 2023, arXiv:2309.00071)."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    truncate: bool = True


class QwenDynamicRope(Rope):
    """Base times α^(dim / (dim − 2)) for prompts of n > `original_context` tokens, α = 2^⌈log₂(n / original) + 1⌉ − 1 (Qwen 1)."""

    original_context: int


class Llama3Rope(Rope):
    """Llama 3.1: frequencies are divided by `factor` where the wavelength is beyond `original_context / low_freq_factor`, kept where it is
    under `original_context / high_freq_factor`, and interpolated between.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int

    def kept_share(self, wavelength: Any) -> Any:
        """Return which share of a frequency is kept, to be clamped to 0…1; for one wavelength or a tensor of them."""
        span = self.high_freq_factor - self.low_freq_factor or _NO_SPAN  # of Llama 4 both are 1, and nothing is interpolated
        return (self.original_context / wavelength - self.low_freq_factor) / span

    def divisors(self) -> list[float]:
        """Return by how much each frequency is divided."""
        shares = (min(1.0, max(0.0, self.kept_share(2 * pi * self.theta ** (i / self.dim)))) for i in range(0, self.dim, 2))
        return [1 / ((1 - x) / self.factor + x) for x in shares]


class LongRope(Rope):
    """LongRoPE: one factor per frequency, from the short or the long list by the length of the sequence (Phi-3)."""

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_context: int
    context: int
    factor: float | None = None
    attention_factor: float | None = None
    mscales: tuple[float, float] | None = (
        None  # factors of cos and sin for short and for long sequences, instead of attention_factor (Phi-3.5-MoE)
    )


class ProportionalRope(Rope):
    """Gemma 4: frequencies are spread over the whole head, and those beyond `dim` are zero."""

    head_dim: int
    factor: float = 1.0


class AxialRope(Rope):
    """Rotary positions in two dimensions: even frequencies turn with a patch's row, odd ones with its column (Pixtral).

    With `by_halves`, rows and columns have the same frequencies: the first half of the pairs turns with the row (Qwen2-VL).
    """

    by_halves: bool = False
    columns_first: bool = False  # the first half turns with the column instead
    alternating: bool = False  # the two take turns, with the same frequencies (MoonViT)
    offset: int = 0  # the number of the first row and column
    still: int = 0  # pairs before the others that turn with time, which an image has none of (MiniMax-M3)
    unrotated: int = 0  # tokens after the patches, which stay as they are


class SplitAxialRope(Rope):
    """Rotary positions in two dimensions: the first half of a head turns with a patch's column, the second with its row (Gemma 4)."""


class Alibi(Record):
    """ALiBi: scale · 2^(−max·i/H) · (key's position) is added to the scaled scores of head i. If H is not a power of
    two, the slopes are those of the power below, followed by every other slope of the power above (Press et al. 2022, arXiv:2108.12409).
    """

    max_bias: float = 8.0
    scale: float = 1.0
    bf16_rounded: bool = False  # slopes and products are rounded to bfloat16 (Falcon)


class TemperatureTuning(Record):
    """Queries at position t are multiplied by 1 + scale · ln(1 + ⌊(t + offset) / floor⌋) (Llama 4, Ministral 3)."""

    scale: float
    floor: int
    offset: int = 0


class LogTuning(TemperatureTuning):
    """Queries at position t are multiplied by 1 + scale · ln((t + 1) / floor), once that is more than 1 (Inkling)."""


class LogNScaling(Record):
    """Queries at position t are multiplied by ln(t + 1) / ln(original), once that is more than 1 (Qwen 1's `use_logn_attn`)."""

    original_context: int
