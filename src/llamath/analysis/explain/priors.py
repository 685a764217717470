"""How likely a vocabulary size or a LoRA rank is, in bits: the less common, the more bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_OTHER_VOCAB_SIZES = {
    2_256: "torchtitan's test tokenizer",
    49_953: "Chinese LLaMA",
    49_954: "Chinese Alpaca",
    50_304: "GPT-2 padded to 128, as nanoGPT does",
    55_296: "Chinese LLaMA 2",
    151_665: "Qwen2.5's tokenizer, unpadded",
}
"""Well-known vocabulary sizes that no preset has."""
_MAX_VOCAB = 2**19
RANK_BITS = {8: 1.5, 16: 1.5, 32: 2.5, 64: 2.5, 4: 3, 128: 3, 256: 3.5, 2: 4, 1: 4, 512: 4.5, 1024: 5.5}
"""Common LoRA ranks and the bits of each."""
MAX_RANK = 2048


class _Prior(NamedTuple):
    """The bits of a value, and the reason."""

    bits: float
    why: str = ""


def vocab_prior(value: int, own: int, known: Mapping[int, str]) -> _Prior | None:
    """Return the prior of a vocabulary size where the model's own is `own`; None if it is out of range or unchanged."""
    if not 0 < value <= _MAX_VOCAB or value == own:
        return None
    if 0 < value - own <= 16:
        return _Prior(4, f"{value - own} token{'s' if value > own + 1 else ''} added")
    for multiple in (8, 16, 32, 64, 128, 256, 512, 1024):
        if value == -(-own // multiple) * multiple:
            return _Prior(5, f"padded to a multiple of {multiple}")
    if value in _OTHER_VOCAB_SIZES:
        return _Prior(5, _OTHER_VOCAB_SIZES[value])
    if value in known:
        return _Prior(6, f"as {known[value]} has")
    if value & (value - 1) == 0 and value >= 256:
        return _Prior(6, "a power of two")
    if own < value <= own + 1024:
        return _Prior(10, f"{value - own:,} tokens added")
    for multiple, bits in ((1000, 9), (1024, 9), (256, 12), (64, 14), (8, 17)):
        if value % multiple == 0:
            return _Prior(bits, f"a multiple of {multiple:,}")
    return _Prior(20)


def rank_prior(value: int) -> _Prior | None:
    """Return the prior of a LoRA rank; None if it is out of range."""
    if not 0 < value <= MAX_RANK:
        return None
    return _Prior(RANK_BITS.get(value, 13 if value > 256 else 7 if value % 8 == 0 else 10))
