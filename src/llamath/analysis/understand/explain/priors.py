"""How likely a vocabulary size or a LoRA rank is, in bits: the less common, the more bits."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2
from typing import NamedTuple

_OTHER_VOCAB_SIZES = {
    2_256: "torchtitan's test tokenizer",
    32_064: "LLaVA 1.5, padded to 64",
    49_953: "Chinese LLaMA",
    49_954: "Chinese Alpaca",
    50_304: "GPT-2 padded to 128, as nanoGPT does",
    55_296: "Chinese LLaMA 2",
    151_665: "Qwen2.5's tokenizer, unpadded",
}
"""Well-known vocabulary sizes that no preset has."""
MAX_VOCAB = 2**19
RANK_BITS = {
    8: 1.5,
    16: 1.5,
    32: 2.5,
    64: 2.5,
    4: 3,
    128: 3,
    256: 3.5,
    2: 5,
    1: 6,
    512: 4.5,
    1024: 5.5,
}
"""Common LoRA ranks and the bits of each."""
MAX_RANK = 2048
TOKEN_BITS = {
    8: 1.5,
    10: 1.5,
    16: 2,
    20: 1.5,
    30: 2,
    32: 2.5,
    50: 2.5,
    64: 3,
    100: 1.5,
    128: 2.5,
    5: 4,
    256: 4,
    512: 5,
}
"""Common numbers of virtual tokens and the bits of each."""


_MIN_ZEROS, _MIN_POWER = 4, 10
"""Trailing decimal zeros of a round number; a multiple of 1,024 is one of 2^10."""
_MULTIPLE_BITS = 2.0
"""The bits that an explanation of a multiple of 1,024 must save besides."""


def excess_bits(number: int) -> float:
    """Return the bits by which an explanation of a number must be shorter than of others.

    A round number was rarely counted, and a multiple of 1,024 is what most combinations of matrices
    give.
    """
    zeros, power = _trailing_zeros(number), _trailing_power(number)
    round_bits = zeros * log2(10) if zeros >= _MIN_ZEROS else 0.0
    return max(round_bits, _MULTIPLE_BITS if power >= _MIN_POWER else 0.0)


def evidence_bits(number: int) -> float:
    """Return how many bits of information a number has about its origin, for the confidence in
    an explanation.
    """
    zeros, power = _trailing_zeros(number), _trailing_power(number)
    shared = max(
        zeros * log2(10) if zeros >= _MIN_ZEROS else 0.0, power / 2 if power >= _MIN_POWER else 0.0
    )
    return log2(max(number, 2)) - shared


def _trailing_zeros(number: int) -> int:
    text = str(number)
    return len(text) - len(text.rstrip("0"))


def _trailing_power(number: int) -> int:
    """Return the exponent of the largest power of two that divides a number."""
    return (number & -number).bit_length() - 1


class _Prior(NamedTuple):
    """The bits of a value, and the reason."""

    bits: float
    why: str = ""


def vocab_prior(value: int, own: int, known: Mapping[int, str]) -> _Prior | None:
    """Return the prior of a vocabulary size where the model's own is `own`; None if it is out of
    range or unchanged.
    """
    if not 0 < value <= MAX_VOCAB or value == own:
        return None
    if 0 < value - own <= 16:
        return _Prior(4, f"{value - own} token{'s' if value > own + 1 else ''} added")
    if value in _OTHER_VOCAB_SIZES:
        return _Prior(4.5, _OTHER_VOCAB_SIZES[value])
    for multiple, bits in (
        (8, 5),
        (16, 5),
        (32, 5),
        (64, 5),
        (128, 5),
        (256, 5.5),
        (512, 6),
        (1024, 6),
    ):
        if value == -(-own // multiple) * multiple:
            return _Prior(bits, f"padded to a multiple of {multiple}")
    if value in known:
        return _Prior(8, f"as {known[value]} has")
    if value & (value - 1) == 0 and value >= 256:
        return _Prior(6, "a power of two")
    if own < value <= own + 1024:
        return _Prior(12, f"{value - own:,} tokens added")
    for multiple, bits in ((1000, 9), (1024, 9), (256, 12), (64, 14), (8, 17)):
        if value % multiple == 0:
            return _Prior(bits, f"a multiple of {multiple:,}")
    return _Prior(20)


_ONE_GPU = 8 * 10**9
"""The parameters up to which nearly all adapters are trained."""
PARTIAL_COUNT_BITS = 3.0
"""The bits of adapters on a model of which something is not counted: programs that print
adapters count the whole model."""
CHANGED_FILES_BITS = 4.0
"""The bits of adapters, of another vocabulary or of a part left out where scales are counted:
these are in published, whole files."""
FOREIGN_VOCAB_BITS, FOREIGN_FROM_BITS = 3.0, 8.0
"""The bits of adapters on a vocabulary of other models, and of such a vocabulary: people add
tokens, or pad, before they train adapters."""
_HIGH_RANK = 64


def adapted_size_bits(parameters: int) -> float:
    """Return the bits of adapters for a model of this size: the larger a model, the fewer people
    can train adapters for it.
    """
    return 0.75 * max(0.0, log2(parameters / _ONE_GPU))


def quantized_size_bits(parameters: int) -> float:
    """Return the bits of a quantized file for a model of this size: the smaller a model, the
    less its files need it.
    """
    return 0.75 * max(0.0, log2(_ONE_GPU / max(parameters, 1)))


def narrow_bits(rank: int, is_narrow: bool) -> float:
    """Return the bits of a high rank on two projections or fewer; who wants more adapters first
    takes more matrices.
    """
    return 1.0 if is_narrow and rank >= _HIGH_RANK else 0.0


def rank_prior(value: int, kind: str = "LoRA") -> _Prior | None:
    """Return the prior of a LoRA rank, or of the number of virtual tokens; None if it is out of
    range.
    """
    if not 0 < value <= MAX_RANK or (kind == "IA³" and value > 1):
        return None
    if kind == "IA³":
        return _Prior(0)
    if kind in ("prompt", "prefix", "p-tuning"):
        return _Prior(TOKEN_BITS.get(value, 7 if value % 10 == 0 and value <= 200 else 12))
    return _Prior(RANK_BITS.get(value, 18 if value > 256 else 7 if value % 8 == 0 else 12))
